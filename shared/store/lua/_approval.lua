-- Execution Approval: an item that wants it is parked in place of its first offer, until `approve`.

local GATES = { approval = true, ['risk:low'] = true, ['risk:high'] = true }

-- What is wrong with the gates of a new item as a call brings them, or nil.
function T.wrong_gates(text)
  for _, word in ipairs(T.words(text)) do
    if not GATES[word] then return 'gates=' .. text .. ' (approval, risk:low, risk:high, or none)' end
  end
end

-- Plans them: whether it waits for Approval, and the risk that whoever approves it should know of.
function T.put_gates(it, text)
  for _, word in ipairs(T.words(text)) do
    if word == 'approval' then T.put(it, 'ap', 'wanted') else T.put(it, 'rk', string.sub(word, 6)) end
  end
end

-- The refusal of a person's word that would have an item offered which nobody has approved, or nil.
function T.unapproved(G, it)
  if it.ap ~= 'wanted' then return end
  return T.refuse('APPROVAL_REQUIRED', 'group=' .. G.name .. ' item=' .. it.id .. ' state=' .. it.st .. ' mission=' .. G.state)
end
