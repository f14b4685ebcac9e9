-- snapshot: Installs a Group's Snapshot, a chunk a call; the last call makes it the current one. Idempotent by its digest.
-- keys: the partition's @meta
-- args: replid group actor through digest size chunks number chunk
-- bound: one chunk of at most 1 MiB, 256 chunks
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED REVISION_CONFLICT
-- events: group.snapshot.created
--
-- Chunks gather under a key of their own that expires; `number` 0 ends it: all of them must be there, in their size, and the
-- sequence must not be ahead of the log. Of two that are made at once the later sequence stays. The reply: envelope, "stored",
-- "installed" or "repeated" (this one, or one as new, is current), the sequence of the current one.

local function fault(a)
  local through, size, chunks, number = tonumber(a[4]), tonumber(a[6]), tonumber(a[7]), tonumber(a[8])
  if not through or not size or not chunks or not number then return 'numbers' end
  if chunks < 1 or chunks > T.CHUNKS_MAX or number > chunks then return 'chunk=' .. a[8] .. ' of ' .. a[7] end
  if #a[9] > T.BYTES_MAX then return 'chunk=' .. #a[9] .. ' bytes' end
end

T.calls.snapshot = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local wrong = fault(a)
  if wrong then return T.refuse('SCHEMA_VALIDATION_FAILED', 'group=' .. a[2] .. ' ' .. wrong) end
  local has, through = T.snapshot_of(S, G), tonumber(a[4])
  if has.through >= through then return { T.envelope(S), 'repeated', T.int(has.through) } end
  if G.state ~= 'active' then return T.not_in(G) end
  if through > G.seq then
    return T.refuse('REVISION_CONFLICT', 'group=' .. a[2] .. ' through=' .. a[4] .. ' last=' .. T.int(G.seq))
  end
  local gathered = S.base .. G.name .. ':snap:' .. a[4] .. '.' .. a[5]
  if a[8] ~= '0' then
    T.gather(gathered, a[8], a[9])
    return { T.envelope(S), 'stored', T.int(has.through) }
  end
  wrong = T.missing_chunks(gathered, a[6], a[7])
  if wrong then return T.refuse('REVISION_CONFLICT', 'group=' .. a[2] .. ' ' .. wrong) end
  T.emit(S, G, 'group.snapshot.created', '', a[3], { a[4], a[5], a[6] })
  G.due['k ' .. G.name .. ' 0'] = false
  T.commit(S)
  if G.bad then return T.refuse(G.bad, 'group=' .. a[2]) end
  T.install_snapshot(S, G, gathered, a[4], a[5], a[6], a[7])
  return { T.finish(S), 'installed', a[4] }
end
