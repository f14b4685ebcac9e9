-- adopt: Binds a partition to the server it is on now: the first time, or after the server changed.
-- keys: the partition's @meta
-- args: replid run_id replid2 expected
-- bound: one record
-- flags: allow-oom
-- refusals: REVISION_CONFLICT
-- events: none
--
-- A compare-and-set on the replid the caller saw ('-' for none). A change begins another incarnation, in quarantine (design.md
-- 3.11); a server that goes on and only let go of its last replica has a new replid and none before it: that is no change. The
-- reply: incarnation, replid.
T.calls.adopt = function(keys, a)
  local meta = redis.call('HMGET', keys[1], 'incarnation', 'replid', 'run_id')
  if meta[2] == a[1] then return { meta[1], a[1] } end
  if (meta[2] or '-') ~= a[4] then return T.refuse('REVISION_CONFLICT', 'replid=' .. (meta[2] or '-')) end
  if meta[3] == a[2] and string.find(a[3], '^0*$') then
    redis.call('HSET', keys[1], 'replid', a[1])
    return { meta[1], a[1] }
  end
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  return { T.begin_incarnation(keys[1], now, 'replid', a[1], 'run_id', a[2]), a[1] }
end
