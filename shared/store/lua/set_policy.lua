-- set_policy: Makes a text the policy, one version higher than the one its author saw. Idempotent by its digest.
-- keys: the Organization's @policy
-- args: expected digest actor note text
-- bound: 256 KiB of text, 100 changes kept
-- flags: none
-- refusals: REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: none
--
-- A compare-and-set on the version, 0 where there is none. The text that stands already is not set again, whatever is
-- expected. `actor` and `note` are tokens, '-' for no note. Who changed what when stands under the version's number. What each
-- partition knows of it is noted after this (note_policy). The reply: the version that stands, when it was set.
local TEXT_MAX, CHANGES_MAX = 262144, 100

T.calls.set_policy = function(keys, a)
  if not string.match(a[1], '^%d+$') or #a[1] > 12 or #a[5] > TEXT_MAX then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'expected=' .. a[1] .. ' text=' .. #a[5] .. ' bytes (' .. TEXT_MAX
      .. ' at most)')
  end
  local stored = redis.call('HMGET', keys[1], 'version', 'digest', 'at')
  local version = tonumber(stored[1] or '0')
  if stored[2] == a[2] then return { stored[1], stored[3] } end
  if version ~= tonumber(a[1]) then
    return T.refuse('REVISION_CONFLICT', 'version=' .. T.int(version) .. ' expected=' .. a[1])
  end
  local clock, now, next_version = redis.call('TIME'), nil, T.int(version + 1)
  now = T.int(tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
  redis.call('HSET', keys[1], 'version', next_version, 'digest', a[2], 'at', now, 'text', a[5],
    next_version, table.concat({ now, a[3], a[2], a[4] }, ' '))
  redis.call('HDEL', keys[1], T.int(version + 1 - CHANGES_MAX))
  return { next_version, now }
end
