-- archived: Records that an ended Mission stands whole in an archive. Idempotent by the digest of that.
-- keys: the partition's @meta
-- args: replid group seq digest actor
-- bound: one Event
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION REVISION_CONFLICT
--   SCHEMA_VALIDATION_FAILED
-- events: group.archived
--
-- `seq` is the last sequence that the archive has: it must be the Group's, and nothing of the Mission may be left to withdraw.
-- From here on the Mission may go once its time is over, where an archive is required. The reply: envelope, "done" or
-- "repeated".
T.calls.archived = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  if not string.match(a[4], '^%x+$') or #a[4] ~= 64 then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'digest=' .. string.sub(a[4], 1, 80) .. ' is no SHA-256')
  end
  local mission = redis.call('HMGET', S.base .. G.name .. ':mission', 'archive', 'ended')
  if mission[1] == a[4] then return { T.envelope(S), 'repeated' } end
  local expiry = 'z ' .. G.name .. ' 0'
  if not redis.call('ZSCORE', S.base .. '@due', expiry) then return T.not_in(G) end
  if a[3] ~= T.int(G.seq) then
    return T.refuse('REVISION_CONFLICT', 'group=' .. a[2] .. ' seq=' .. a[3] .. ' current=' .. T.int(G.seq))
  end
  T.emit(S, G, 'group.archived', '', a[5], { a[4] })
  G.mission, G.ids = { 'archive', a[4] }, {}
  G.due[expiry] = math.max(S.now, tonumber(mission[2]) + G.count.keep)
  return T.answered(S, G, 'done')
end
