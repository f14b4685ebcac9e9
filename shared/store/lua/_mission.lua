-- A Mission in memory and in its hash: its counters, its end, and who is rung at it.

function T.counts(S, G)
  if G.count then return G.count end
  local names = { 'total', 'verified', 'failed', 'cancelled', 'live', 'keep' }
  local values = T.listed(G, 'HMGET', S.base .. G.name .. ':mission', unpack(names))
  G.count = {}
  for i, name in ipairs(names) do
    G.count[name] = tonumber(values[i])
    if not G.count[name] then G.bad, G.count[name] = 'LOG_FOREIGN', 0 end
  end
  G.unfinished = T.unfinished(G.count)
  return G.count
end

-- Ends the Mission when nothing of it can move by itself: approved in advance by its owner when all is verified
-- (design.md 5), else failed, and a pump cancels what still waits.
function T.conclude(S, G)
  if not G.count or G.count.live > 0 or G.state ~= 'active' or G.form == 'open' then return end
  if G.count.verified == G.count.total then
    T.emit(S, G, 'mission.submitted_for_approval', '', 'policy', { '1' })
    T.emit(S, G, 'mission.approved', '', 'policy', { 'when_verified' })
    T.end_mission(S, G, 'ended', 'approved')
  else
    local failed, cancelled = G.count.failed, G.count.cancelled
    local why = failed > 0 and T.int(failed) .. '-items-failed' or T.int(cancelled) .. '-items-cancelled'
    T.emit(S, G, 'mission.terminated', '', 'policy', { why })
    T.end_mission(S, G, 'ended', 'failed')
  end
end

-- A Mission has ended as `how`. What is in it is kept for a time: from here on, or once a pump has withdrawn what is left.
function T.end_mission(S, G, state, how)
  G.state, G.ended = state, how
  if how == 'approved' then T.keep_items(S, G) else G.due['c ' .. G.name .. ' 0'] = S.now end
end

function T.keep_items(S, G)
  G.due['z ' .. G.name .. ' 0'] = S.now + T.counts(S, G).keep
end

-- Rings the clients that wait for the end of an item, or of the Mission ('-'): they are told which.
local function ring_waiting(S, G, id, key)
  for _, client in ipairs(T.try('SMEMBERS', key) or {}) do T.push(S, client, G.name .. ' ' .. id) end
  redis.call('DEL', key)
end

function T.save_mission(S, G)
  for id in pairs(G.rung) do ring_waiting(S, G, id, S.base .. G.name .. ':w:' .. id) end
  for id, dependents in pairs(G.outs) do T.many('RPUSH', S.base .. G.name .. ':out:' .. id, dependents) end
  if not G.count then return end
  local key = S.base .. G.name .. ':mission'
  if G.ids then
    if G.grown then T.many('ZADD', S.base .. G.name .. ':jobs', G.ranks or {})
    else T.many('RPUSH', S.base .. G.name .. ':items', G.ids) end
    T.many('HSET', key, G.mission)
  end
  local c = G.count
  T.count_queued(S, G)
  redis.call('HSET', key, 'total', T.int(c.total), 'verified', T.int(c.verified), 'failed', T.int(c.failed),
    'cancelled', T.int(c.cancelled), 'live', T.int(c.live))
  if not G.ended then return end
  redis.call('HSET', key, 'state', G.ended, 'ended', T.int(S.now))
  ring_waiting(S, G, '-', S.base .. G.name .. ':wait')
end
