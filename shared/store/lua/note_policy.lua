-- note_policy: Notes in a partition which version the policy has, so that each reply says it. Idempotent.
-- keys: the partition's @meta
-- args: replid version ring
-- bound: one field; with `ring` 1 the inbox of each live session
-- flags: allow-oom
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED
-- events: none
--
-- The number never falls. Sleepers are rung in one partition, once all have noted it, and look at all of them. The reply:
-- envelope, 1 where the number rose.
T.calls.note_policy = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  if not string.match(a[2], '^%d+$') or #a[2] > 12 or (a[3] ~= '0' and a[3] ~= '1') then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'version=' .. a[2] .. ' ring=' .. a[3])
  end
  local rose = tonumber(redis.call('HGET', keys[1], 'policy') or '0') < tonumber(a[2])
  if rose then redis.call('HSET', keys[1], 'policy', a[2]) end
  if a[3] == '1' then
    for _, agent in ipairs(redis.call('HKEYS', S.base .. '@sessions')) do T.push(S, agent, T.LOOK) end
  end
  return { T.envelope(S), rose and '1' or '0' }
end
-- An entry of an inbox that says only: look.
T.LOOK = 'look'
