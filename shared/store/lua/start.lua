-- start: Starts an item its Worker accepted before, with a new Execution Lease.
-- keys: as turn
-- args: group item epoch limits
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   INVALID_STATE_TRANSITION QUARANTINE PAUSED SCHEMA_VALIDATION_FAILED QUOTA BUDGET_EXCEEDED
-- events: work.started
--
-- Of the limits (`_limits.lua`) a start brings those of slots: QUOTA, and it stays as it is. What it was taken for counted
-- against the others.
T.arity.start = 4

T.ops.start = function(S, group, id, epoch, limited)
  local G, it, code = T.target(S, group, id)
  local limits = T.limits(limited)
  code = code or T.stale_owner(S, it, epoch)
  code = code or (it.st ~= 'queued' and 'INVALID_STATE_TRANSITION')
  code = code or (T.start_by(S, it) <= S.now and 'WORK_STALE_OWNERSHIP') or T.barred(S, G, it.cap)
  code = code or (limits == false and 'SCHEMA_VALIDATION_FAILED') or T.limited(S, G, limits, tonumber(it.w or '1'))
  if code then return T.bar(S, G, code) end
  G.due['s ' .. G.name .. ' ' .. id] = false
  local seq = T.start(S, G, it)
  T.touch(G, it)
  T.outcome(S, G, 'OK', nil, { T.granted(S, G, it, seq) })
end
