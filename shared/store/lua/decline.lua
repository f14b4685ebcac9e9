-- decline: Says that the caller does not do an item that was offered to it by name.
-- keys: as turn
-- args: group item reason
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION WORK_ALREADY_OWNED AUTH_FORBIDDEN
--   WORK_OFFER_EXPIRED SCHEMA_VALIDATION_FAILED
-- events: work.offer.declined work.offer.created
--
-- `reason` is one of the protocol's (R25). Where nobody is left who is asked, a preferred offer goes to everybody; a named one
-- waits for a person. AUTH_FORBIDDEN: the caller is not asked by name, or has declined before.
T.arity.decline = 3
local REASONS = { capacity = true, deadline = true, capability = true, authorization = true, dependency = true, budget = true,
  other = true }

T.ops.decline = function(S, group, id, reason)
  local G, it, code = T.offered_to_caller(S, group, id)
  code = code or (not it.to and 'AUTH_FORBIDDEN') or (not REASONS[reason] and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local left, expires = {}, it.ox
  for _, agent in ipairs(T.candidates(it.to)) do
    if agent ~= S.agent then left[#left + 1] = agent end
  end
  local mode = string.match(it.to, '^%a+')
  local seq = T.emit(S, G, 'work.offer.declined', id, S.by, { S.agent, reason })
  T.unlist(G, it, S.agent)
  T.put(it, 'to', mode .. ':' .. table.concat(left, ','))
  if #left == 0 and mode == 'preferred' then
    T.retract(G, it)
    T.move_on(S, G, it, 'declined')
  elseif #left == 0 and expires then
    G.due['o ' .. G.name .. ' ' .. id] = false
  end
  T.outcome(S, G, 'OK', T.int(seq))
end
