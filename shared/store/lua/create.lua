-- create: Creates a Mission and its Group, with its WorkItems or to be loaded by `add` and `seal`. Idempotent by its id.
-- keys: the partition's @meta
-- args: replid group digest actor objective account weight class deadline_ms keep_ms budget_ms form total queued item
--   capability width urgency impact deadline start_by_s not_before retry digest after inputs contract offer timeout_ms gates
--   resources ...
-- bound: 256 items in topological order, 16 MiB of inputs, 1,024 dependencies, 512 capabilities
-- flags: none
-- refusals: STORE_CHANGED ACTION_ID_COLLISION SCHEMA_VALIDATION_FAILED LOG_FOREIGN QUOTA_EXCEEDED
-- events: mission.created work.authorized work.offer.created work.parked
--
-- `form`: "whole", "open" (it grows until it is sealed) or "load" (no item yet; it is hidden until it is sealed, and removed
-- where that does not happen within an hour of its last chunk). `after` is item tokens separated by spaces; 0 stands for no
-- deadline, and for no budget of slot-milliseconds (`T.has_spent`). `queued` as `T.too_many` has it, of all items that are to
-- come. The reply: envelope, "created repeated state chunks", then what `T.unoffered` says.
local function present(S, a, stored, first)
  if stored[1] ~= a[3] then return T.refuse('ACTION_ID_COLLISION', 'mission=' .. a[2] .. ' has other content') end
  return { T.envelope(S), table.concat({ stored[2], '1', stored[3], stored[4] or '0' }, ' '), T.unoffered(S, a, first) }
end

T.calls.create = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local key, first, form = S.base .. a[2] .. ':mission', 15, a[12]
  local stored = redis.call('HMGET', key, 'digest', 'created', 'state', 'chunk')
  if stored[1] then return present(S, a, stored, first) end
  local fault = T.wrong_items(S, nil, a, first, form == 'whole' and 1 or 0)
  if form ~= 'whole' and form ~= 'open' and (form ~= 'load' or #a >= first) then fault = 'form=' .. form end
  if not string.match(a[11], '^%d+$') or #a[11] > 14 then fault = 'budget_ms=' .. a[11] end
  local caps = not fault and T.merged_capabilities('', a, first)
  if fault or not caps then return T.refuse('SCHEMA_VALIDATION_FAILED', fault or 'capabilities (' .. T.CAPS_MAX .. ' at most)') end
  if redis.call('EXISTS', S.base .. a[2] .. ':log') == 1 then
    return T.refuse('LOG_FOREIGN', 'group=' .. a[2] .. ' has a log that no Mission wrote')
  end
  local state = form == 'load' and 'loading' or 'active'
  local G = T.group(S, a[2], 0, table.concat({ state, a[7], a[6], a[8], '1', form }, ' '), T.usage(''))
  G.budget = a[11] ~= '0' and tonumber(a[11]) or nil
  refused = T.too_many(S, G, a[14], tonumber(a[13]))
  if refused then return refused end
  G.fresh, G.actor, G.touched, G.usage.entry, G.usage.entry_ms = true, a[4], true, 1, S.now
  G.count = { total = 0, verified = 0, failed = 0, cancelled = 0, live = 0, keep = tonumber(a[10]) }
  T.emit(S, G, 'mission.created', '', a[4], { a[3], a[6], a[7], a[8], a[13] })
  G.ids, G.mission = {}, { 'digest', a[3], 'created', T.int(S.now), 'state', state, 'objective', a[5], 'owner', a[4],
    'account', a[6], 'weight', a[7], 'class', a[8], 'deadline', a[9], 'keep', a[10], 'form', form,
    'caps', caps }
  if G.budget then G.mission[#G.mission + 1], G.mission[#G.mission + 2] = 'budget', a[11] end
  if form == 'load' then G.due['u ' .. G.name .. ' 0'] = S.now + T.LOAD_MS end
  for i = first, #a, T.ITEM_FIELDS do T.add_item(S, G, a, i) end
  T.commit(S)
  T.tally(S, G, 1)
  return { T.finish(S), T.int(S.now) .. ' 0 ' .. state .. ' 0', T.unoffered(S, a, first) }
end
