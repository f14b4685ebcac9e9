-- open_store: Creates the store's record, or reads it: format version, number of partitions, id.
-- keys: the Organization's @store
-- args: version partitions id
-- bound: one record
-- flags: none
-- refusals: SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `partitions` 0 asks for whatever the store has (16 where it is new). P is fixed when the store is created, and so is the id,
-- which the one who creates it has made up: a store that was emptied and made anew is another one.
T.calls.open_store = function(keys, a)
  local stored = redis.call('HMGET', keys[1], 'version', 'partitions', 'id')
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
  if not stored[3] then redis.call('HSET', keys[1], 'id', a[3]) end
  return { stored[1], stored[2], stored[3] or a[3] }
end
