-- save: Saves progress of an active item; it stays active.
-- keys: as turn
-- args: group item epoch lease number digest state
-- bound: one Checkpoint of at most 1 MiB
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: work.progress_saved
T.arity.save = 7

-- Plans a Checkpoint beside the one before it, which is kept; the code of a refusal, or nil. The same number with the same
-- digest was stored before.
function T.checkpoint(S, G, it, number, digest, state)
  local last = tonumber(it.ckn or '0')
  if tonumber(number) == last and it.ckd == digest then return nil, true end
  if tonumber(number) ~= last + 1 then return 'REVISION_CONFLICT' end
  if #state > T.BYTES_MAX then return 'SCHEMA_VALIDATION_FAILED' end
  T.put(it, 'ckn', number)
  T.put(it, 'ckp', it.ckd)
  T.put(it, 'ckd', digest)
  T.put(it, 'lp', nil)
  T.put_body(S, G, it, T.checkpoint_name(number), state)
  return nil, false
end

T.ops.save = function(S, group, id, epoch, lease, number, digest, state)
  local G, it, code = T.target(S, group, id)
  local stored
  code = code or T.stale_lease(S, it, epoch, lease)
  if not code then code, stored = T.checkpoint(S, G, it, number, digest, state) end
  if code then return T.outcome(S, G, code) end
  if stored then return T.outcome(S, G, 'REPEATED') end
  T.outcome(S, G, 'OK', T.int(T.emit(S, G, 'work.progress_saved', id, S.by, { epoch, number, digest, T.int(#state) })))
end
