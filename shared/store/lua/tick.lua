-- tick: Carries out what is due in one partition: lapsed leases and start-by deadlines, pumps, ended sessions.
-- keys: the partition's @meta
-- args: replid most
-- bound: `most` due entries (256 at most); 64 items released, cancelled or given back by pumps and ended sessions
-- flags: allow-oom
-- refusals: STORE_CHANGED
-- events: work.lease_lapsed work.offer.created work.cancelled work.released mission.terminated
--
-- Any process may call it at any time: an entry is carried out only where Redis' clock is past what the item itself says.
-- The reply: envelope, number of entries that were due (a pump without room waits for the next tick), lines of `T.come_due`.

-- l, s: the lease or the start-by deadline of an item passed: its ownership ends, it is offered again at once.
local function lapse(S, G, it, kind, member)
  local field = kind == 'l' and 'lex' or 'sby'
  local wanted = kind == 'l' and 'active' or 'queued'
  if not it or it.st ~= wanted then
    G.due[member] = false
  elseif tonumber(it[field]) > S.now then
    G.due[member] = tonumber(it[field])
  else
    local agent, at = it.own, tonumber(it[field])
    local what = kind == 'l' and 'lease' or 'start_by'
    local seq = T.emit(S, G, 'work.lease_lapsed', it.id, 'timer', { it.oe, agent, what, T.int(at) })
    T.give_back(S, G, it, at, 'lapsed')
    T.concern(S, G, agent, seq)
    G.dir[it.cap] = G.dir[it.cap] or 'touch'
  end
end

-- c: a failed Mission's items that still wait are cancelled, a chunk a call; the entry says how many were looked at.
local function cancel(S, G, from, member)
  local ids = redis.call('LRANGE', S.base .. G.name .. ':items', from, from + S.release_left - 1)
  G.due[member] = false
  if #ids == 0 then return end
  local count = T.counts(S, G)
  for _, id in ipairs(ids) do
    local it = T.item(S, G, id)
    if it and it.st == 'open' then
      T.put(it, 'st', 'cancelled')
      T.emit(S, G, 'work.cancelled', id, 'policy', { 'mission_failed' })
      count.cancelled = count.cancelled + 1
    end
  end
  S.release_left = S.release_left - #ids
  G.due['c ' .. G.name .. ' ' .. T.int(from + #ids)] = S.now
end

-- x: a session that was silent for too long is ended like one that closes.
local function silent(S, agent, epoch, member)
  local due = redis.call('ZSCORE', S.base .. '@due', member)
  if not due or tonumber(due) > S.now then return end
  local record = redis.call('HGET', S.base .. '@sessions', agent)
  if not record or string.match(record, '^%d+') ~= epoch then
    S.strays[#S.strays + 1] = { S.base .. '@due', member }
  elseif S.release_left > 0 then
    local done, looked = T.abandon(S, agent, epoch, 'silent', S.release_left)
    S.release_left = S.release_left - looked
    if done then S.silent[#S.silent + 1] = { agent, epoch } end
  end
end

local function carry_out(S, member)
  local kind, name, id = string.match(member, '^(%a) (%S+) (%S+)$')
  if kind == 'x' then return silent(S, name, id, member) end
  local G = S.groups[name]
  if T.closed(G) then S.aside[#S.aside + 1] = member
  elseif kind == 'f' then T.come_due(S, G, id, member)
  elseif kind == 'l' or kind == 's' then
    lapse(S, G, T.named(S, G, id), kind, member)
  elseif S.release_left > 0 and kind == 'c' then
    cancel(S, G, tonumber(id), member)
  elseif S.release_left > 0 and kind == 'r' then
    local it = T.named(S, G, id)
    if it and it.rel then T.release(S, G, it) else G.due[member] = false end
  end
end

T.calls.tick = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  S.silent, S.aside, S.fires = {}, {}, {}
  local most = math.min(tonumber(a[2]), 256)
  local due = redis.call('ZRANGEBYSCORE', S.base .. '@due', '-inf', T.int(S.now), 'LIMIT', 0, most)
  local names = {}
  for i, member in ipairs(due) do
    if string.sub(member, 1, 1) ~= 'x' then names[#names + 1] = string.match(member, '^%a (%S+)') end
  end
  T.load(S, names)
  for _, member in ipairs(due) do carry_out(S, member) end
  for _, G in ipairs(S.order) do T.conclude(S, G) end
  T.commit(S)
  for _, member in ipairs(S.aside) do
    redis.call('ZREM', S.base .. '@due', member)
    redis.call('ZADD', S.base .. '@halted', T.int(S.now), member)
  end
  for _, session in ipairs(S.silent) do T.unregister(S, session[1], session[2]) end
  local envelope = T.envelope(S)
  T.ring_timer(S, string.match(envelope, '^%S+ (%S+)'))
  return { envelope, T.int(#due), table.concat(S.fires, '\n') }
end
