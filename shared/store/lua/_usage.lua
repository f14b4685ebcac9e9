-- Service in slot-milliseconds, charged as it is used, per Group, account and class (scheduler.md, rules 1 and 6).
-- A node is packed as "used running starts estimate typical offset entry entry_ms served" (model.Usage).

function T.usage(packed)
  local used, running, starts, estimate, typical, offset, entry, entry_ms, served =
    string.match(packed or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  if not served then
    return { used = 0, running = 0, starts = 0, estimate = 0, typical = 0, offset = 0, entry = 0, entry_ms = 0, served = 0 }
  end
  return { used = used + 0, running = running + 0, starts = starts + 0, estimate = estimate + 0, typical = typical + 0,
    offset = offset + 0, entry = entry + 0, entry_ms = entry_ms + 0, served = served + 0 }
end

function T.pack_usage(u)
  return string.format('%d %d %d %d %d %d %d %d %d', u.used, u.running, u.starts, u.estimate, u.typical, u.offset,
    u.entry, u.entry_ms, u.served)
end

-- Applies one change to a node: a start (run = nil) or an end (run = how long it ran).
function T.apply(u, change)
  u.running = u.running + change.width
  u.starts = u.starts + change.width * change.since
  u.estimate = u.estimate + change.width * change.estimate
  if change.run then
    u.used = u.used - change.width * change.run
    u.typical = math.max(1, u.typical == 0 and change.run or math.floor((4 * u.typical + change.run + 2) / 5))
  end
end

local function charge(S, G, change)
  G.runs[#G.runs + 1] = change
  T.apply(G.usage, change)
  T.charge_above(S, G, change)
end

-- A run of `it` begins now: its provisional charge is what a run of this Group typically is, never 0 (a cold start).
function T.begin_run(S, G, it)
  local estimate = math.max(1, G.usage.typical)
  T.put(it, 't0', S.stamp)
  T.put(it, 'est', T.int(estimate))
  charge(S, G, { width = tonumber(it.w or '1'), since = S.now - T.EPOCH, estimate = estimate })
end

-- The run of `it` ended at `at`: every way a run ends settles its charge here, in the same script.
function T.end_run(S, G, it, at)
  local began = tonumber(it.t0)
  charge(S, G, { width = -tonumber(it.w or '1'), since = began - T.EPOCH, estimate = tonumber(it.est),
    run = math.max(0, at - began) })
end

-- Whether a text is an offset, or `before=after`. What is no whole number is packed as the least there is: its Group would go
-- before all others for ever.
function T.is_offset(text)
  local before, after = string.match(text, '^([^=]+)=([^=]+)$')
  for _, number in ipairs({ before or '0', after or text }) do
    if not string.find(number, '^%-?%d+$') or #number > 17 then return false end
  end
  return true
end

-- The first accept after an entry lifts the Group to what it was found to stand at then (rule 3): what it missed is not saved
-- up. The Worker reckons `offset` from the tag that it froze when it saw the entry. `before=after` is set at any accept
-- that finds it as it was before: a lag that was kept when the weight changed, which no other Worker could tell (rule 7).
function T.serve(G, offset)
  local u, before, after = G.usage, string.match(offset, '^(.+)=(.+)')
  local sets = before and u.offset == tonumber(before)
  if u.served == 1 and not sets then return end
  u.offset = sets and tonumber(after) or math.max(u.offset, tonumber(after or offset))
  u.served = 1
  G.touched = true
end

-- The Group has nothing takeable of this capability any more: its next entry gets a tag of its own (rule 3, d).
function T.leave(G)
  G.usage.entry = G.usage.entry + 1
  G.usage.served = 0
  G.touched = true
end
