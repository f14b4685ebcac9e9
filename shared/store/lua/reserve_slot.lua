-- reserve_slot: Notes that a Group waits for the slot of a run that is about to be asked for it. It comes before `ask_yield`.
-- keys: as turn
-- args: group capability lease most ttl_ms
-- bound: one reservation; `most` in the Group with it (64 at most), each for a day at most
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE QUARANTINE PAUSED EMPTY RESERVED
--   SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `lease` is that of the run, which may be of another Group and partition. EMPTY: the Group waits for nothing more than it has
-- reservations for. RESERVED: it has `most` already (scheduler.md rule 9). What nobody frees is over by Redis' time.
T.arity.reserve_slot = 5

T.ops.reserve_slot = function(S, group, cap, lease, most, ttl)
  local G = S.groups[group]
  local code = T.shut(G) or (G.state ~= 'active' and 'EMPTY') or T.barred(S, G, cap)
  code = code or (not T.is_token(lease) or not T.is_span(ttl) or not string.find(most, '^%d%d?$')) and 'SCHEMA_VALIDATION_FAILED'
  if code then return T.bar(S, G, code) end
  if T.reserved_at(S, G, lease) then return T.outcome(S, G, 'REPEATED') end
  local pending = #T.reserved(S, G)
  if T.takeable(S, group, cap) <= pending then return T.outcome(S, G, 'EMPTY') end
  if pending >= math.min(tonumber(most), T.RESERVED_MAX) then return T.outcome(S, G, 'RESERVED') end
  G.reserved[pending + 1] = { lease, T.int(S.now + tonumber(ttl)) }
  G.reserves = true
  T.outcome(S, G, 'OK')
end
