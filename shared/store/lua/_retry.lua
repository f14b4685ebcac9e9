-- Attempts: when an item is tried again, and when it is not any more (protocol R49; design.md 3.8).

-- Runs lost without a new Checkpoint after which an item is parked: it seems to kill its Worker (design.md 4, poison).
T.LAPSES_MAX = 5
T.RETRY = '3 1000 300000'

-- How long the n-th wait between two attempts is: "retries first_ms most_ms" of the contract, doubling.
local function backoff(it, n)
  local _, first, most = string.match(it.rt or T.RETRY, '^(%d+) (%d+) (%d+)$')
  return math.min(tonumber(most), tonumber(first) * 2 ^ math.min(n - 1, 40))
end

-- When a failed attempt is made again; nil where the contract grants no more, or not before the item's deadline.
function T.retry_at(S, it)
  local failures = tonumber(it.fc or '0') + 1
  if failures > tonumber(string.match(it.rt or T.RETRY, '^%d+')) then return nil end
  local at = S.now + backoff(it, failures)
  if it.dl and at > tonumber(it.dl) then return nil end
  return at
end

-- Whether an item has ended for good.
function T.has_ended(it)
  return it.st == 'verified' or it.st == 'cancelled' or (it.st == 'failed' and not it.nb)
end

-- Offers an item that waits for nothing else, now or when its time has come; one that nobody approved is parked then.
function T.offer_when_due(S, G, it, cause)
  local at = tonumber(it.nb or '0')
  if at > S.now then G.due['n ' .. G.name .. ' ' .. it.id] = at
  elseif it.ap == 'wanted' then T.park(S, G, it, 'APPROVAL')
  else T.offer(S, G, it, cause) end
end

-- Parks an open item that belongs to nobody: only a person takes it out. Its time has come, or comes no more: a repair that
-- lists what is due again does not park it twice. `found`: what of it is damaged, where that is why (release.lua).
function T.park(S, G, it, why, found)
  T.put(it, 'hold', why)
  T.put(it, 'bad', found ~= '' and found or nil)
  T.put(it, 'nb', nil)
  G.parked[it.id] = true
  return T.emit(S, G, 'work.parked', it.id, 'policy', { why, it.lp or '0' }, found)
end

-- A person has an item done again: what held it back is taken away, and all its attempts are before it.
function T.renew_attempts(S, G, it)
  if it.st == 'failed' and not T.is_retrying(it) then
    G.count.failed, G.count.live = G.count.failed - 1, G.count.live + 1
    G.due['e ' .. G.name .. ' ' .. it.id] = false
  end
  -- Parked since no Checkpoint can be trusted: it is done from its beginning. The numbers go on.
  if it.hold == 'CHECKPOINT' then
    for _, name in ipairs({ 'ck0', 'ck1' }) do T.drop_body(S, G, it, name) end
    T.put(it, 'ckd', nil)
    T.put(it, 'ckp', nil)
  end
  T.unhold(G, it)
  for _, field in ipairs({ 'fc', 'lp', 'own' }) do T.put(it, field, nil) end
end

-- A run of `it` was lost with its Worker: it is offered again at once the first time, later after a wait, and in the end
-- parked, where only a person takes it out. The caller has ended its ownership.
function T.after_loss(S, G, it)
  local lost = tonumber(it.lp or '0') + 1
  T.put(it, 'lp', T.int(lost))
  T.put(it, 'own', nil)
  T.put(it, 'st', 'open')
  if lost >= T.LAPSES_MAX then return T.park(S, G, it, 'POISON') end
  if lost > 1 then T.put(it, 'nb', T.int(S.now + backoff(it, lost - 1))) end
  T.offer_when_due(S, G, it, 'lapsed')
end
