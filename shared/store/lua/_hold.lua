-- Reservations of items that need much at once (scheduler.md, rule 8). `rsv` of an offered item: "agent until", the Worker that
-- keeps slots and resources free until all that it needs are there; a due entry (h) ends it. An item that leaves the index has none.

-- Who holds an item now, or nil.
function T.holder(S, it)
  local agent, over = string.match(it.rsv or '', '^(%S+) (%d+)$')
  return agent and tonumber(over) > S.now and agent or nil
end

-- Whether another Worker than the caller holds it: it is passed over.
function T.is_held(S, it)
  local holder = T.holder(S, it)
  return holder ~= nil and holder ~= S.agent
end

function T.let_go(G, it)
  T.put(it, 'rsv', nil)
  G.due['h ' .. G.name .. ' ' .. it.id] = false
end

-- Tells the directory's readers that somebody holds an item, or nobody any more.
function T.show_hold(G, it)
  if not it.to then return T.touch(G, it) end
  for _, agent in ipairs(T.candidates(it.to)) do G.dir['>' .. agent] = G.dir['>' .. agent] or 'touch' end
end

-- A reservation is over: whoever has the slots may take the item, and is told.
function T.open_held(G, it)
  T.let_go(G, it)
  T.show_hold(G, it)
  if not it.to then G.leftover[T.shelf(it.cap)] = true end
end

-- h: a reservation that was not renewed is over.
function T.end_hold(S, G, it, member)
  if it and T.holder(S, it) then
    G.due[member] = tonumber(string.match(it.rsv, '%d+$'))
  elseif it and it.rsv then
    T.open_held(G, it)
  else
    G.due[member] = false
  end
end

-- The head of a Group as the directory shows it: its sort key, with "@agent" behind it while one is held that is wide
-- or needs resources.
function T.shown_head(S, G, member)
  local key = string.sub(member, #G.name + 2)
  if not string.find(key, '[*&]') then return key end
  local id = T.of_key(key)
  local it = G.items[id] or { rsv = T.try('HGET', G.key .. ':i:' .. id, 'rsv') }
  local holder = T.holder(S, it)
  return holder and key .. '@' .. holder or key
end
