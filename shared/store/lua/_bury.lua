-- What goes for good with a Group whose time is over, and what is left of it: its Mission's record, as a tombstone.

-- For so long who asks for a Mission that is gone, or submits it again, is told how it ended (protocol R11).
T.TOMBSTONE_MS = 2592000000
-- What one burial counts for in the work of a tick.
T.BURIAL = 8

-- Counts the Groups of an account, of a class, and of the account in it. With the last one of each their service is forgotten:
-- who comes later is new.
function T.tally(S, G, by)
  for _, node in ipairs({ 'a:' .. G.account, unpack(T.above(G)) }) do
    if redis.call('HINCRBY', S.base .. '@tally', node, by) <= 0 then
      redis.call('HDEL', S.base .. '@tally', node)
      redis.call('HDEL', S.base .. '@usage', node)
      redis.call('HDEL', S.base .. '@rates', node)
      redis.call('ZREM', S.base .. '@nodes', node)
    end
  end
end

-- The directory forgets that it was emptied: whoever has not read that yet gets the whole list.
local function leave_directory(S, caps)
  local floor = 0
  for _, cap in ipairs(T.words(caps.list)) do
    local version = redis.call('ZSCORE', S.base .. '@tomb:' .. cap, caps.group)
    if version then
      redis.call('ZREM', S.base .. '@tomb:' .. cap, caps.group)
      floor = math.max(floor, tonumber(version))
    end
  end
  if floor > tonumber(redis.call('HGET', S.base .. '@meta', 'floor') or '0') then
    redis.call('HSET', S.base .. '@meta', 'floor', T.int(floor))
  end
end

local function leave_schedules(S, G)
  for _, name in ipairs(redis.call('HKEYS', S.base .. '@sched')) do
    local group, schedule = string.match(name, '^(%S+) (%S+)$')
    if group == G.name then T.drop_schedule(S, group, schedule) end
  end
end

-- Takes a Group out of the partition, all but its Mission's record.
function T.remove_group(S, G)
  local key = S.base .. G.name
  leave_directory(S, { group = G.name, list = redis.call('HGET', key .. ':mission', 'caps') })
  T.forget_members(S, G)
  if G.grown then leave_schedules(S, G) end
  if S.flags > 0 and redis.call('HDEL', S.base .. '@pause', 'g:' .. G.name) == 1 then
    redis.call('HSET', S.base .. '@meta', 'paused', T.int(redis.call('HLEN', S.base .. '@pause')))
  end
  redis.call('UNLINK', key .. ':log', key .. ':items', key .. ':jobs', key .. ':wait', key .. ':ended', key .. ':snapshot')
  redis.call('HDEL', S.base .. '@groups', G.name)
  redis.call('HDEL', S.base .. '@seqs', G.name)
  redis.call('HDEL', S.base .. '@usage', 'g:' .. G.name)
  redis.call('HDEL', S.base .. '@rates', 'g:' .. G.name)
  T.tally(S, G, -1)
end

-- An ended Mission's time is over: the Group goes, and a tombstone tells for a while what became of it.
function T.bury(S, G)
  local mission = S.base .. G.name .. ':mission'
  T.remove_group(S, G)
  redis.call('HSET', mission, 'expired', '1', 'seq', T.int(G.seq))
  redis.call('HDEL', mission, 'objective', 'caps', 'chunk', 'keep', 'live', 'snap', 'first', 'slots')
  redis.call('PEXPIRE', mission, T.int(T.TOMBSTONE_MS))
end

-- How a Mission stands whose Group is not listed: "gone" (a tombstone), "none", or "lost": a record that should have a Group.
function T.remains(S, group)
  local mission = redis.call('HMGET', S.base .. group .. ':mission', 'state', 'expired')
  return mission[2] and 'gone' or mission[1] and 'lost' or 'none'
end

-- Removes a Group that was never sealed as if it had never been.
function T.unload(S, G)
  T.remove_group(S, G)
  redis.call('UNLINK', S.base .. G.name .. ':mission')
end

-- An entry of a Group that is not there: of one that is gone it goes too; else the Group is damaged, and a person looks.
function T.adrift(S, kind, name, id, member)
  if T.remains(S, name) == 'lost' then S.aside[#S.aside + 1] = member
  elseif kind == 'f' then S.over[#S.over + 1] = { name, id }
  else S.strays[#S.strays + 1] = { S.base .. '@due', member } end
end
