-- read: Reads bodies of items: inputs (in), Checkpoints (ck0, ck1), result (rs), failure (fl), needs (nd), resolution (rv).
-- keys: the partition's @meta
-- args: replid group item body ...
-- bound: 64 bodies; 1 MiB of them and the one that goes beyond it (2 MiB)
-- flags: no-writes
-- refusals: STORE_CHANGED
-- events: none
--
-- The reply: envelope, then for each body "+" and its bytes, or "-" where there is none. It may
-- answer fewer than were asked, one at least: ask again for the rest.
T.calls.read = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local reply, bytes = { T.envelope(S) }, 0
  for i = 2, math.min(#a, 1 + 3 * 64), 3 do
    local body = T.body(S, a[i], a[i + 1], a[i + 2])
    reply[#reply + 1] = body and ('+' .. body) or '-'
    bytes = bytes + (body and #body or 0)
    if bytes >= T.BYTES_MAX then break end
  end
  return reply
end
