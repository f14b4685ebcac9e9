-- create: Creates a Mission, its Group and its WorkItems, and offers those that wait for nothing. Idempotent by its id.
-- keys: the partition's @meta
-- args: replid group digest actor objective account weight class deadline_ms item capability width urgency impact deadline start_by_s after out inputs contract ...
-- bound: 256 items in topological order, 16 MiB of inputs
-- flags: none
-- refusals: STORE_CHANGED ACTION_ID_COLLISION SCHEMA_VALIDATION_FAILED LOG_FOREIGN
-- events: mission.created work.authorized work.offer.created
--
-- `after` and `out` are item tokens separated by spaces; 0 stands for no deadline. The reply: envelope, "created repeated",
-- the capabilities that no live session offers.

local FIELDS, BYTES_MAX = 11, 16777216

local function add_item(S, G, a, i)
  local id, waits = a[i], #T.words(a[i + 7])
  local it = T.new_item(G, id)
  T.put(it, 'cap', a[i + 1])
  T.put(it, 'st', 'open')
  if a[i + 2] ~= '1' then T.put(it, 'w', a[i + 2]) end
  if a[i + 3] ~= 'normal' then T.put(it, 'urg', a[i + 3]) end
  if a[i + 4] ~= '0' then T.put(it, 'imp', a[i + 4]) end
  if a[i + 5] ~= '0' then T.put(it, 'dl', a[i + 5]) end
  if a[i + 6] ~= '60' then T.put(it, 'sb', a[i + 6]) end
  if waits > 0 then
    T.put(it, 'dep', T.int(waits))
    T.put(it, 'after', a[i + 7])
  end
  if a[i + 8] ~= '' then T.put(it, 'out', a[i + 8]) end
  T.put_body(S, G, it, 'in', a[i + 9])
  if a[i + 10] ~= '' then T.put(it, 'ct', a[i + 10]) end
  T.emit(S, G, 'work.authorized', id, G.actor, { a[i + 1], a[i + 2], T.int(waits) })
  if waits == 0 then
    T.offer(S, G, it, 'created')
    G.count.live = G.count.live + 1
  end
end

-- The field that is wrong, or nil: ids are new, and everything an item waits for stands before it, so no cycle is stored.
local function wrong(a, first)
  local seen, number, bytes = {}, (#a - first + 1) / FIELDS, 0
  if number < 1 or number > 256 or number % 1 ~= 0 then return 'items=' .. number .. ' (1 to 256)' end
  for i = first, #a, FIELDS do
    if seen[a[i]] then return 'item=' .. a[i] .. ' is there twice' end
    for _, other in ipairs(T.words(a[i + 7])) do
      if not seen[other] then return 'item=' .. a[i] .. ' waits for ' .. other .. ', which does not stand before it' end
    end
    seen[a[i]] = true
    bytes = bytes + #a[i + 9]
  end
  if bytes > BYTES_MAX then return 'inputs=' .. bytes .. ' bytes (' .. BYTES_MAX .. ' at most)' end
end

local function capabilities(a, first)
  local seen, list = {}, {}
  for i = first + 1, #a, FIELDS do
    if not seen[a[i]] then list[#list + 1] = a[i] end
    seen[a[i]] = true
  end
  return list
end

local function unoffered(S, a, first)
  local missing = {}
  for _, cap in ipairs(capabilities(a, first)) do
    if not redis.call('HGET', S.base .. '@caps', cap) then missing[#missing + 1] = cap end
  end
  return table.concat(missing, ' ')
end

T.calls.create = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local key, first = S.base .. a[2] .. ':mission', 10
  local stored = redis.call('HMGET', key, 'digest', 'created')
  if stored[1] then
    if stored[1] ~= a[3] then return T.refuse('ACTION_ID_COLLISION', 'mission=' .. a[2] .. ' has other content') end
    return { T.envelope(S), stored[2] .. ' 1', unoffered(S, a, first) }
  end
  local fault = wrong(a, first)
  if fault then return T.refuse('SCHEMA_VALIDATION_FAILED', fault) end
  if redis.call('EXISTS', S.base .. a[2] .. ':log') == 1 then
    return T.refuse('LOG_FOREIGN', 'group=' .. a[2] .. ' has a log that no Mission wrote')
  end
  local G = T.group(S, a[2], 0, table.concat({ 'active', a[7], a[6], a[8], '1' }, ' '), T.usage(''))
  G.fresh, G.actor, G.touched, G.usage.entry, G.usage.entry_ms = true, a[4], true, 1, S.now
  local number = (#a - first + 1) / FIELDS
  G.count = { total = number, verified = 0, failed = 0, cancelled = 0, live = 0 }
  T.emit(S, G, 'mission.created', '', a[4], { a[3], a[6], a[7], a[8], T.int(number) })
  G.ids, G.mission = {}, { 'digest', a[3], 'created', T.int(S.now), 'state', 'active', 'objective', a[5], 'owner', a[4],
    'account', a[6], 'weight', a[7], 'class', a[8], 'deadline', a[9], 'caps', table.concat(capabilities(a, first), ' ') }
  for i = first, #a, FIELDS do
    add_item(S, G, a, i)
    G.ids[#G.ids + 1] = a[i]
  end
  T.commit(S)
  local envelope = T.envelope(S)
  T.ring_timer(S, string.match(envelope, '^%S+ (%S+)'))
  return { envelope, T.int(S.now) .. ' 0', unoffered(S, a, first) }
end
