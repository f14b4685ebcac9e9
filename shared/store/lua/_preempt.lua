-- Preemption (protocol R46): a run that was asked for its slot, and the slots that Groups wait for.

-- A Group waits for at most so many slots at a time, and for each no longer than a day.
T.RESERVED_MAX, T.RESERVED_MS_MAX = 64, 86400000

function T.is_span(text)
  return string.find(text, '^%d+$') and tonumber(text) > 0 and tonumber(text) <= T.RESERVED_MS_MAX
end

-- The run of `it` ends, however: what it was asked for goes with it. Called by all that ends an ownership.
function T.unask(G, it)
  T.put(it, 'ya', nil)
  G.due['v ' .. G.name .. ' ' .. it.id] = false
end

-- v: no safe point was reached in time. It is said once, to its Worker too; nothing is cut.
function T.come_overdue(S, G, it, member)
  local at = it and it.st == 'active' and tonumber(it.ya or '0') or 0
  if at > S.now then
    G.due[member] = at
    return
  end
  G.due[member] = false
  if at == 0 or tonumber(it.lex) <= S.now then return end
  T.concern(S, G, it.own, T.emit(S, G, 'work.preemption.overdue', it.id, 'timer', { it.oe, it.lid }))
  T.put(it, 'ya', '0')
end

-- The slots that a Group waits for: pairs of the lease that was asked for one and until when it counts. They stand in the
-- Mission's record, `slots`; what is over by Redis' time is none, and goes with the next change.
function T.reserved(S, G)
  if not G.reserved then
    G.reserved = {}
    local stored = T.try('HGET', S.base .. G.name .. ':mission', 'slots') or ''
    for lease, ends in string.gmatch(stored, '(%S+)=(%d+)') do
      if tonumber(ends) > S.now then table.insert(G.reserved, { lease, ends }) end
    end
  end
  return G.reserved
end

-- Plans that a Group waits for the slots that are in `G.reserved` now.
function T.save_reserved(S, G)
  local key, pairs_ = S.base .. G.name .. ':mission', {}
  for i, one in ipairs(G.reserved) do pairs_[i] = one[1] .. '=' .. one[2] end
  if #pairs_ > 0 then redis.call('HSET', key, 'slots', table.concat(pairs_, ' ')) else redis.call('HDEL', key, 'slots') end
end

-- Where in that list the slot of a lease stands, or nil.
function T.reserved_at(S, G, lease)
  for i, one in ipairs(T.reserved(S, G)) do
    if one[1] == lease then return i end
  end
end
