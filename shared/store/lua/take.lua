-- take: Accepts items of one Group and capability in the fixed order, and starts them while the call has free slots.
-- keys: as turn
-- args: group capability most tag
-- bound: `most` items, the call's slots and ahead, 1 MiB of inputs (or one item)
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN PAUSED EMPTY
-- events: work.offer.accepted work.started
T.arity.take = 4
T.BYTES_MAX = 1048576

local function candidates(S, G, cap, most)
  local gone = G.dels[cap] or {}
  local extra = 0
  for _ in pairs(gone) do extra = extra + 1 end
  local found, keys = redis.call('ZRANGEBYLEX', S.base .. '@take:' .. cap, '[' .. G.name .. ' ', '(' .. G.name .. '!',
    'LIMIT', 0, most + extra + 1), {}
  for _, member in ipairs(found) do
    local key = string.sub(member, #G.name + 2)
    if not gone[key] then keys[#keys + 1] = key end
  end
  for key in pairs(G.adds[cap] or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

-- Starts an item its owner may start: the Execution Lease is bound to Agent, session, item and Ownership Epoch.
function T.start(S, G, it)
  S.leases = S.leases + 1
  T.put(it, 'lid', table.concat({ S.agent, S.epoch, S.tag, S.lane_key, T.int(S.leases) }, '.'))
  T.put(it, 'ln', T.int(tonumber(it.ln or '0') + 1))
  T.put(it, 'lex', T.int(S.now + S.ttl))
  T.put(it, 'st', 'active')
  T.begin_run(S, G, it)
  G.due['s ' .. G.name .. ' ' .. it.id] = false
  G.due['l ' .. G.name .. ' ' .. it.id] = S.now + S.ttl
  return T.emit(S, G, 'work.started', it.id, S.by, { it.oe, it.lid, it.lex, it.ln })
end

local function accept(S, G, it)
  T.put(it, 'oe', T.int(tonumber(it.oe or '0') + 1))
  T.put(it, 'own', S.agent)
  T.put(it, 'ses', S.epoch)
  T.put(it, 'sby', T.int(S.now + 1000 * tonumber(it.sb or '60')))
  T.put(it, 'st', 'queued')
  T.index(G, it, false)
  G.held[S.agent] = G.held[S.agent] or {}
  G.held[S.agent][it.id] = true
  G.due['s ' .. G.name .. ' ' .. it.id] = tonumber(it.sby)
  return T.emit(S, G, 'work.offer.accepted', it.id, S.by, { it.oe, it.sby })
end

-- A grant's line: "+ group item capability epoch start_by seq lease expires number width checkpoint after"; '-' where there is none.
function T.granted(S, G, it, seq)
  local live = it.st == 'active'
  return table.concat({ '+', G.name, it.id, it.cap, it.oe, it.sby, T.int(seq), live and it.lid or '-', live and it.lex or '-',
    it.ln or '0', it.w or '1', it.ckn or '0', it.after and string.gsub(it.after, ' ', ',') or '-' }, ' ')
end

T.ops.take = function(S, group, cap, most, tag)
  local G = S.groups[group]
  local code = T.closed(G) or (G.state == 'paused' and 'PAUSED') or (G.state ~= 'active' and 'EMPTY')
  if code then return T.outcome(S, G, code) end
  local limit = math.min(tonumber(most), 64)
  local keys, lines, width = candidates(S, G, cap, limit), {}, 0
  for i = 1, math.min(#keys, limit) do
    local it = T.item(S, G, string.match(keys[i], ':(.*)$'))
    width = tonumber(it.w or '1')
    local size = T.body_size(it, 'in')
    local starts = width <= S.slots
    if S.grants >= 64 or (not starts and S.ahead <= 0) then break end
    if S.bytes + size > T.BYTES_MAX and S.grants > 0 then break end
    T.serve(S, G, tonumber(tag))
    local seq = accept(S, G, it)
    if starts then
      S.slots = S.slots - width
      T.start(S, G, it)
    else
      S.ahead = S.ahead - 1
    end
    S.bytes, S.grants = S.bytes + size, S.grants + 1
    lines[#lines + 1] = T.granted(S, G, it, seq)
  end
  if #keys > #lines then
    G.leftover[cap] = #lines > 0 or nil
    G.dir[cap] = #lines > 0 and 'live' or G.dir[cap]
  else
    G.dir[cap] = 'empty'
    if #lines > 0 then T.leave(G) end
  end
  T.outcome(S, G, #keys == 0 and 'EMPTY' or 'OK', nil, lines)
end
