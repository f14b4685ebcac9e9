-- recount: Puts right how many items of an account have not ended in a partition. Idempotent by what it was found to be.
-- keys: the partition's @meta
-- args: replid account found counted
-- bound: one field
-- flags: allow-oom
-- refusals: STORE_CHANGED REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `counted` is by the counters of the account's Missions, read with `found` at one instant. What has changed since is refused:
-- count again. The reply: envelope.
T.calls.recount = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  if not string.match(a[4], '^%d+$') or #a[4] > 12 then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'account=' .. a[2] .. ' counted=' .. a[4])
  end
  local key, node = S.base .. '@tally', 'q:' .. a[2]
  local found = redis.call('HGET', key, node) or '0'
  if found ~= a[3] and found ~= a[4] then
    return T.refuse('REVISION_CONFLICT', 'account=' .. a[2] .. ' unfinished=' .. found .. ' found=' .. a[3])
  end
  if tonumber(a[4]) == 0 then redis.call('HDEL', key, node) else redis.call('HSET', key, node, a[4]) end
  return { T.envelope(S) }
end
