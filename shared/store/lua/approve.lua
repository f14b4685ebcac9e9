-- approve: Lets a WorkItem be started that waits for Approval: at once, or once nothing else holds it. Idempotent.
-- keys: the partition's @meta
-- args: replid group item actor reason
-- bound: one item
-- flags: none
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION
-- events: work.execution.approved work.offer.created
--
-- It may be approved before its dependencies or its time. Refused is one that needs no Approval (approval=none) or has ended; to
-- deny it is to cancel it. The reply: envelope, "done" or "repeated".
T.calls.approve = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  if it.ap == 'given' then return { T.envelope(S), 'repeated' } end
  if G.state ~= 'active' or it.ap ~= 'wanted' or it.st == 'cancelled' then
    return T.refuse('INVALID_STATE_TRANSITION', 'group=' .. G.name .. ' item=' .. it.id .. ' state=' .. it.st .. ' mission='
      .. G.state .. ' approval=' .. (it.ap or 'none'))
  end
  T.put(it, 'ap', 'given')
  T.emit(S, G, 'work.execution.approved', it.id, a[4], { a[5] })
  if it.hold == 'APPROVAL' then
    T.unhold(G, it)
    T.offer_when_due(S, G, it, 'approved')
  end
  return T.answered(S, G, 'done')
end
