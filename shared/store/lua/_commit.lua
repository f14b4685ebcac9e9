-- Writes a call's plan: first the first Event of each Group, then everything else, the sequences last (design.md 3.2).

-- A Group whose log is not at its stored sequence leaves the plan and is halted, in
-- partition keys alone, like one that the plan itself found damaged; the others go on.
local function open_logs(S)
  for _, G in ipairs(S.order) do
    local event = G.events[1]
    if event and not G.fresh and not G.bad then
      local done, wrong = T.try('XADD', S.base .. G.name .. ':log', 'NOMKSTREAM', T.int(G.seq + 1) .. '-0', 't',
        S.stamp, 'k', event[1], 'i', event[2], 'b', event[3], 'd', event[4])
      if wrong then G.bad = 'LOG_FOREIGN' elseif not done then G.bad = 'LOG_REBORN' end
    end
  end
end

local function append(S, G)
  local call, key, stamp, seq, events = redis.call, G.key .. ':log', S.stamp, G.seq, G.events
  for i = G.fresh and 1 or 2, #events do
    local event = events[i]
    call('XADD', key, T.int(seq + i) .. '-0', 't', stamp, 'k', event[1], 'i', event[2], 'b', event[3], 'd', event[4])
  end
end

-- Each field once: of an item that was planned for again and again, as one with many dependents.
local function once(it)
  local seen, puts = {}, {}
  for i = 1, #it.puts, 2 do
    local field = it.puts[i]
    if not seen[field] and it[field] ~= nil then
      puts[#puts + 1] = field
      puts[#puts + 1] = it[field]
    end
    seen[field] = true
  end
  return puts
end

local function save_items(S, G)
  for id, it in pairs(G.items) do
    if it then
      local puts = it.puts
      if #puts > 40 then puts = once(it) end
      if #puts > 0 then redis.call('HSET', G.key .. ':i:' .. id, unpack(puts)) end
      if it.gone then
        for field in pairs(it.gone) do redis.call('HDEL', G.key .. ':i:' .. id, field) end
      end
      if it.news then redis.call('HSET', G.key .. ':ef:' .. id, unpack(it.news)) end
    end
  end
  for key, bytes in pairs(G.bodies) do
    if bytes then redis.call('SET', key, bytes) else redis.call('DEL', key) end
  end
end

function T.record(G)
  local record = { G.state, string.format('%.17g', G.weight), G.account, G.class, G.incarnation, G.form }
  if G.bars then record[#record + 1] = 'bars' end
  if G.budget then record[#record + 1] = 'budget=' .. T.int(G.budget) end
  return table.concat(record, ' ')
end

-- Commits the plan. Afterwards `G.bad` says which Groups were halted, and nothing of theirs but that was written.
function T.commit(S)
  open_logs(S)
  local W = { seqs = {}, groups = {}, joined = {}, due = {}, undue = {}, held = {}, add = {}, del = {}, runs = {},
    usage = {}, nodes = {}, live = {}, touch = {}, dead = {},
    park = {}, unpark = {}, block = {}, unblock = {} }
  for _, G in ipairs(S.order) do
    if G.bad then
      G.state = 'halted:' .. G.bad
      T.halt(S, G, W)
    else
      append(S, G)
      save_items(S, G)
      T.save_mission(S, G)
      if G.reserves then T.save_reserved(S, G) end
      T.remove_items(S, G)
      T.collect(S, G, W)
      if G.buried then T.bury(S, G) elseif G.gone then T.unload(S, G) end
    end
  end
  T.flush(S, W)
end
