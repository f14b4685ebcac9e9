-- Memberships of Agents: in one hash per Agent and partition, `@joined:<agent>`, a field a Group: "epoch last cursor". `epoch` is
-- the Membership Epoch, `last` the last Event that concerned the Agent, `cursor` how far it has processed the log.

-- A durable Cursor never moves back.
local function further(cursor, before)
  return T.int(math.max(tonumber(cursor or '0'), tonumber(before or '0')))
end

-- Plans the Membership of each Agent that Events of this call concern, and rings it. An Agent gets one with the first Event that
-- concerns it: the sequence of that is its Membership Epoch and the start of what it may see (R6, R8). Without a session an
-- Agent is no member, and is not rung: a new one is told what it owns when it opens.
function T.collect_members(S, G, W)
  for agent, bell in pairs(G.bells) do
    local record = G.members[agent] or redis.call('HGET', S.base .. '@joined:' .. agent, G.name) or ''
    local epoch, previous, cursor = string.match(record, '^(%d+) (%d+) (%d+)$')
    bell[3] = previous or '0'
    if epoch or agent == S.agent or redis.call('HEXISTS', S.base .. '@sessions', agent) == 1 then
      local joined = T.into(W.joined, agent)
      joined[#joined + 1] = G.name
      joined[#joined + 1] = (epoch or T.int(bell[1])) .. ' ' .. T.int(bell[2]) .. ' ' .. further(G.cursors[agent], cursor)
      if agent ~= S.agent then
        T.push(S, agent, table.concat({ G.name, bell[3], T.int(bell[1]), T.int(bell[2]) }, ' '))
      end
    end
    G.cursors[agent] = nil
  end
  for agent, cursor in pairs(G.cursors) do
    local member, before = string.match(G.members[agent] or '', '^(%d+ %d+) (%d+)$')
    if member then
      local joined = T.into(W.joined, agent)
      joined[#joined + 1] = G.name
      joined[#joined + 1] = member .. ' ' .. further(cursor, before)
    end
  end
end

-- Ends a session that gave back what it held: its Memberships go with it, and what rang for it.
function T.end_session(S, agent, epoch)
  T.unregister(S, agent, epoch)
  redis.call('DEL', S.base .. '@joined:' .. agent, S.base .. '@inbox:' .. agent)
  T.unmint_later(S, agent, epoch)
end

-- A Group that goes has no members any more: those whose sessions are over have gone before.
function T.forget_members(S, G)
  for _, agent in ipairs(redis.call('HKEYS', S.base .. '@sessions')) do
    redis.call('HDEL', S.base .. '@joined:' .. agent, G.name)
  end
end
