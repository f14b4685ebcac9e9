-- Memberships of Agents: in one hash per Agent and partition, `@joined:<agent>`, a field a Group: "epoch last cursor". `epoch` is
-- the Membership Epoch, `last` the last Event that concerned the Agent, `cursor` how far it has processed the log. Those whose
-- Membership was ended stand in `<group>:ended`, with the sequence of that Event, until they are let in again.

-- How many may stand there.
T.BARS_MAX = 1024

-- When an Agent's Membership in a Group was ended, for one that must not come back; nil for all others.
function T.kept_out(S, G, agent)
  if not G.bars then return end
  local ended, wrong = T.try('HGET', G.key .. ':ended', agent)
  if wrong then G.bad = 'LOG_FOREIGN' end
  return ended or nil
end

-- Whether what concerns an Agent that is no member makes it one: it has a session, and is not kept out.
local function may_join(S, G, agent)
  if agent == S.agent or agent == G.admits then return true end
  return redis.call('HEXISTS', S.base .. '@sessions', agent) == 1 and not T.kept_out(S, G, agent)
end

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
    if epoch or may_join(S, G, agent) then
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

-- Takes an item from its owner, whose session or Membership is over.
function T.part(S, G, it, by, reason)
  local agent, ended = it.own, it.st == 'active' and math.min(S.now, tonumber(it.lex)) or S.now
  local seq = T.emit(S, G, 'work.released', it.id, by, { it.oe, reason })
  if it.st == 'blocked' then T.loosen(S, G, it) else T.give_back(S, G, it, ended, 'released') end
  T.concern(S, G, agent, seq)
end

-- What an Agent still holds of a Group goes to others, as many items as this call may; the rest is a pump (m).
function T.expel(S, G, agent)
  local list, most, member = S.base .. '@held:' .. agent, S.release_left, 'm ' .. G.name .. ' ' .. agent
  local held = redis.call('ZRANGEBYLEX', list, '[' .. G.name .. ' ', '(' .. G.name .. '!', 'LIMIT', 0, most)
  for _, name in ipairs(held) do
    local it = T.named(S, G, string.sub(name, #G.name + 2))
    if not it then return 0 end
    if it.own == agent then T.part(S, G, it, agent .. '@' .. it.ses, 'membership')
    else S.strays[#S.strays + 1] = { list, name } end
  end
  S.release_left = S.release_left - #held
  G.due[member] = #held == most and S.now or false
  return #held
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
