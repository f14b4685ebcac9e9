-- resize: Notes in a partition how many Capacity Slots the caller's session has from now on. Idempotent.
-- keys: the partition's @meta
-- args: replid agent session slots
-- bound: one record; 1,024 slots
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION SCHEMA_VALIDATION_FAILED
-- events: none
--
-- What it owns stays its own, however wide; what it may accept, and what receipts say of the largest Worker, goes by the new
-- number. The reply: envelope.
T.calls.resize = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or T.session(S, a[2], a[3])
  if refused then return refused end
  if not string.match(a[4], '^%d+$') or #a[4] > 4 or tonumber(a[4]) > 1024 then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'slots=' .. a[4] .. ' (0 to 1024)')
  end
  T.resize(S, a[4])
  return { T.envelope(S) }
end
