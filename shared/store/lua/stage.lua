-- stage: Keeps a chunk of the Snapshot that a halted Group's new log is to begin with.
-- keys: the partition's @meta
-- args: replid group through digest number chunk
-- bound: one chunk of at most 1 MiB, 256 of them; they go after ten minutes
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: none
--
-- The reply: envelope, "stored". `repair` installs what was kept.
T.calls.stage = function(keys, a)
  local S, refused, G = T.at_halted(keys, a)
  if refused then return refused end
  local number = tonumber(a[5])
  if not number or number < 1 or number > T.CHUNKS_MAX or #a[6] > T.BYTES_MAX then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'group=' .. a[2] .. ' chunk=' .. a[5] .. ' of ' .. #a[6] .. ' bytes')
  end
  T.gather(G.key .. ':snap:' .. a[3] .. '.' .. a[4], a[5], a[6])
  return { T.envelope(S), 'stored' }
end
