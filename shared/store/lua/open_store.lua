-- open_store: Creates the store's record, or reads it: format version, number of partitions.
-- keys: the Organization's @store
-- args: version partitions
-- bound: one record
-- flags: none
-- refusals: SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `partitions` 0 asks for whatever the store has (16 where it is new). P is fixed when the store is created.
T.calls.open_store = function(keys, a)
  local stored = redis.call('HMGET', keys[1], 'version', 'partitions')
  if not stored[1] then
    stored = { a[1], a[2] == '0' and '16' or a[2] }
    redis.call('HSET', keys[1], 'version', stored[1], 'partitions', stored[2])
  end
  if stored[1] ~= a[1] then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'format=' .. stored[1] .. ' program=' .. a[1])
  end
  if a[2] ~= '0' and stored[2] ~= a[2] then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'partitions=' .. stored[2] .. ' asked=' .. a[2])
  end
  return { stored[1], stored[2] }
end
