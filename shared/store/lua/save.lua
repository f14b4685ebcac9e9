-- save: Saves progress of an active item; it stays active.
-- keys: as turn
-- args: group item epoch lease number digest state
-- bound: one Checkpoint of at most 1 MiB
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: work.progress_saved
T.arity.save = 7

T.ops.save = function(S, group, id, epoch, lease, number, digest, state)
  local G, it, code = T.target(S, group, id)
  local stored
  code = code or T.stale_lease(S, it, epoch, lease)
  if not code then code, stored = T.checkpoint(S, G, it, number, digest, state) end
  if code then return T.outcome(S, G, code) end
  if stored then return T.outcome(S, G, 'REPEATED') end
  T.outcome(S, G, 'OK', T.int(T.emit(S, G, 'work.progress_saved', id, S.by, { epoch, number, digest, T.int(#state) })))
end
