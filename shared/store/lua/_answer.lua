-- What a turn's reply says besides its outcomes.

-- Notes the runs of Events that are about the caller's own items; what others get of this call lies between them.
function T.concern_caller(S, G)
  local runs = {}
  for i, event in ipairs(G.events) do
    if event[3] == S.by or event[1] == 'work.result.accepted' then
      local run = runs[#runs]
      if run and run[2] == G.seq + i - 1 then run[2] = G.seq + i else runs[#runs + 1] = { G.seq + i, G.seq + i } end
    end
  end
  if #runs > 0 then G.bells[S.agent], G.own = { runs[1][1], runs[#runs][2] }, runs end
end

-- A line a run: "@ group previous first last", an unbroken chain from what concerned the caller before; behind it the
-- incarnation of a log that was made anew.
function T.bell_lines(S, G, lines)
  if G.bad or not G.own then return end
  local previous, made = G.bells[S.agent][3], G.incarnation == '1' and '' or ' ' .. G.incarnation
  for _, run in ipairs(G.own) do
    lines[#lines + 1] = table.concat({ '@', G.name, previous, T.int(run[1]), T.int(run[2]) }, ' ') .. made
    previous = T.int(run[2])
  end
end

-- The directory entries a turn is answered with: Group, capability and the code of each of its takes, and the Groups whose
-- service or work it changed otherwise, so that a Worker does not go on counting runs that it ended itself.
function T.asked(S, a, operations, short)
  local asked, number, seen, touched = {}, 0, {}, {}
  for code in string.gmatch('\n' .. short, '\n([%u_]+) ') do
    number = number + 1
    local i = operations[number]
    if a[i] == 'take' then
      asked[#asked + 1] = { a[i + 1], a[i + 2], code }
      seen[a[i + 1] .. ' ' .. a[i + 2]] = true
    end
  end
  for _, G in ipairs(S.order) do
    for cap in pairs(G.dir) do touched[#touched + 1] = G.name .. ' ' .. cap end
  end
  table.sort(touched)
  for _, name in ipairs(touched) do
    if not seen[name] then asked[#asked + 1] = T.words(name) end
  end
  return asked
end

-- The bodies of what was granted: its inputs and its contract. What was done is done: where a key is of another type by now
-- there is nothing to read, and the caller finds that item damaged.
local function add_bodies(S, reply, group, id)
  local G = S.groups[group]
  local it = G and G.items[id]
  if not it then
    local stored = T.try('HMGET', S.base .. group .. ':i:' .. id, 'in', 'ct') or {}
    it = { ['in'] = stored[1] or nil, ct = stored[2] or nil }
  end
  reply[#reply + 1] = it['in'] or T.try('GET', S.base .. group .. ':in:' .. id) or ''
  reply[#reply + 1] = it.ct or ''
end

-- The parts of a turn's reply that are not kept: they are read fresh, for a repeated call too.
function T.answer(S, short, asked, is_repeated)
  local entries = {}
  for i, ask in ipairs(asked) do entries[i] = T.entry(S, ask[1], ask[2], ask[3]) end
  T.node_lines(S, T.told_nodes(S, is_repeated), entries)
  local reply = { T.finish(S), short, table.concat(entries, '\n') }
  for mark, group, id, name in string.gmatch('\n' .. short, '\n([+*]) (%S+) (%S+) (%S+)') do
    if mark == '*' then
      reply[#reply + 1] = T.try('HGET', S.base .. group .. ':ef:' .. id, name) or ''
    else
      add_bodies(S, reply, group, id)
    end
  end
  return reply
end
