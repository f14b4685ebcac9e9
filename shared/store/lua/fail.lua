-- fail: Ends a run of an active item as failed, with its Evidence in the Event; tried again where the contract grants it.
-- keys: as turn
-- args: group item epoch lease digest evidence retryable
-- bound: one Evidence of at most 16 KiB
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.failed work.offer.created mission.terminated
T.arity.fail = 7

T.ops.fail = function(S, group, id, epoch, lease, digest, evidence, retryable)
  local G, it, code = T.target(S, group, id)
  if T.ended_before(it, 'failed', lease, digest) then return T.outcome(S, G, 'REPEATED') end
  code = code or T.stale_lease(S, it, epoch, lease)
  -- A longer Event could not be read again (codec.EVENT_MAX), and would end its Group.
  code = code or (#evidence > T.EVIDENCE_MAX and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local at = retryable == '1' and T.retry_at(S, it)
  local seq = T.emit(S, G, 'work.failed', id, S.by, { epoch, digest, at and T.int(at) or '0' }, evidence)
  T.disown(S, G, it, S.now)
  T.put(it, 'st', 'failed')
  T.put(it, 'dg', digest)
  T.put_body(S, G, it, 'fl', evidence)
  T.touch(G, it)
  local count = T.counts(S, G)
  if at then
    T.put(it, 'own', nil)
    T.put(it, 'fc', T.int(tonumber(it.fc or '0') + 1))
    T.put(it, 'nb', T.int(at))
    T.offer_when_due(S, G, it, 'retry')
  else
    count.failed = count.failed + 1
    count.live = count.live - 1
    T.ended_item(S, G, it)
  end
  T.outcome(S, G, 'OK', T.int(seq) .. ' ' .. (at and T.int(at) or '0'))
end
