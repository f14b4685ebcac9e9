-- Schedules of a partition, in its hash `@sched`: "<group> <schedule>" -> one line of tokens, then the contract of its items.
-- Their inputs stand in `<group>:sc:<schedule>`; a due entry "f <group> <schedule>" says when the next tick is. What a tick is,
-- cron or interval, only clients know: `spec` is a token here.
local FIELDS = { 'due', 'digest', 'created', 'actor', 'missed', 'fired', 'last', 'skipped', 'spec', 'cap', 'width', 'urgency',
  'impact', 'start_by', 'retry', 'timeout' }

-- A due schedule is handed to whoever ticks; where nothing comes of that within this time, to the next one.
T.HANDED_MS = 2000
T.LATE_MS = 60000

-- A schedule's record; nil where there is none, or one that nobody could read.
function T.read_schedule(S, group, schedule)
  local packed = redis.call('HGET', S.base .. '@sched', group .. ' ' .. schedule)
  if not packed then return end
  local line, contract = string.match(packed, '^([^\n]*)\n(.*)$')
  local words, record = T.words(line), { contract = contract }
  for i, field in ipairs(FIELDS) do record[field] = words[i] end
  local numbers = tonumber(record.due) and tonumber(record.fired) and tonumber(record.skipped)
  if contract and #words == #FIELDS and numbers then return record end
end

function T.write_schedule(S, group, schedule, record)
  local words = {}
  for i, field in ipairs(FIELDS) do words[i] = record[field] end
  redis.call('HSET', S.base .. '@sched', group .. ' ' .. schedule, table.concat(words, ' ') .. '\n' .. record.contract)
end

-- Takes a schedule out of the partition; whether it was there.
function T.drop_schedule(S, group, schedule)
  redis.call('ZREM', S.base .. '@due', 'f ' .. group .. ' ' .. schedule)
  redis.call('DEL', S.base .. group .. ':sc:' .. schedule)
  return redis.call('HDEL', S.base .. '@sched', group .. ' ' .. schedule)
end

-- Whether a Mission still takes the items of schedules.
function T.grows(G)
  return G.state == 'active' and G.form == 'open'
end

-- The entry of a schedule is due. It is told to the caller, who alone can reckon what comes after this tick, and comes again
-- soon, for another caller, unless it is fired. With a Mission that takes nothing any more its schedules end.
function T.come_due(S, G, schedule, member)
  local record = T.read_schedule(S, G.name, schedule)
  if not record then
    G.due[member] = false
  elseif not T.grows(G) then
    S.over[#S.over + 1] = { G.name, schedule }
  elseif tonumber(record.due) > S.now then
    G.due[member] = tonumber(record.due)
  else
    G.due[member] = S.now + T.HANDED_MS
    S.fires[#S.fires + 1] = table.concat({ G.name, schedule, record.due, record.missed, record.spec }, ' ')
  end
end

-- The capabilities of a growing Mission are known to it before any of its items has them.
function T.offers(S, G, cap)
  local caps = redis.call('HGET', S.base .. G.name .. ':mission', 'caps') or ''
  if not string.find(' ' .. caps .. ' ', ' ' .. cap .. ' ', 1, true) then
    G.mission[#G.mission + 1], G.mission[#G.mission + 2] = 'caps', caps == '' and cap or caps .. ' ' .. cap
  end
end
