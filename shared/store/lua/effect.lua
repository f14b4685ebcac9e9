-- effect: Begins an effect of an active item, or says what came of it: an item does each at most once.
-- keys: as turn
-- args: group item epoch lease effect
-- bound: 256 effects an item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION QUOTA_EXCEEDED SCHEMA_VALIDATION_FAILED
-- events: none
--
-- OK: it was never begun. REPEATED: it was begun and nothing is recorded, so that nobody here knows whether it was done. STORED:
-- its result, which the reply carries. `effect` is the name, with `/` and the Ownership Epoch where each ownership does it anew.
T.arity.effect = 5

T.ops.effect = function(S, group, id, epoch, lease, name)
  local G, it, code = T.target(S, group, id)
  code = code or T.stale_lease(S, it, epoch, lease)
  code = code or (not T.is_effect(name) and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local stands = T.effect_of(S, G, it, name)
  if G.bad then return T.outcome(S, G, G.bad) end
  if stands == '-' then return T.outcome(S, G, 'REPEATED') end
  if stands then return T.stored_effect(S, G, it, name) end
  local number = tonumber(it.ef or '0') + 1
  if number > T.EFFECTS_MAX then return T.outcome(S, G, 'QUOTA_EXCEEDED') end
  T.put(it, 'ef', T.int(number))
  T.put_effect(it, name, '-')
  T.outcome(S, G, 'OK')
end
