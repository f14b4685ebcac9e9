-- free_slot: Says that a Group does not wait for the slot of a run any more: it is free, or it will not come.
-- keys: as turn
-- args: group lease
-- bound: one reservation
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE
-- events: none
--
-- REPEATED: there was none, or it was over.
T.arity.free_slot = 2

T.ops.free_slot = function(S, group, lease)
  local G = S.groups[group]
  local code = T.shut(G)
  if code then return T.outcome(S, G, code) end
  local at = T.reserved_at(S, G, lease)
  if not at then return T.outcome(S, G, 'REPEATED') end
  table.remove(G.reserved, at)
  G.reserves = true
  T.outcome(S, G, 'OK')
end
