-- ask_yield: Records that an active item is asked to give its slot up at its next safe point; nothing is cut.
-- keys: as turn
-- args: group item epoch lease overdue_ms reason
-- bound: one item; once a lease
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.preemption.requested
--
-- The request stands in the item, `ya`, until this run ends in whatever way: after a restart of its Worker it is carried out
-- (see install_session). Where no safe point is reached within `overdue_ms` a tick says so, once. `reason` is a token.
T.arity.ask_yield = 6

T.ops.ask_yield = function(S, group, id, epoch, lease, overdue, reason)
  local G, it, code = T.target(S, group, id)
  code = code or T.stale_lease(S, it, epoch, lease)
  code = code or (not T.is_token(reason) or not T.is_span(overdue)) and 'SCHEMA_VALIDATION_FAILED'
  if code then return T.outcome(S, G, code) end
  if it.ya then return T.outcome(S, G, 'REPEATED') end
  local at = S.now + tonumber(overdue)
  T.put(it, 'ya', T.int(at))
  G.due['v ' .. G.name .. ' ' .. id] = at
  local seq = T.emit(S, G, 'work.preemption.requested', id, S.by, { epoch, lease, reason })
  T.outcome(S, G, 'OK', T.int(seq) .. ' ' .. T.int(at))
end
