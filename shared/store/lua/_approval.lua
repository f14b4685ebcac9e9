-- Execution Approval: an item that wants it is parked in place of its first offer, until `approve`.

-- What is wrong with the gates of a new item as a call brings them, or nil.
function T.wrong_gates(text)
  if text ~= '' and text ~= 'approval' then return 'gates=' .. text .. ' (approval, or none)' end
end

-- The refusal of a person's word that would have an item offered which nobody has approved, or nil.
function T.unapproved(G, it)
  if it.ap ~= 'wanted' then return end
  return T.refuse('APPROVAL_REQUIRED', 'group=' .. G.name .. ' item=' .. it.id .. ' state=' .. it.st .. ' mission=' .. G.state)
end
