-- Incarnations and quarantine (design.md 3.11). After a change of server, leases that were granted before it and are lost with
-- its last writes may still run: until the largest lease TTL has passed nothing is accepted, started or lapsed. A lease whose
-- exact token is in the item goes on: it renews, saves, yields, submits and fails as ever.

-- What ends by time alone waits for the end of a quarantine: leases, start-by deadlines, blocked leases, silent sessions.
local LAPSES = { l = true, s = true, b = true, x = true }

-- The end of a quarantine that only a person ends (facts.NEVER_MS), and how long an entry is put off at a time.
T.NEVER, T.PUT_OFF_MS = 90000000000000, 10000

-- Begins another incarnation of a partition: every token issued from now on is higher than all before. The fields of `@meta`
-- that go with it follow as pairs.
function T.begin_incarnation(key, now, ...)
  local meta = redis.call('HMGET', key, 'incarnation', 'ttl')
  local incarnation = T.int(math.max(tonumber(meta[1] or '0') + 1, now))
  local ends = T.int(now + tonumber(meta[2] or '0'))
  redis.call('HSET', key, 'incarnation', incarnation, 'adopted', T.int(now), 'quarantine', ends, ...)
  -- Where no session ever was there is nothing to wait for.
  if meta[2] then redis.call('ZADD', string.sub(key, 1, -6) .. '@due', ends, 'q - 0')
  else redis.call('ZREM', string.sub(key, 1, -6) .. '@due', 'q - 0') end
  return incarnation
end

-- Notes the lease TTL of a session: what the next quarantine lasts.
function T.note_ttl(S, ttl)
  local most = redis.call('HGET', S.base .. '@meta', 'ttl')
  if tonumber(ttl) > tonumber(most or '0') then redis.call('HSET', S.base .. '@meta', 'ttl', ttl) end
end

-- Whether a Group has had all the slot-time that its Mission may have.
function T.has_spent(S, G)
  local u = G.usage
  return G.budget and u.used + u.running * (S.now - T.EPOCH) - u.starts >= G.budget
end

-- The code why nothing of a Group's work of a capability may be accepted or started now, or nil. What runs goes on.
function T.barred(S, G, cap)
  if S.quarantine > S.now then return 'QUARANTINE' end
  return T.paused(S, G, cap) and 'PAUSED' or T.has_spent(S, G) and 'BUDGET_EXCEEDED' or nil
end

-- The refusal of a take or a start; of a quarantine it says the end.
function T.bar(S, G, code)
  T.outcome(S, G, code, code == 'QUARANTINE' and '0 ' .. T.int(S.quarantine) or nil)
end

-- When an accepted item must have been started: a deadline that falls into a quarantine is given again in full after it.
function T.start_by(S, it)
  local by = tonumber(it.sby)
  if by <= S.adopted or by > S.quarantine then return by end
  return S.quarantine + 1000 * tonumber(it.sb or T.START_BY_S)
end

-- Whether a due entry waits for the end of the quarantine: then it is put off, to be looked at again.
function T.put_off(S, kind, member)
  if S.quarantine <= S.now or not (LAPSES[kind] or kind == 'q') then return false end
  S.later[#S.later + 1] = T.int(kind == 'q' and S.quarantine or math.min(S.quarantine, S.now + T.PUT_OFF_MS))
  S.later[#S.later + 1] = member
  return true
end

-- q: a quarantine is over. A Worker of each capability with takeable work is woken, and every look gets the whole directory.
-- Leases from before it are over too: the next quarantine need not be longer than those of the sessions that live.
function T.end_quarantine(S, member)
  S.strays[#S.strays + 1] = { S.base .. '@due', member }
  local caps, ttl = redis.call('HKEYS', S.base .. '@caps'), 0
  table.sort(caps)
  for _, cap in ipairs(caps) do
    S.rings[cap] = redis.call('ZRANGE', S.base .. '@dir:' .. cap, 0, 0)[1]
  end
  for _, record in ipairs(redis.call('HVALS', S.base .. '@sessions')) do
    ttl = math.max(ttl, tonumber(string.match(record, '^%d+ %S+ (%d+)')))
  end
  S.ttl_left = ttl
end

-- Writes what a tick put off, and what the end of a quarantine changed.
function T.after_quarantine(S)
  T.many('ZADD', S.base .. '@due', S.later)
  if not S.ttl_left then return end
  S.version = S.version + 1
  local version = T.int(S.version)
  redis.call('HSET', S.base .. '@meta', 'version', version, 'floor', version, 'ttl', T.int(S.ttl_left))
end
