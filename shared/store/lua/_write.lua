-- Writes what `_flush.lua` gathered, then the wake tokens and, last of all, the sequences.

local function write_held(S, W)
  for _, stray in ipairs(S.strays) do redis.call('ZREM', stray[1], stray[2]) end
  for agent, changes in pairs(W.held) do
    local add, del = {}, {}
    for member, holds in pairs(changes) do
      if holds then
        add[#add + 1] = '0'
        add[#add + 1] = member
      else
        del[#del + 1] = member
      end
    end
    T.many('ZADD', S.base .. '@held:' .. agent, add)
    T.many('ZREM', S.base .. '@held:' .. agent, del)
  end
end

-- The directory is versioned: a Group that has something takeable stands under the version of its last change, one that
-- was emptied leaves a tombstone; pruned tombstones raise the floor below which a reader gets the whole list. Accounts and
-- classes stand in a list of their own.
local function write_directory(S, W)
  local gone = {}
  for _, dead in pairs(W.dead) do
    if redis.call('ZREM', S.base .. '@dir:' .. dead[1], dead[2]) == 1 then gone[#gone + 1] = dead end
  end
  if next(W.live) == nil and #gone == 0 and next(W.touch) == nil and #W.nodes == 0 then return end
  S.version = S.version + 1
  local version = T.int(S.version)
  T.list_nodes(S, W.nodes, version)
  for cap, names in pairs(W.live) do
    local list = {}
    for _, name in ipairs(names) do
      list[#list + 1] = version
      list[#list + 1] = name
    end
    -- What stood there already has no tombstone.
    if T.many('ZADD', S.base .. '@dir:' .. cap, list) > 0 then T.many('ZREM', S.base .. '@tomb:' .. cap, names) end
  end
  for cap, names in pairs(W.touch) do
    local list = { 'XX' }
    for _, name in ipairs(names) do
      list[#list + 1] = version
      list[#list + 1] = name
    end
    redis.call('ZADD', S.base .. '@dir:' .. cap, unpack(list))
  end
  for _, dead in ipairs(gone) do
    local tombs = S.base .. '@tomb:' .. dead[1]
    redis.call('ZADD', tombs, version, dead[2])
    -- Who is named may be gone for good; a session that did not look for so long is over.
    if string.byte(dead[1]) == 62 then redis.call('PEXPIRE', tombs, T.INBOX_TTL_MS) end
    if redis.call('ZCARD', tombs) > T.TOMBS_MAX then
      local pruned = redis.call('ZPOPMIN', tombs, T.TOMBS_MAX / 2)
      local floor = tonumber(redis.call('HGET', S.base .. '@meta', 'floor') or '0')
      redis.call('HSET', S.base .. '@meta', 'floor', T.int(math.max(floor, tonumber(pruned[#pruned]))))
    end
  end
  redis.call('HSET', S.base .. '@meta', 'version', version)
end
T.TOMBS_MAX = 1024

function T.flush(S, W)
  T.many('ZADD', S.base .. '@due', W.due)
  T.many('ZREM', S.base .. '@due', W.undue)
  write_held(S, W)
  T.many('ZADD', S.base .. '@parked', W.park)
  T.many('ZREM', S.base .. '@parked', W.unpark)
  T.many('ZADD', S.base .. '@blocked', W.block)
  T.many('ZREM', S.base .. '@blocked', W.unblock)
  for cap, list in pairs(W.add) do T.many('ZADD', S.base .. '@take:' .. cap, list) end
  for cap, list in pairs(W.del) do T.many('ZREM', S.base .. '@take:' .. cap, list) end
  T.write_usage(S, W)
  T.write_rates(S)
  T.write_queued(S)
  write_directory(S, W)
  T.many('HSET', S.base .. '@groups', W.groups)
  for agent, list in pairs(W.joined) do T.many('HSET', S.base .. '@joined:' .. agent, list) end
  T.ring(S)
  T.many('HSET', S.base .. '@seqs', W.seqs)
end
