-- reincarnate: Begins another incarnation of a partition because a person says so, as after a backup was restored.
-- keys: the partition's @meta
-- args: replid actor action reason
-- bound: one record; the newest 16 incarnations that people began are listed
-- flags: allow-oom
-- refusals: STORE_CHANGED
-- events: none
--
-- Tokens from before it are lower than all after it, it begins in quarantine, and Session Epochs go on above the present time in
-- milliseconds, so that none comes twice. A partition that was in doubt (`distrust`) is trusted again. Idempotent by action.
-- The reply: envelope, incarnation.
local KEPT = 16
-- Of leases that were granted after a backup it says nothing: where it knows of none at all, the default TTL is waited for.
T.DEFAULT_TTL_MS = 10000

T.calls.reincarnate = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local meta = redis.call('HMGET', keys[1], 'history', 'mint', 'ttl')
  local lines = { '' }
  for line in string.gmatch(meta[1] or '', '[^\n]+') do
    local incarnation, action = string.match(line, '^(%d+) %d+ %S+ (%S+) ')
    if action == a[3] then return { T.envelope(S), incarnation } end
    if #lines < KEPT then lines[#lines + 1] = line end
  end
  if not meta[3] then T.note_ttl(S, T.int(T.DEFAULT_TTL_MS)) end
  local mint = T.int(math.max(S.now, tonumber(meta[2] or '0')))
  S.incarnation, S.version = T.begin_incarnation(keys[1], S.now, 'mint', mint), S.version + 1
  lines[1] = table.concat({ S.incarnation, S.stamp, a[2], a[3], a[4] }, ' ')
  redis.call('HDEL', keys[1], 'doubt')
  redis.call('HSET', keys[1], 'history', table.concat(lines, '\n'), 'version', T.int(S.version), 'floor', T.int(S.version))
  return { T.finish(S), S.incarnation }
end
