-- drop_item: Fails a WorkItem of a halted Group that is not what the store wrote, with Evidence. Idempotent.
-- keys: the partition's @meta
-- args: replid group item capability digest evidence
-- bound: one Evidence of at most 16 KiB
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: none
--
-- What is left of it goes: its inputs, Checkpoints, effects and dependents' list with it. Its state is told by the Snapshot
-- that the repair of its Group begins with. The reply: envelope, "done" or "repeated".
T.calls.drop_item = function(keys, a)
  local S, refused, G = T.at_halted(keys, a)
  if refused then return refused end
  local id = a[3]
  if #a[6] > T.EVIDENCE_MAX then return T.refuse('SCHEMA_VALIDATION_FAILED', 'evidence=' .. #a[6] .. ' bytes') end
  local it = T.inspected(S, G, id)
  if it and it.st == 'failed' and it.dg == a[5] then return { T.envelope(S), 'repeated' } end
  if it then return T.not_in(G, it) end
  local key = G.key
  redis.call('DEL', key .. ':i:' .. id)
  for _, body in ipairs({ 'in', 'ck0', 'ck1', 'rs', 'nd', 'rv', 'ef', 'out' }) do
    redis.call('DEL', key .. ':' .. body .. ':' .. id)
  end
  redis.call('HSET', key .. ':i:' .. id, 'st', 'failed', 'cap', a[4], 'dg', a[5], 'flx', T.int(#a[6]))
  redis.call('SET', key .. ':fl:' .. id, a[6])
  return { T.envelope(S), 'done' }
end
