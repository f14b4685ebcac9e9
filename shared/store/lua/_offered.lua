-- What is offered to the caller, as `accept` and `decline` find it.

-- The item, if the caller is one whom its offer asks, or the code why it is not.
function T.offered_to_caller(S, group, id)
  local G, it, code = T.target(S, group, id)
  if code then return G, nil, code end
  if G.state ~= 'active' then return G, nil, 'INVALID_STATE_TRANSITION' end
  if it.st ~= 'offered' then
    local owned = it.st == 'queued' or it.st == 'active' or (it.st == 'blocked' and it.own)
    return G, nil, owned and it.own ~= S.agent and 'WORK_ALREADY_OWNED' or 'INVALID_STATE_TRANSITION'
  end
  if not T.is_asked(it, S.agent) then return G, nil, 'AUTH_FORBIDDEN' end
  if T.is_offer_over(S, it) then return G, nil, 'WORK_OFFER_EXPIRED' end
  return G, it
end
