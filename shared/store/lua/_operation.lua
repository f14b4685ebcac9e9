-- What the operations of a turn share: what they name, what came of them, and what two of them do alike.

-- The Group and item an operation names, or the code why it cannot be looked at.
function T.target(S, group, id)
  local G = S.groups[group]
  local code = T.shut(G)
  if code then return G, nil, code end
  local it = T.item(S, G, id)
  if not it then return G, nil, G.bad or 'INVALID_COMMAND' end
  return G, it, G.state == 'cancelled' and 'INVALID_STATE_TRANSITION' or nil
end

function T.outcome(S, G, code, detail, lines)
  S.out[#S.out + 1] = { G, code, detail, lines }
end

-- Whether this very ending (Lease ID and digest) was stored before, so that its repetition is answered with success.
function T.ended_before(it, state, lease, digest)
  return it and it.st == state and it.lid == lease and it.dg == digest
end

-- Plans a Checkpoint beside the one before it, which is kept; the code of a refusal, or nil. The same number with the same
-- digest was stored before.
function T.checkpoint(S, G, it, number, digest, state)
  local last = tonumber(it.ckn or '0')
  if tonumber(number) == last and it.ckd == digest then return nil, true end
  if tonumber(number) ~= last + 1 then return 'REVISION_CONFLICT' end
  if #state > T.BYTES_MAX then return 'SCHEMA_VALIDATION_FAILED' end
  T.put(it, 'ckn', number)
  T.put(it, 'ckp', it.ckd)
  T.put(it, 'ckd', digest)
  T.put(it, 'lp', nil)
  T.put_body(S, G, it, T.checkpoint_name(number), state)
  return nil, false
end
