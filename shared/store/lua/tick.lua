-- tick: Carries out what is due in one partition: leases, blocked leases, start-by deadlines and offers that are over, pumps.
-- keys: the partition's @meta
-- args: replid most
-- bound: `most` due entries (256 at most); 64 items released, cancelled, removed or given back by pumps and ended sessions
-- flags: allow-oom
-- refusals: STORE_CHANGED
-- events: work.lease_lapsed work.offer.created work.parked work.cancelled work.retries_ended work.released work.expired
--   work.preemption.overdue mission.terminated
--
-- Any process may call it at any time: an entry is carried out only where Redis' clock is past what the item itself says.
-- The reply: envelope, number of entries that were due (a pump without room waits for the next tick), lines of `T.come_due`,
-- the Groups that this call halted, with the reason, and chores for the caller ("k group seq": fold and install a Snapshot).

-- n: the time of an item has come: a not-before, or the wait before another attempt.
local function come(S, G, it, member)
  G.due[member] = false
  if not it or not it.nb or G.state == 'ended' or G.state == 'cancelled' then return end
  T.offer_when_due(S, G, it, it.st == 'failed' and 'retry' or 'due')
end

local function carry_out(S, member)
  local kind, name, id = string.match(member, '^(%a) (%S+) (%S+)$')
  if T.put_off(S, kind, member) then return end
  if kind == 'x' then return T.silence(S, name, id, member) end
  if kind == 'y' then return table.insert(S.late, { name, id }) end
  if kind == 'q' then return T.end_quarantine(S, member) end
  local G = S.groups[name]
  if not G then T.adrift(S, kind, name, id, member)
  elseif T.closed(G) then S.aside[#S.aside + 1] = member
  elseif kind == 'f' then T.come_due(S, G, id, member)
  elseif T.is_lapse(kind) then
    T.lapse(S, G, T.named(S, G, id), kind, member)
  elseif kind == 'o' then
    T.expire_offer(S, G, T.named(S, G, id), member)
  elseif kind == 'n' then
    come(S, G, T.named(S, G, id), member)
  elseif not T.PUMPS[kind] then
    G.due[member] = S.now + 60000  -- for a Worker of the version that knows this kind
  elseif S.release_left > 0 then
    T.PUMPS[kind](S, G, id, member)
  end
end

T.calls.tick = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  S.silent, S.late, S.aside, S.fires, S.over, S.later, S.chores = {}, {}, {}, {}, {}, {}, {}
  local most = math.min(tonumber(a[2]), 256)
  local due = redis.call('ZRANGEBYSCORE', S.base .. '@due', '-inf', T.int(S.now), 'LIMIT', 0, most)
  local names = {}
  for i, member in ipairs(due) do
    if not string.find(member, '^[xy]') then names[#names + 1] = string.match(member, '^%a (%S+)') end
  end
  T.load(S, names)
  for _, member in ipairs(due) do carry_out(S, member) end
  for _, G in ipairs(S.order) do T.conclude(S, G) end
  T.commit(S)
  for _, member in ipairs(S.aside) do
    redis.call('ZREM', S.base .. '@due', member)
    redis.call('ZADD', S.base .. '@halted', T.int(S.now), member)
  end
  for _, session in ipairs(S.silent) do T.end_session(S, session[1], session[2]) end
  for _, late in ipairs(S.late) do T.unmint(S, late[1], late[2]) end
  for _, schedule in ipairs(S.over) do T.drop_schedule(S, schedule[1], schedule[2]) end
  T.after_quarantine(S)
  local envelope, halted = T.finish(S), {}
  for _, G in ipairs(S.order) do
    if G.bad then halted[#halted + 1] = G.name .. '=' .. G.bad end
  end
  return { envelope, T.int(#due), table.concat(S.fires, '\n'), table.concat(halted, ' '), table.concat(S.chores, '\n') }
end
