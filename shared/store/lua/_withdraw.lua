-- Ends of an item that no Worker causes, and what every end of an item has in common.

-- Whether a failed item waits for its next attempt.
function T.is_retrying(it)
  return it.st == 'failed' and it.nb ~= nil
end

-- Whether something of an item that has not ended can still move by itself.
local function is_live(it)
  return tonumber(it.dep or '0') == 0
end

-- Takes an item that has not ended out of wherever it stands: index, ownership, waits. Its next state is the caller's.
function T.withdraw(S, G, it)
  local count, owner = T.counts(S, G), it.own
  if it.st == 'offered' then
    T.retract(G, it)
  elseif it.st == 'queued' or it.st == 'active' then
    T.disown(S, G, it, it.st == 'active' and math.min(S.now, tonumber(it.lex)) or S.now)
    T.touch(G, it)
  elseif it.st == 'blocked' then
    T.loosen(S, G, it)
    T.end_block(S, G, it)
  else
    owner = nil
  end
  if is_live(it) then count.live = count.live - 1 end
  T.unhold(G, it)
  T.put(it, 'own', nil)
  return owner
end

-- Clears a hold and a wait.
function T.unhold(G, it)
  if it.hold then
    T.put(it, 'hold', nil)
    T.put(it, 'bad', nil)
    G.parked[it.id] = false
  end
  if it.nb then
    T.put(it, 'nb', nil)
    G.due['n ' .. G.name .. ' ' .. it.id] = false
  end
end

-- An item has ended for good: who waits for it is rung, and in an open Mission it is kept for a time of its own.
function T.ended_item(S, G, it)
  if it.wt then
    G.rung[it.id] = true
    T.put(it, 'wt', nil)
  end
  if it.st ~= 'failed' and (it.rv or it.rvx) then T.drop_body(S, G, it, 'rv') end
  if G.grown then G.due['e ' .. G.name .. ' ' .. it.id] = S.now + T.counts(S, G).keep end
end

-- Cancels an item that has not ended; a failed one that waits for another attempt stays failed for good.
function T.cancel_item(S, G, it, by, reason)
  local count, retrying = T.counts(S, G), T.is_retrying(it)
  local owner = T.withdraw(S, G, it)
  if retrying then
    T.emit(S, G, 'work.retries_ended', it.id, by, { reason })
    count.failed = count.failed + 1
  else
    T.put(it, 'st', 'cancelled')
    local seq = T.emit(S, G, 'work.cancelled', it.id, by, { reason })
    if owner then T.concern(S, G, owner, seq) end
    count.cancelled = count.cancelled + 1
  end
  T.ended_item(S, G, it)
end
