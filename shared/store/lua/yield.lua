-- yield: Closes the run of an active item at a Checkpoint (`work.checkpoint`): the lease is released, the item queued.
-- keys: as turn
-- args: group item epoch lease number digest state keep
-- bound: one Checkpoint of at most 1 MiB
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: work.checkpointed work.released work.offer.created
--
-- keep = 1 keeps the ownership under a new start-by deadline; keep = 0 gives the item back to everybody.
T.arity.yield = 8

T.ops.yield = function(S, group, id, epoch, lease, number, digest, state, keep)
  local G, it, code = T.target(S, group, id)
  local kept = it and (keep ~= '1' or it.own == S.agent)
  if kept and it.st ~= 'active' and it.lid == lease and it.oe == epoch and it.ckn == number and it.ckd == digest then
    return T.outcome(S, G, 'REPEATED')
  end
  code = code or T.stale_lease(S, it, epoch, lease)
  code = code or T.checkpoint(S, G, it, number, digest, state)
  if code then return T.outcome(S, G, code) end
  local start_by = S.now + 1000 * tonumber(it.sb or T.START_BY_S)
  local seq = T.emit(S, G, 'work.checkpointed', id, S.by, { epoch, number, digest, T.int(#state), T.int(start_by) })
  if keep == '1' then
    T.disown(S, G, it, S.now)
    T.put(it, 'st', 'queued')
    T.put(it, 'sby', T.int(start_by))
    G.held[S.agent][id] = true
    G.due['s ' .. G.name .. ' ' .. id] = start_by
    T.touch(G, it)
  else
    T.emit(S, G, 'work.released', id, S.by, { epoch, 'yielded' })
    T.give_back(S, G, it, S.now, 'released')
  end
  T.outcome(S, G, 'OK', T.int(seq) .. ' ' .. T.int(start_by))
end
