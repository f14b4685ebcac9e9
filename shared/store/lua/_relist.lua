-- What a repaired Group has is listed anew, each item where its own hash says that it stands.

-- An item's due entries. They come again where its time has not come: what they find decides (see `tick`).
local function timers(S, G, it)
  local name = G.name .. ' ' .. it.id
  if it.st == 'active' then G.due['l ' .. name] = tonumber(it.lex) end
  if it.st == 'queued' then G.due['s ' .. name] = tonumber(it.sby) end
  if it.st == 'blocked' and it.bex then G.due['b ' .. name] = tonumber(it.bex) end
  if it.st == 'offered' and it.ox and tonumber(it.ox) > 0 then G.due['o ' .. name] = tonumber(it.ox) end
  if it.ya and it.ya ~= '0' then G.due['v ' .. name] = tonumber(it.ya) end
  if it.st == 'offered' and it.rsv then G.due['h ' .. name] = tonumber(string.match(it.rsv, '%d+$')) end
  if it.nb then G.due['n ' .. name] = tonumber(it.nb) end
  if it.rel then G.due['r ' .. name] = S.now end
  if G.grown and T.has_ended(it) then G.due['e ' .. name] = S.now + T.counts(S, G).keep end
end

local function relist(S, G, it)
  timers(S, G, it)
  -- What is neither leaves those lists: an item that was dropped may have been one.
  G.parked[it.id], G.blocked[it.id] = it.hold ~= nil, it.st == 'blocked'
  if it.st == 'offered' and (G.state == 'active' or G.state == 'loading') then
    T.index(G, it, true)
  elseif it.own and (it.st == 'queued' or it.st == 'active' or it.st == 'blocked') then
    G.held[it.own] = G.held[it.own] or {}
    G.held[it.own][it.id] = true
  end
end

-- g: the items from a place on, a chunk a call.
function T.pump_relist(S, G, from, member)
  local ids, next_from = T.page(S, G, from)
  G.due[member] = false
  T.counts(S, G)
  for _, id in ipairs(ids) do
    local it = T.named(S, G, id)
    if not it then return end
    relist(S, G, it)
  end
  S.release_left = S.release_left - #ids
  if #ids > 0 then G.due['g ' .. G.name .. ' ' .. T.int(next_from)] = S.now end
end
