-- block: Closes the run of an active item that cannot go on before somebody decided something: it is blocked, its slot free.
-- keys: as turn
-- args: group item epoch lease number digest state reason needs ttl_ms
-- bound: one Checkpoint of at most 1 MiB, 16 KiB of needs; a blocked lease of 1 s to 30 days
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION REVISION_CONFLICT SCHEMA_VALIDATION_FAILED
-- events: work.blocked
--
-- The owner keeps the item under a blocked lease (WRK-017). `state` may be empty where the Checkpoint of this number and
-- digest is stored already; `reason` is a token. The outcome: sequence, when the blocked lease ends, the Checkpoint's size.
T.arity.block = 10

local function is_wrong(reason, needs, ttl)
  return not T.is_token(reason) or #needs > T.EVIDENCE_MAX
    or not string.find(ttl, '^%d+$') or tonumber(ttl) < T.BLOCKED_MS_MIN or tonumber(ttl) > T.BLOCKED_MS_MAX
end

T.ops.block = function(S, group, id, epoch, lease, number, digest, state, reason, needs, ttl)
  local G, it, code = T.target(S, group, id)
  local stored = it and it.ckn == number and it.ckd == digest
  if stored and it.st == 'blocked' and it.own == S.agent and it.oe == epoch and it.lid == lease then
    return T.outcome(S, G, 'REPEATED')
  end
  code = code or T.stale_lease(S, it, epoch, lease)
  code = code or (is_wrong(reason, needs, ttl) and 'SCHEMA_VALIDATION_FAILED')
  code = code or (state == '' and not stored and 'REVISION_CONFLICT')
  code = code or T.checkpoint(S, G, it, number, digest, state)
  if code then return T.outcome(S, G, code) end
  local expiry, size = T.int(S.now + tonumber(ttl)), T.int(T.body_size(it, T.checkpoint_name(number)))
  local seq = T.emit(S, G, 'work.blocked', id, S.by, { epoch, number, digest, size, expiry, reason }, needs)
  T.block(S, G, it, tonumber(expiry), reason, needs)
  T.touch(G, it)
  T.outcome(S, G, 'OK', table.concat({ T.int(seq), expiry, size }, ' '))
end
