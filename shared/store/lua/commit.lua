-- commit: Records the result of an effect that an active item began; the first one stands.
-- keys: as turn
-- args: group item epoch lease effect result
-- bound: one result of at most 64 KiB
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: none
--
-- REPEATED: just this result is recorded. STORED: another one is, which the reply carries. REVISION_CONFLICT: it was never begun.
T.arity.commit = 6

T.ops.commit = function(S, group, id, epoch, lease, name, result)
  local G, it, code = T.target(S, group, id)
  code = code or T.stale_lease(S, it, epoch, lease)
  code = code or (#result > T.EFFECT_BYTES_MAX and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local stands = T.effect_of(S, G, it, name)
  code = G.bad or (not stands and 'REVISION_CONFLICT')
  if code then return T.outcome(S, G, code) end
  if stands == '+' .. result then return T.outcome(S, G, 'REPEATED') end
  if stands ~= '-' then return T.stored_effect(S, G, it, name) end
  T.put_effect(it, name, '+' .. result)
  T.outcome(S, G, 'OK')
end
