-- fail_item: Fails a WorkItem by command of its Mission's owner or Coordinator, with Evidence; it is not tried again. Idempotent.
-- keys: the partition's @meta
-- args: replid group item actor digest evidence
-- bound: one Evidence of at most 16 KiB
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.failed work.retries_ended mission.terminated
--
-- A repetition is known by the digest of its Evidence. The reply: envelope, "done" or "repeated".
T.calls.fail_item = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  if #a[6] > T.EVIDENCE_MAX then return T.refuse('SCHEMA_VALIDATION_FAILED', 'evidence=' .. #a[6] .. ' bytes') end
  if it.st == 'failed' and not it.nb and it.dg == a[5] then return { T.envelope(S), 'repeated' } end
  if G.state ~= 'active' or T.has_ended(it) then return T.not_in(G, it) end
  local before = it.st
  local owner = T.withdraw(S, G, it)
  T.put(it, 'st', 'failed')
  T.put(it, 'dg', a[5])
  T.put_body(S, G, it, 'fl', a[6])
  if before == 'failed' then
    T.emit(S, G, 'work.retries_ended', it.id, a[4], { 'failed' })
  else
    local seq = T.emit(S, G, 'work.failed', it.id, a[4], { it.oe or '0', a[5], '0' }, a[6])
    if owner then T.concern(S, G, owner, seq) end
  end
  G.count.failed = G.count.failed + 1
  T.ended_item(S, G, it)
  T.conclude(S, G)
  return T.answered(S, G, 'done')
end
