-- hold: Reserves an offered item for the caller, which keeps free what it needs until all of it is there; or lets it go.
-- keys: as turn
-- args: group item keep
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND INVALID_STATE_TRANSITION RESERVED
--   AUTH_FORBIDDEN WORK_OFFER_EXPIRED QUARANTINE PAUSED
-- events: none
--
-- `keep` 1: for as long as a lease of the caller, by Redis' time; again renews it. Of any number of Workers the first holds it,
-- the others are told RESERVED. 0: lets it go; what the caller does not hold stays as it is. It grants nothing: the item is
-- taken as ever, and until then it may be cancelled or offered to others.
T.arity.hold = 3

local function let_go(S, G, it, code)
  if not code and it.rsv and not T.is_held(S, it) then T.open_held(G, it) end
  T.outcome(S, G, code or 'OK')
end

T.ops.hold = function(S, group, id, keep)
  local G, it, code = T.target(S, group, id)
  if not code and (it.st ~= 'offered' or G.state ~= 'active') then code = 'INVALID_STATE_TRANSITION' end
  if keep == '0' then return let_go(S, G, it, code) end
  code = code or (T.is_held(S, it) and 'RESERVED')
  code = code or (not (T.is_asked(it, S.agent) and T.is_able(S, it)) and 'AUTH_FORBIDDEN')
  code = code or (T.is_offer_over(S, it) and 'WORK_OFFER_EXPIRED') or T.barred(S, G, it.cap)
  if code then return T.bar(S, G, code) end
  local over = S.now + S.ttl
  if not T.holder(S, it) then T.show_hold(G, it) end
  T.put(it, 'rsv', S.agent .. ' ' .. T.int(over))
  G.due['h ' .. G.name .. ' ' .. id] = over
  T.outcome(S, G, 'OK', '0 ' .. T.int(over))
end
