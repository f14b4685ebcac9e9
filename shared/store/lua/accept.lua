-- accept: Accepts one item that is offered to the caller; it is started by `start`, before its start-by deadline.
-- keys: as turn
-- args: group item
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION WORK_ALREADY_OWNED AUTH_FORBIDDEN
--   WORK_OFFER_EXPIRED RESERVED QUARANTINE PAUSED BUDGET_EXCEEDED
-- events: work.offer.accepted
--
-- Of any number of Workers the first wins; the others are told WORK_ALREADY_OWNED. AUTH_FORBIDDEN: it is not asked, or its
-- session does no such work.
T.arity.accept = 2

T.ops.accept = function(S, group, id)
  local G, it, code = T.offered_to_caller(S, group, id)
  code = code or (not T.is_able(S, it) and 'AUTH_FORBIDDEN') or (T.is_held(S, it) and 'RESERVED')
  code = code or T.barred(S, G, it.cap)
  if code then return T.bar(S, G, code) end
  local everybody = not it.to
  local seq = T.accept(S, G, it)
  if everybody then G.dir[T.shelf(it.cap)] = 'check' end
  G.due['s ' .. G.name .. ' ' .. id] = tonumber(it.sby)
  T.outcome(S, G, 'OK', nil, { T.granted(S, G, it, seq) })
end
