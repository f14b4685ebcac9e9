-- retry: Offers a failed or parked WorkItem again, now, with all its attempts before it. Idempotent by its action id.
-- keys: the partition's @meta
-- args: replid group item actor action
-- bound: one item
-- flags: none
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION
--   APPROVAL_REQUIRED
-- events: work.offer.created
--
-- Refused: what waits for others (dependencies=n), and what every Worker that it was offered to by name declined (asked=0): a
-- person says whom to ask (`offer`). A Mission that has ended is final (MSN-002): what it left is done in another one. The
-- reply: envelope, "done" or "repeated".
T.calls.retry = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  if it.act == a[5] then return { T.envelope(S), 'repeated' } end
  if G.state ~= 'active' or (it.st ~= 'failed' and not it.hold) then return T.not_in(G, it) end
  refused = T.unapproved(G, it)
  if refused then return refused end
  local waits, asked = tonumber(it.dep or '0'), it.to and #T.candidates(it.to)
  if waits > 0 or asked == 0 then
    return T.refuse('INVALID_STATE_TRANSITION', 'group=' .. G.name .. ' item=' .. it.id .. ' state=' .. it.st
      .. ' mission=' .. G.state .. ' dependencies=' .. T.int(waits) .. ' asked=' .. T.int(asked or 1))
  end
  T.renew_attempts(S, G, it)
  T.put(it, 'act', a[5])
  T.offer(S, G, it, 'retried')
  return T.answered(S, G, 'done')
end
