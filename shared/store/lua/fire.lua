-- fire: Carries out one tick of a schedule: its item is added to the Mission and offered, and the next tick is due.
-- keys: the partition's @meta
-- args: replid group schedule due_ms next_ms skipped queued
-- bound: one item of at most 1 MiB
-- flags: none
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND REVISION_CONFLICT
--   INVALID_STATE_TRANSITION QUOTA_EXCEEDED
-- events: work.authorized work.offer.created
--
-- A compare-and-set on `due_ms`, the tick that is due now: of any number of callers one fires it, and none before its time by
-- Redis' clock. The item is `<schedule>@<due_ms>`, so even a tick that came back could not add another. Its work.authorized
-- says which tick it was, whether it came late, and how many ticks after it were missed and never fire. `queued` as `T.too_many`
-- has it: a tick that is refused for it stays due, and comes again (`T.come_due`) until there is room. The reply: envelope,
-- "fired" or "repeated", when the next tick is due.

-- The template's item, as the arguments of `T.add_item`.
local function item_of(S, G, schedule, record, id)
  local retry = record.retry == '-' and '' or string.gsub(record.retry, ',', ' ')
  local inputs = T.try('GET', S.base .. G.name .. ':sc:' .. schedule) or ''
  return { id, record.cap, record.width, record.urgency, record.impact, '0', record.start_by, '', retry, record.digest, '',
    inputs, record.contract, '', record.timeout, '', '' }
end

local function add(S, G, schedule, record, id, skipped)
  G.actor, G.ids, G.mission = record.actor, {}, {}
  T.offers(S, G, T.shelf(record.cap))
  local before, late = #G.events, S.now - tonumber(record.due) > T.LATE_MS
  T.add_item(S, G, item_of(S, G, schedule, record, id), 1)
  local event = G.events[before + 1]
  event[4] = event[4] .. '\nschedule=' .. schedule .. ' due_ms=' .. record.due .. ' late=' .. (late and '1' or '0')
    .. ' skipped=' .. skipped
end

-- The refusal of a call that may not fire, or nil.
local function check(S, G, a, record, done)
  local code, names = T.closed(G), 'group=' .. a[2] .. ' schedule=' .. a[3]
  if code then return T.refuse(code, names) end
  if not record then return T.refuse('INVALID_COMMAND', names .. ' is not there') end
  if record.due ~= a[4] then return not done and T.refuse('REVISION_CONFLICT', names .. ' due=' .. record.due) or nil end
  if not string.match(a[5], '^%d+$') or #a[5] > 14 or tonumber(a[5]) <= tonumber(a[4]) or not string.match(a[6], '^%d+$') then
    return T.refuse('SCHEMA_VALIDATION_FAILED', names .. ' next=' .. a[5] .. ' skipped=' .. a[6])
  end
  if tonumber(a[4]) > S.now or not T.grows(G) then
    return T.refuse('INVALID_STATE_TRANSITION', names .. ' state=' .. G.state .. ' due=' .. a[4] .. ' now=' .. T.int(S.now))
  end
end

T.calls.fire = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  T.load(S, { a[2] })
  local G, record, id = S.groups[a[2]], T.read_schedule(S, a[2], a[3]), a[3] .. '%40' .. a[4]
  local done = G and T.item(S, G, id)
  refused = check(S, G, a, record, done)
  if refused then return refused end
  if record.due ~= a[4] then return { T.envelope(S), 'repeated', record.due } end
  if not done then
    T.counts(S, G)
    refused = T.too_many(S, G, a[7], 1)
    if refused then return refused end
    add(S, G, a[3], record, id, a[6])
  end
  G.due['f ' .. a[2] .. ' ' .. a[3]] = tonumber(a[5])
  T.commit(S)
  if G.bad then return T.refuse(G.bad, 'group=' .. a[2]) end
  record.fired, record.skipped = T.int(tonumber(record.fired) + 1), T.int(tonumber(record.skipped) + tonumber(a[6]))
  record.last, record.due = a[4], a[5]
  T.write_schedule(S, a[2], a[3], record)
  return { T.finish(S), done and 'repeated' or 'fired', record.due }
end
