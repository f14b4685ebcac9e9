-- disclose: Records when an item is expected to start and to end, as its owner estimates it (WRK-012).
-- keys: as turn
-- args: group item epoch lease interval_ms start_from_ms start_to_ms end_ms confidence capacity
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   WORK_LEASE_EXPIRED INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED RATE_LIMITED
-- events: work.schedule.disclosed
--
-- `lease` is the Lease ID of a run, "-" of what is accepted and not started. `end_ms` is 0 where it is unknown, `confidence`
-- in percent. RATE_LIMITED, with when it may be said again: less than `interval_ms` after what was last disclosed of this
-- item, by whomever.
T.arity.disclose = 10
local CAPACITY = { available = true, constrained = true, queued = true }

local function is_whole(text)
  return #text <= 14 and string.match(text, '^%d+$')
end

local function is_estimate(interval, from, to, ends, confidence, capacity)
  for _, number in ipairs({ interval, from, to, ends, confidence }) do
    if not is_whole(number) then return false end
  end
  return tonumber(from) <= tonumber(to) and (ends == '0' or tonumber(ends) >= tonumber(to)) and tonumber(confidence) < 100
    and CAPACITY[capacity]
end

T.ops.disclose = function(S, group, id, epoch, lease, interval, from, to, ends, confidence, capacity)
  local G, it, code = T.target(S, group, id)
  if lease == '-' then
    code = code or T.stale_owner(S, it, epoch)
    code = code or (it.st ~= 'queued' and 'INVALID_STATE_TRANSITION')
    code = code or (T.start_by(S, it) <= S.now and 'WORK_STALE_OWNERSHIP') or nil
  else
    code = code or T.stale_lease(S, it, epoch, lease)
  end
  code = code or (not is_estimate(interval, from, to, ends, confidence, capacity) and 'SCHEMA_VALIDATION_FAILED') or nil
  if code then return T.outcome(S, G, code) end
  local again = tonumber(string.match(it.sd or '', '^%d+') or '0') + tonumber(interval)
  if again > S.now then return T.outcome(S, G, 'RATE_LIMITED', '0 ' .. T.int(again)) end
  -- The run it is about: the present one, or the next one of what waits.
  local number = tonumber(it.ln or '0') + (lease == '-' and 1 or 0)
  local said = table.concat({ from, to, ends, confidence, capacity }, ' ')
  T.put(it, 'sd', table.concat({ S.stamp, epoch, T.int(number), said }, ' '))
  T.outcome(S, G, 'OK', T.int(T.emit(S, G, 'work.schedule.disclosed', id, S.by, epoch .. ' ' .. said)))
end
