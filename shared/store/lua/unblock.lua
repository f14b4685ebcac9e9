-- unblock: Lets a blocked WorkItem go on, with a resolution that its handler finds. Idempotent by its action id.
-- keys: the partition's @meta
-- args: replid group item actor action digest resolution
-- bound: one resolution of at most 1 MiB
-- flags: none
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION
--   SCHEMA_VALIDATION_FAILED
-- events: work.unblocked work.lease_lapsed work.offer.created
--
-- An item that still belongs to a Worker is queued for it under a new start-by deadline, and its owner is rung; else it is
-- offered to everybody. The resolution is kept until the item is blocked again, verified or cancelled. The reply: envelope,
-- "done" or "repeated", the state it is in now.

-- Ends what is left of an ownership that nobody has ended yet: of a blocked lease that lapsed, of a session that is over.
local function fence(S, G, it)
  if not it.own then return end
  local agent = it.own
  T.concern(S, G, agent, T.end_lapsed(S, G, it, math.min(S.now, tonumber(it.bex))))
end

local function queue(S, G, it, a, size)
  local start_by = S.now + 1000 * tonumber(it.sb or T.START_BY_S)
  local seq = T.emit(S, G, 'work.unblocked', it.id, a[4], { it.oe, T.int(start_by), a[6], size })
  T.put(it, 'st', 'queued')
  T.put(it, 'sby', T.int(start_by))
  G.due['s ' .. G.name .. ' ' .. it.id] = start_by
  T.concern(S, G, it.own, seq)
end

local function open(S, G, it, a, size)
  T.emit(S, G, 'work.unblocked', it.id, a[4], { it.oe, '0', a[6], size })
  T.put(it, 'st', 'open')
  T.offer(S, G, it, 'unblocked')
end

T.calls.unblock = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  if #a[7] > T.BYTES_MAX then return T.refuse('SCHEMA_VALIDATION_FAILED', 'resolution=' .. #a[7] .. ' bytes') end
  if it.act == a[5] then return { T.envelope(S), 'repeated', it.st } end
  if G.state ~= 'active' or it.st ~= 'blocked' then return T.not_in(G, it) end
  local kept = T.is_kept(S, it)
  if not kept then fence(S, G, it) end
  T.end_block(S, G, it)
  T.put(it, 'act', a[5])
  T.put_body(S, G, it, 'rv', a[7])
  if kept then queue(S, G, it, a, T.int(#a[7])) else open(S, G, it, a, T.int(#a[7])) end
  return T.answered(S, G, 'done', it.st)
end
