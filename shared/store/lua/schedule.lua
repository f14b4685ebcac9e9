-- schedule: Makes, replaces or deletes a schedule of an open Mission. Idempotent by the digest of its content.
-- keys: the partition's @meta
-- args: replid verb group schedule actor digest due_ms missed spec capability width urgency impact start_by_s retry inputs contract
--   timeout_ms
-- bound: 10,000 schedules a partition; 1 MiB of inputs
-- flags: none
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION
--   ACTION_ID_COLLISION BACKPRESSURE
-- events: none
--
-- `verb` is create (refused where that id has other content), replace (then that content goes) or delete, which ends with
-- `actor`. `due_ms` is the first tick, `missed` one or all, `spec` and `retry` tokens ('-' for no retry of its own). The
-- reply: envelope, 1 where something changed, when the next tick is due (0: deleted).
T.SCHEDULES_MAX = 10000

local function fault(a)
  if a[2] ~= 'create' and a[2] ~= 'replace' or #a ~= 18 then return 'verb=' .. a[2] .. ' arguments=' .. #a end
  if not string.match(a[7], '^%d+$') or #a[7] > 14 then return 'due_ms=' .. a[7] end
  if a[8] ~= 'one' and a[8] ~= 'all' then return 'missed=' .. a[8] end
  for i = 9, 15 do
    if not string.match(a[i], '^%S+$') then return 'argument=' .. i .. ' is no token' end
  end
  if #a[16] > T.BYTES_MAX then return 'inputs=' .. #a[16] .. ' bytes (' .. T.BYTES_MAX .. ' at most)' end
  return T.wrong_timeout(a[18])
end

-- Why a schedule may not be made, or nil: its Mission must be there, and grow.
local function closed(S, G, group)
  local code = T.closed(G)
  if code then return T.refuse(code, 'group=' .. group) end
  if not T.grows(G) then return T.refuse('INVALID_STATE_TRANSITION', 'mission=' .. group .. ' state=' .. G.state) end
  if redis.call('HLEN', S.base .. '@sched') >= T.SCHEDULES_MAX then
    return T.refuse('BACKPRESSURE', 'schedules=' .. T.SCHEDULES_MAX .. ' stand in this partition: delete some first')
  end
end

T.calls.schedule = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local group, schedule = a[3], a[4]
  if a[2] == 'delete' then
    local gone = T.drop_schedule(S, group, schedule)
    return { T.envelope(S), T.int(gone), '0' }
  end
  local wrong = fault(a)
  if wrong then return T.refuse('SCHEMA_VALIDATION_FAILED', wrong) end
  local record = T.read_schedule(S, group, schedule)
  if record and record.digest == a[6] then return { T.envelope(S), '0', record.due } end
  if record and a[2] == 'create' then
    return T.refuse('ACTION_ID_COLLISION', 'schedule=' .. schedule .. ' of mission=' .. group .. ' has other content')
  end
  T.load(S, { group })
  local G = S.groups[group]
  refused = closed(S, G, group)
  if refused then return refused end
  record = record or { created = T.int(S.now), fired = '0', last = '0', skipped = '0' }
  record.due, record.digest, record.actor, record.missed, record.spec = a[7], a[6], a[5], a[8], a[9]
  record.cap, record.width, record.urgency, record.impact, record.start_by = a[10], a[11], a[12], a[13], a[14]
  record.retry, record.contract, record.timeout = a[15], a[17], a[18]
  T.write_schedule(S, group, schedule, record)
  redis.call('SET', S.base .. group .. ':sc:' .. schedule, a[16])
  G.due['f ' .. group .. ' ' .. schedule] = tonumber(record.due)
  T.commit(S)
  return { T.finish(S), '1', record.due }
end
