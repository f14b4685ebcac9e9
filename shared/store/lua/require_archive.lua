-- require_archive: Sets whether an ended Mission stays, past its time, until it is archived. Idempotent.
-- keys: the partition's @meta
-- args: replid required
-- bound: one field
-- flags: allow-oom
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `required` is 1 or 0. Jobs of a standing Mission go by their own time all the same. The reply: envelope, 1 where something
-- changed.
T.calls.require_archive = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local changed
  if a[2] == '1' then changed = redis.call('HSET', keys[1], 'archive', '1')
  elseif a[2] == '0' then changed = redis.call('HDEL', keys[1], 'archive')
  else return T.refuse('SCHEMA_VALIDATION_FAILED', 'required=' .. a[2] .. ' (1 or 0)') end
  return { T.envelope(S), T.int(changed) }
end
