-- start: Starts an item its Worker accepted before, with a new Execution Lease.
-- keys: as turn
-- args: group item epoch
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   INVALID_STATE_TRANSITION QUARANTINE PAUSED
-- events: work.started
T.arity.start = 3

-- Starts an item its owner may start: the Execution Lease is bound to Agent, session, item and Ownership Epoch.
function T.start(S, G, it)
  S.leases = S.leases + 1
  T.put(it, 'lid', S.lease_key .. T.int(S.leases))
  T.put(it, 'ln', it.ln and T.int(it.ln + 1) or '1')
  T.put(it, 'lex', S.lease_end)
  T.put(it, 'st', 'active')
  T.begin_run(S, G, it)
  G.due['l ' .. G.name .. ' ' .. it.id] = S.now + S.ttl
  return T.emit(S, G, 'work.started', it.id, S.by, table.concat({ it.oe, it.lid, it.lex, it.ln }, ' '))
end

T.ops.start = function(S, group, id, epoch)
  local G, it, code = T.target(S, group, id)
  code = code or T.stale_owner(S, it, epoch)
  code = code or (it.st ~= 'queued' and 'INVALID_STATE_TRANSITION')
  code = code or (T.start_by(S, it) <= S.now and 'WORK_STALE_OWNERSHIP') or T.barred(S, G, it.cap)
  if code then return T.bar(S, G, code) end
  G.due['s ' .. G.name .. ' ' .. id] = false
  local seq = T.start(S, G, it)
  T.touch(G, it)
  T.outcome(S, G, 'OK', nil, { T.granted(S, G, it, seq) })
end
