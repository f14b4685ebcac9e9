-- turn: Carries out a Worker's operations of one round in one partition: saves, ends, starts and takes, in their order.
-- keys: the partition's @meta; builds every other key of the partition from its prefix
-- args: replid agent session ttl_ms tag lane n digest slots ahead token cursors group seq ... operation argument ...
-- bound: 64 operations, 64 items taken, 1 MiB of payload (or one item), 64 dependents released
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION ACTION_ID_COLLISION ACTION_SUPERSEDED LANE_REGRESSED SCHEMA_VALIDATION_FAILED
-- events: none
--
-- Events and refusals of an item are those of its operation (take, start, save, yield, block, release, submit, fail). A refused
-- item changes nothing; the others go on. The reply: envelope; one line an operation, "+" lines of grants, "*" lines of effects
-- whose results are stored, "@" lines (`T.bell_lines`) of what concerns the caller and "= time" of its Events; directory entries
-- of the Groups asked and touched, and of the accounts and classes whose service it read or changed ("% node usage"); then inputs
-- and contract of each grant, "+" and the result of each stored effect. The second part is kept as the lane's last reply.

-- What a call asks for: where its operations and cursors stand, and the Groups they name; or a refusal.
local function parse(a, i)
  local asks = { operations = {}, cursors = {}, names = {} }
  local cursors = tonumber(a[i])
  if not cursors or cursors > 256 then return nil, T.refuse('SCHEMA_VALIDATION_FAILED', 'cursors=' .. tostring(a[i])) end
  for _ = 1, cursors do
    asks.cursors[#asks.cursors + 1] = i + 1
    asks.names[#asks.names + 1] = a[i + 1]
    i = i + 2
  end
  i = i + 1
  while i <= #a do
    local arity = T.arity[a[i]]
    if not arity or i + arity > #a then
      return nil, T.refuse('SCHEMA_VALIDATION_FAILED', 'operation=' .. tostring(a[i]))
    end
    asks.operations[#asks.operations + 1] = i
    asks.names[#asks.names + 1] = a[i + 1]
    i = i + arity + 1
  end
  if #asks.operations > 64 then
    return nil, T.refuse('SCHEMA_VALIDATION_FAILED', 'operations=' .. #asks.operations .. ' (64 at most)')
  end
  return asks
end

local function plan(S, a, asks)
  for _, k in ipairs(asks.cursors) do
    local G = S.groups[a[k]]
    if G then G.cursors[S.agent] = a[k + 1] end
  end
  for _, k in ipairs(asks.operations) do T.ops[a[k]](S, unpack(a, k + 1, k + T.arity[a[k]])) end
  for _, G in ipairs(S.order) do
    T.conclude(S, G)
    T.concern_caller(S, G)
  end
end

local function short_reply(S)
  local lines = {}
  for _, out in ipairs(S.out) do
    local G, code, detail, grants = out[1], out[2], out[3], out[4]
    if G and G.bad then code, detail, grants = G.bad, nil, nil end
    lines[#lines + 1] = code .. ' ' .. (grants and T.int(#grants) or detail or '0')
    for _, line in ipairs(grants or {}) do lines[#lines + 1] = line end
  end
  for _, G in ipairs(S.order) do T.bell_lines(S, G, lines) end
  lines[#lines + 1] = '= ' .. T.int(S.now)
  return table.concat(lines, '\n')
end

T.calls.turn = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or T.session(S, a[2], a[3])
  if refused then return refused end
  S.ttl, S.lease_key = tonumber(a[4]), table.concat({ S.agent, S.epoch, a[5], a[6], a[7], '' }, '.')
  S.lease_end, S.start_by = T.int(S.now + S.ttl), T.int(S.now + 1000 * T.START_BY_S)
  S.capacity, S.slots, S.ahead = a[9], T.slots_of(a[9]), tonumber(a[10])
  S.bytes, S.grants, S.leases, S.out = 0, 0, 0, {}
  local short, asks
  short, refused = T.repeated(S, a[6], a[7], a[8])
  if not refused then asks, refused = parse(a, 12) end
  if refused then return refused end
  T.load(S, asks.names)
  local is_repeated = short ~= nil
  if not is_repeated then
    plan(S, a, asks)
    T.commit(S)
    short = short_reply(S)
    redis.call('HSET', S.base .. '@lanes', S.lane, S.lane_head .. short)
    if a[11] ~= '-' and S.grants == 0 then T.hand_on(S, a[11]) end
  end
  return T.answer(S, short, T.asked(S, a, asks.operations, short), is_repeated)
end
