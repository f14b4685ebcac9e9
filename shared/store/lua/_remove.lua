-- Items whose time is over go for good.

-- Removes items whose time is over, with everything that is theirs.
function T.remove_items(S, G)
  local key = S.base .. G.name
  for _, id in ipairs(G.doomed) do
    redis.call('UNLINK', key .. ':i:' .. id, key .. ':in:' .. id, key .. ':ck0:' .. id, key .. ':ck1:' .. id,
      key .. ':rs:' .. id, key .. ':fl:' .. id, key .. ':nd:' .. id, key .. ':rv:' .. id,
      key .. ':ef:' .. id, key .. ':w:' .. id, key .. ':out:' .. id)
  end
  if #G.doomed > 0 and G.grown then redis.call('ZREM', key .. ':jobs', unpack(G.doomed))
  elseif #G.doomed > 0 then redis.call('LTRIM', key .. ':items', #G.doomed, -1) end
end

-- Whether nobody needs an item any more: its dependents have been released, and have ended. It looks at some a call.
T.LOOK_AGAIN_MS = 60000
local function is_needed(S, G, it, member)
  local total, i = tonumber(it.out or '0'), tonumber(it.ex or '0')
  if it.rel then
    G.due[member] = S.now + T.LOOK_AGAIN_MS
    return true
  end
  if i >= total then return false end
  for _, id in ipairs(T.listed(G, 'LRANGE', S.base .. G.name .. ':out:' .. it.id, i, i + S.release_left - 1)) do
    local dependent = T.item(S, G, id)
    S.release_left = S.release_left - 1
    if dependent and not T.has_ended(dependent) then
      T.put(it, 'ex', T.int(i))
      G.due[member] = S.now + T.LOOK_AGAIN_MS
      return true
    end
    i = i + 1
  end
  T.put(it, 'ex', T.int(i))
  if i < total then G.due[member] = S.now end
  return i < total
end

-- e: the same for one item of a Mission that grew, once its dependents do not need its result any more.
function T.expire_item(S, G, it, member)
  G.due[member] = false
  if not T.has_ended(it) or is_needed(S, G, it, member) then return end
  local count = T.counts(S, G)
  -- What failed or was cancelled stays counted: a Mission that needed it is not approved because its time was over.
  if it.st == 'verified' then count.total, count.verified = count.total - 1, count.verified - 1 end
  -- A failed one might have been offered again: whoever folds the log is told that it will not be.
  if it.st == 'failed' and G.state == 'active' then T.emit(S, G, 'work.expired', it.id, 'timer', { 'kept' }) end
  G.doomed[#G.doomed + 1] = it.id
end
