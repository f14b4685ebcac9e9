-- progress: Records how far an active item says it is; a phase or milestones that are new are an Event too.
-- keys: as turn
-- args: group item epoch lease done total phase milestones note
-- bound: one item; 8 milestones a call, the newest 8 kept; 256 Events a run, what comes after is counted
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.progressed
--
-- `done` and `total` are numbers from 0 to 10^15, the others tokens, "-" for none; `milestones` are separated by commas. The
-- record `pg` is "at number events unlogged done total phase milestones note", `number` that of the lease: each run begins anew.
-- What was recorded last is REPEATED.
T.arity.progress = 9
local EVENTS_MAX, MILESTONES_MAX, AMOUNT_MAX = 256, 8, 1e15
local RECORD = '^%d+ (%d+) (%d+) (%d+) (%S+ %S+) (%S+) (%S+) (%S+)$'

local function is_amount(text)
  local amount = #text <= 24 and not string.find(text, '[^%d.e+-]') and tonumber(text)
  return amount and amount >= 0 and amount <= AMOUNT_MAX
end

-- The milestones of a call, or nil where they are none.
local function listed(text)
  local list = {}
  if text == '-' then return list end
  for name in string.gmatch(text .. ',', '([^,]*),') do
    if not T.is_token(name) or #list == MILESTONES_MAX then return nil end
    list[#list + 1] = name
  end
  return list
end

-- The newest of those before and of these.
local function newest(before, list)
  local all = {}
  if before ~= '-' then for name in string.gmatch(before, '[^,]+') do all[#all + 1] = name end end
  for _, name in ipairs(list) do all[#all + 1] = name end
  return #all > 0 and table.concat(all, ',', math.max(1, #all - MILESTONES_MAX + 1)) or '-'
end

local function ends_with(reached, milestones)
  return milestones == '-' or string.sub(',' .. reached, -#milestones - 1) == ',' .. milestones
end

T.ops.progress = function(S, group, id, epoch, lease, done, total, phase, milestones, note)
  local G, it, code = T.target(S, group, id)
  local list = listed(milestones)
  code = code or T.stale_lease(S, it, epoch, lease)
  if not code and not (is_amount(done) and is_amount(total) and list and T.is_token(phase) and T.is_token(note)) then
    code = 'SCHEMA_VALIDATION_FAILED'
  end
  if code then return T.outcome(S, G, code) end
  local number, events, unlogged, amounts, was, reached, noted = string.match(it.pg or '', RECORD)
  if number ~= it.ln then
    events, unlogged, was, reached = '0', '0', '-', '-'
  elseif amounts == done .. ' ' .. total and was == phase and noted == note and ends_with(reached, milestones) then
    return T.outcome(S, G, 'REPEATED')
  end
  local seq = 0
  if #list > 0 or (phase ~= '-' and phase ~= was) then
    if tonumber(events) < EVENTS_MAX then
      seq, events = T.emit(S, G, 'work.progressed', id, S.by, { epoch, phase, milestones, done, total }), events + 1
    else
      unlogged = unlogged + 1
    end
  end
  T.put(it, 'pg', table.concat({ S.stamp, it.ln, T.int(events), T.int(unlogged), done, total, phase,
    newest(reached, list), note }, ' '))
  T.outcome(S, G, 'OK', T.int(seq))
end
