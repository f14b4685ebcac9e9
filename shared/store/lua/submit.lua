-- submit: Submits the result of an active item; the standing instruction accepts it and releases its dependents.
-- keys: as turn
-- args: group item epoch lease digest result
-- bound: one result of at most 1 MiB; 64 dependents a call, the rest by ticks
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.submitted work.result.accepted work.offer.created work.parked mission.submitted_for_approval
--   mission.approved mission.terminated
T.arity.submit = 6

T.ops.submit = function(S, group, id, epoch, lease, digest, result)
  local G, it, code = T.target(S, group, id)
  if T.ended_before(it, 'verified', lease, digest) then return T.outcome(S, G, 'REPEATED') end
  code = code or T.stale_lease(S, it, epoch, lease)
  -- What is longer could not be read again: its reader refuses it.
  code = code or (#result > T.BYTES_MAX and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local seq = T.emit(S, G, 'work.submitted', id, S.by, epoch .. ' ' .. digest .. ' ' .. T.int(#result))
  T.emit(S, G, 'work.result.accepted', id, 'policy', epoch .. ' evidence')
  T.disown(S, G, it, S.now)
  T.put(it, 'st', 'verified')
  T.put(it, 'dg', digest)
  T.put_body(S, G, it, 'rs', result)
  local count = T.counts(S, G)
  count.verified = count.verified + 1
  T.touch(G, it)
  T.release(S, G, it)
  T.ended_item(S, G, it)
  T.outcome(S, G, 'OK', T.int(seq))
end
