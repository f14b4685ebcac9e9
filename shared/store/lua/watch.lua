-- watch: Registers a client's inbox with a Mission, so that its end rings it.
-- keys: the partition's @meta
-- args: replid group client ttl_ms
-- bound: 64 clients a Mission
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND BACKPRESSURE
-- events: none
--
-- The reply: envelope, the Mission's state. A client looks at the state before it waits, and again each 5 s.
T.calls.watch = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local state = redis.call('HGET', S.base .. a[2] .. ':mission', 'state')
  if not state then return T.refuse('GROUP_NOT_FOUND', 'group=' .. a[2]) end
  if state == 'active' then
    local key = S.base .. a[2] .. ':wait'
    if redis.call('SCARD', key) >= 64 and redis.call('SISMEMBER', key, a[3]) == 0 then
      return T.refuse('BACKPRESSURE', 'group=' .. a[2] .. ' is watched by 64 clients already')
    end
    redis.call('SADD', key, a[3])
    redis.call('PEXPIRE', key, a[4])
  end
  return { T.envelope(S), state }
end
