-- watch: Registers a client's inbox with a Mission or a WorkItem, so that its end rings it.
-- keys: the partition's @meta
-- args: replid group item client ttl_ms
-- bound: 64 clients a Mission, 64 an item
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND BACKPRESSURE
-- events: none
--
-- `item` is '-' for the Mission. The inbox gets "group item". The reply: envelope, "ended" where nothing is to be waited for
-- (it has ended, or is not there), else "waits". A client watches again now and then: a ring can be lost.
local ENDED = { verified = true, failed = true, cancelled = true, gone = true }

local function register(key, client, ttl)
  if redis.call('SCARD', key) >= 64 and redis.call('SISMEMBER', key, client) == 0 then
    return T.refuse('BACKPRESSURE', 'key=' .. key .. ' is watched by 64 clients already')
  end
  redis.call('SADD', key, client)
  redis.call('PEXPIRE', key, ttl)
end

T.calls.watch = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local key = S.base .. a[2]
  local state = redis.call('HGET', key .. ':mission', 'state')
  if not state or state == 'loading' then return T.refuse('GROUP_NOT_FOUND', 'group=' .. a[2]) end
  if a[3] == '-' then
    refused = state == 'active' and register(key .. ':wait', a[4], a[5])
    return refused or { T.envelope(S), state == 'active' and 'waits' or 'ended' }
  end
  local it = redis.call('HMGET', key .. ':i:' .. a[3], 'st', 'nb')
  state = it[1] or 'gone'
  if ENDED[state] and not (state == 'failed' and it[2]) then return { T.envelope(S), 'ended' } end
  refused = register(key .. ':w:' .. a[3], a[4], a[5])
  if refused then return refused end
  redis.call('HSET', key .. ':i:' .. a[3], 'wt', '1')
  return { T.envelope(S), 'waits' }
end
