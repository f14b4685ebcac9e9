-- adopt: Binds a partition to the server it is on now: the first time, or after the server changed.
-- keys: the partition's @meta
-- args: replid run_id expected
-- bound: one record
-- flags: allow-oom
-- refusals: REVISION_CONFLICT
-- events: none
--
-- A compare-and-set on the replid the caller saw ('-' for none). A change raises the incarnation: tokens issued before it
-- are lower than all issued after it (design.md 3.11). The reply: incarnation, replid.
T.calls.adopt = function(keys, a)
  local meta = redis.call('HMGET', keys[1], 'incarnation', 'replid')
  if meta[2] == a[1] then return { meta[1], a[1] } end
  if (meta[2] or '-') ~= a[3] then return T.refuse('REVISION_CONFLICT', 'replid=' .. (meta[2] or '-')) end
  local clock = redis.call('TIME')
  local now = tonumber(clock[1]) * 1000
  local incarnation = T.int(math.max(tonumber(meta[1] or '0') + 1, now))
  local adopted = T.int(now + math.floor(tonumber(clock[2]) / 1000))
  redis.call('HSET', keys[1], 'incarnation', incarnation, 'replid', a[1], 'run_id', a[2], 'adopted', adopted)
  return { incarnation, a[1] }
end
