-- What a call holds of each Group: read once, changed in memory, written by `_commit.lua`.

-- Reads the named Groups that are not in memory yet: sequence, record, usage and the caller's Membership of all of them
-- in four commands (design.md 3.1), more where the list is longer than `unpack` can take.
function T.load(S, names)
  local fresh, nodes, rest = {}, {}, {}
  for _, name in ipairs(names) do
    if #fresh == T.SLICE then
      rest[#rest + 1] = name
    elseif S.groups[name] == nil then
      S.groups[name] = false
      fresh[#fresh + 1] = name
      nodes[#nodes + 1] = 'g:' .. name
    end
  end
  if #fresh == 0 then return end
  local seqs = redis.call('HMGET', S.base .. '@seqs', unpack(fresh))
  local records = redis.call('HMGET', S.base .. '@groups', unpack(fresh))
  local usages = redis.call('HMGET', S.base .. '@usage', unpack(nodes))
  local joined = S.agent and redis.call('HMGET', S.base .. '@joined:' .. S.agent, unpack(fresh)) or {}
  for i, name in ipairs(fresh) do
    if records[i] then
      local G = T.group(S, name, tonumber(seqs[i]), records[i], T.usage(usages[i]))
      if S.agent then G.members[S.agent] = joined[i] or '' end
      if S.agent and G.bars then G.kept_out = T.kept_out(S, G, S.agent) end
    end
  end
  if #rest > 0 then T.load(S, rest) end
end

-- A Group in memory. `record` is "state weight account class incarnation form"; states: loading active ended cancelled
-- halted:<why>; forms: whole, load (its items stand in a list), open, sealed (they come and go, in a sorted set). Where
-- Memberships of it were ended, "bars" stands behind; where its slot-time is bounded, "budget=" and so many milliseconds.
function T.group(S, name, seq, record, usage)
  local state, weight, account, class, incarnation, form, more =
    string.match(record, '^(%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*)(.*)$')
  local bad = not seq and 'LOG_FOREIGN' or nil
  if not (tonumber(weight) and tonumber(incarnation)) then
    bad, state, weight, account, class, incarnation, form = 'LOG_FOREIGN', 'active', 1, '-', 'standard', '1', 'whole'
  end
  local G = {
    bad = bad, name = name, key = S.base .. name, seq = seq or 0,
    state = state, weight = tonumber(weight), account = account, class = class,
    incarnation = incarnation, form = form, grown = form == 'open' or form == 'sealed',
    bars = string.find(more or '', ' bars', 1, true) ~= nil, budget = tonumber(string.match(more or '', ' budget=(%d+)') or ''),
    usage = usage, runs = {}, events = {}, items = {}, bodies = {}, due = {}, held = {},
    members = {}, bells = {}, adds = {}, dels = {}, dir = {}, leftover = {}, cursors = {},
    parked = {}, blocked = {}, rung = {}, doomed = {}, outs = {},
  }
  S.groups[name] = G
  S.order[#S.order + 1] = G
  return G
end

-- Appends an Event to the Group's plan and returns its sequence. `data`: its tokens (model.EVENT_FIELDS), a table or joined.
function T.emit(S, G, kind, item, by, data, payload)
  local text = type(data) == 'table' and table.concat(data, ' ') or data
  if payload and payload ~= '' then text = text .. '\n' .. payload end
  G.events[#G.events + 1] = { kind, item, by, text }
  return G.seq + #G.events
end

-- Says that the Events from sequence `first` on, up to the last one planned so far, concern an Agent.
function T.concern(S, G, agent, first)
  local bell = G.bells[agent]
  if bell then bell[2] = G.seq + #G.events else G.bells[agent] = { first, G.seq + #G.events } end
end

-- The code why nothing of this Group may be taken or written now, or nil. `G.bad`: this call found it damaged.
function T.closed(G)
  if not G then return 'GROUP_NOT_FOUND' end
  if G.state == 'active' then return G.bad end
  return G.bad or string.match(G.state, '^halted:(.*)$')
end

-- Likewise for the caller: whose Membership was ended, it has no say here until it is let in again (R6).
function T.shut(G)
  return T.closed(G) or (G.kept_out and 'MEMBERSHIP_STALE' or nil)
end
