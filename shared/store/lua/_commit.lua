-- Writes a call's plan: first the first Event of each Group, then everything else, the sequences last (design.md 3.2).

-- The only `pcall` of the library. A Group whose log is not at its stored sequence leaves the plan and is halted, in
-- partition keys alone, like one that the plan itself found damaged; the others go on.
local function open_logs(S)
  for _, G in ipairs(S.order) do
    local event = G.events[1]
    if event and not G.fresh and not G.bad then
      local done = redis.pcall('XADD', S.base .. G.name .. ':log', 'NOMKSTREAM', T.int(G.seq + 1) .. '-0', 't',
        T.int(S.now), 'k', event[1], 'i', event[2], 'b', event[3], 'd', event[4])
      if type(done) == 'table' and done.err then G.bad = 'LOG_FOREIGN' elseif not done then G.bad = 'LOG_REBORN' end
    end
  end
end

local function append(S, G)
  for i = G.fresh and 1 or 2, #G.events do
    local event = G.events[i]
    redis.call('XADD', S.base .. G.name .. ':log', T.int(G.seq + i) .. '-0', 't', T.int(S.now), 'k', event[1],
      'i', event[2], 'b', event[3], 'd', event[4])
  end
end

local function save_items(S, G)
  for id, it in pairs(G.items) do
    if it then
      local set, gone = {}, {}
      for field, value in pairs(it.set) do
        set[#set + 1] = field
        set[#set + 1] = value
      end
      for field in pairs(it.gone) do gone[#gone + 1] = field end
      local key = S.base .. G.name .. ':i:' .. id
      if #set > 0 then redis.call('HSET', key, unpack(set)) end
      if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
    end
  end
  for key, bytes in pairs(G.bodies) do
    if bytes then redis.call('SET', key, bytes) else redis.call('DEL', key) end
  end
end

local function save_mission(S, G)
  if not G.count then return end
  local key = S.base .. G.name .. ':mission'
  if G.ids then
    T.many('RPUSH', S.base .. G.name .. ':items', G.ids)
    T.many('HSET', key, G.mission)
  end
  local c = G.count
  redis.call('HSET', key, 'total', T.int(c.total), 'verified', T.int(c.verified), 'failed', T.int(c.failed),
    'cancelled', T.int(c.cancelled), 'live', T.int(c.live))
  if not G.ended then return end
  redis.call('HSET', key, 'state', G.ended, 'ended', T.int(S.now))
  for _, client in ipairs(redis.call('SMEMBERS', S.base .. G.name .. ':wait')) do
    T.push(S, client, G.name .. ' 0 0 ' .. T.int(G.seq + #G.events))
  end
  redis.call('DEL', S.base .. G.name .. ':wait')
end

function T.record(G)
  return table.concat({ G.state, string.format('%.17g', G.weight), G.account, G.class, G.incarnation }, ' ')
end

-- Commits the plan. Afterwards `G.bad` says which Groups were halted, and nothing of theirs but that was written.
function T.commit(S)
  open_logs(S)
  local W = { seqs = {}, groups = {}, members = {}, due = {}, undue = {}, held = {}, add = {}, del = {}, runs = {},
    usage = {}, live = {}, touch = {}, dead = {} }
  for _, G in ipairs(S.order) do
    if G.bad then
      G.state = 'halted:' .. G.bad
      T.halt(S, G, W)
    else
      append(S, G)
      save_items(S, G)
      save_mission(S, G)
      T.collect(S, G, W)
    end
  end
  T.flush(S, W)
end
