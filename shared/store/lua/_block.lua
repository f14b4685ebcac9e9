-- Blocked items: why they cannot go on, for how long they stay with their owner, and their way out.

-- How long a blocked lease may be, in milliseconds: 1 s to 30 days. The longest reason, a token.
T.BLOCKED_MS_MIN, T.BLOCKED_MS_MAX = 1000, 2592000000

-- A run of `it` is over, and it waits for what somebody decides: its owner keeps it until `expiry`.
function T.block(S, G, it, expiry, reason, needs)
  T.disown(S, G, it, S.now)
  G.held[it.own][it.id] = true
  G.due['b ' .. G.name .. ' ' .. it.id] = expiry
  G.blocked[it.id] = true
  T.put(it, 'st', 'blocked')
  T.put(it, 'bex', T.int(expiry))
  T.put(it, 'br', S.stamp .. ' ' .. reason)
  if needs ~= '' then T.put_body(S, G, it, 'nd', needs) end
  -- The answer to an earlier question is none to this one.
  T.drop_body(S, G, it, 'rv')
end

-- Ends the ownership of a blocked item in the plan: it stays blocked, and belongs to nobody.
function T.loosen(S, G, it)
  if not it.own then return end
  G.held[it.own] = G.held[it.own] or {}
  G.held[it.own][it.id] = false
  G.due['b ' .. G.name .. ' ' .. it.id] = false
  T.put(it, 'own', nil)
  T.put(it, 'bex', nil)
end

-- Takes a blocked item out of that state; its next one is the caller's, and so is its ownership.
function T.end_block(S, G, it)
  G.blocked[it.id] = false
  G.due['b ' .. G.name .. ' ' .. it.id] = false
  T.put(it, 'bex', nil)
  T.put(it, 'br', nil)
  T.drop_body(S, G, it, 'nd')
end

-- Whether a blocked item still belongs to a Worker that will hear of it: its lease is not over, and the session that took it
-- is current and not silent: one that tells nothing for so many of its lease TTLs is as good as gone.
T.SILENT_TTLS = 4
function T.is_kept(S, it)
  if not it.own or tonumber(it.bex) <= S.now then return false end
  local record = redis.call('HGET', S.base .. '@sessions', it.own) or ''
  local epoch, ttl = string.match(record, '^(%d+) %S+ (%d+)')
  if epoch ~= it.ses then return false end
  local ends = redis.call('ZSCORE', S.base .. '@due', 'x ' .. it.own .. ' ' .. epoch)
  return ends and tonumber(ends) - S.now >= (T.SESSION_TTLS - T.SILENT_TTLS) * tonumber(ttl)
end
