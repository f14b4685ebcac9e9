-- What the commands of people share: they name one Group, some an item of it, and are answered once all is written.

-- Opens a call on the Group a[2] names, in whatever state it is; a refusal as second value where it is not there.
function T.at_group(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return nil, refused end
  T.load(S, { a[2] })
  local G = S.groups[a[2]]
  if not G then return nil, T.refuse('GROUP_NOT_FOUND', 'group=' .. a[2]) end
  return S, nil, G
end

-- The same on a halted Group, for its repair.
function T.at_halted(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if S and not string.match(G.state, '^halted:') then return nil, T.not_in(G) end
  return S, refused, G
end

-- Opens a call on the Group a[2] names; a refusal as second value where it is not there or may not be touched.
-- `loading`: whether one that is still being loaded will do; to all others it does not exist yet.
function T.command(keys, a, loading)
  local S, refused = T.begin(keys, a[1])
  if refused then return nil, refused end
  T.load(S, { a[2] })
  local G = S.groups[a[2]]
  local code = T.closed(G) or (G.state == 'loading' and not loading and 'GROUP_NOT_FOUND')
  if not G and T.remains(S, a[2]) == 'gone' then return nil, T.not_in({ name = a[2], state = 'ended' }) end
  if code then return nil, T.refuse(code, 'group=' .. a[2]) end
  T.counts(S, G)
  if G.bad then return nil, T.halted(S, G) end
  return S, nil, G
end

-- Halts a Group that was found damaged before anything was planned, and says so.
function T.halted(S, G)
  T.commit(S)
  return T.refuse(G.bad, 'group=' .. G.name)
end

-- The item a[3] names, or a refusal.
function T.commanded(S, G, a)
  local it = T.item(S, G, a[3])
  if it then return it end
  if G.bad then return nil, T.halted(S, G) end
  return nil, T.refuse('INVALID_COMMAND', 'group=' .. a[2] .. ' item=' .. a[3] .. ' is not there')
end

function T.not_in(G, it)
  return T.refuse('INVALID_STATE_TRANSITION', 'group=' .. G.name .. ' item=' .. (it and it.id or '-') .. ' state='
    .. (it and it.st or G.state) .. ' mission=' .. G.state)
end

-- Writes the plan and answers: envelope, then what is given.
function T.answered(S, G, ...)
  T.commit(S)
  if G.bad then return T.refuse(G.bad, 'group=' .. G.name) end
  return { T.finish(S), ... }
end
