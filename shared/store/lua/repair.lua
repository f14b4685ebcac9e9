-- repair: Gives a halted Group a log made anew, in its next incarnation, and lets it go on. Idempotent by the incarnation.
-- keys: the partition's @meta
-- args: replid group actor reason incarnation through digest total verified failed cancelled live
--   running starts estimate size chunks
-- bound: one Event; its items are listed again by ticks, 64 a call
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN REVISION_CONFLICT INVALID_STATE_TRANSITION
-- events: group.repaired
--
-- `incarnation` is the one that ends. `through` is the last sequence that the old log or the record knew, and `digest` that of
-- the Group's state there, made from its items' hashes, as are the counts and what runs: nobody writes to a halted Group meanwhile. What is
-- in the old log goes. The reply: envelope, "done" or "repeated".

-- A sequence that no Group reaches: an entry above it has the id of somebody's clock.
T.SEQ_MAX = 999999999999
local STANDS = { active = 'active', loading = 'loading', cancelled = 'cancelled', approved = 'ended', failed = 'ended' }

-- The last sequence that the log or the record knows.
function T.last_seq(S, G)
  local last = T.try('XREVRANGE', G.key .. ':log', T.int(T.SEQ_MAX) .. '-0', '-', 'COUNT', 1)
  local seq = last and last[1] and tonumber(string.match(last[1][1], '^%d+')) or 0
  return math.max(seq, G.seq)
end

local function check(S, G, a, mission)
  if G.state == 'ended' or not string.match(G.state, '^halted:') then return T.not_in(G) end
  if G.incarnation ~= a[5] or T.int(T.last_seq(S, G)) ~= a[6] then
    return T.refuse('REVISION_CONFLICT', 'group=' .. G.name .. ' incarnation=' .. G.incarnation .. ' last='
      .. T.int(T.last_seq(S, G)) .. ': look again')
  end
  local gathered = G.key .. ':snap:' .. a[6] .. '.' .. a[7]
  local wrong = T.missing_chunks(gathered, a[16], a[17])
  if wrong then return T.refuse('REVISION_CONFLICT', 'group=' .. G.name .. ' ' .. wrong) end
  if not (mission and STANDS[mission[1]] and tonumber(mission[2]) and mission[3] and mission[4] and tonumber(mission[6])) then
    return T.refuse('LOG_FOREIGN', 'group=' .. G.name .. ' its Mission cannot be read: it cannot be repaired')
  end
end

-- What runs of the Group, with its share in its account and class: a run whose item nobody could read is in none of them.
local function settle(S, G, running, starts, estimate)
  local change = { running = running - G.usage.running, starts = starts - G.usage.starts,
    estimate = estimate - G.usage.estimate }
  for _, node in ipairs({ 'g:' .. G.name, unpack(T.above(G)) }) do
    local packed = redis.call('HGET', S.base .. '@usage', node)
    if packed then
      local u = node == 'g:' .. G.name and G.usage or T.usage(packed)
      for field, by in pairs(change) do u[field] = math.max(0, u[field] + by) end
      redis.call('HSET', S.base .. '@usage', node, T.pack_usage(u))
    end
  end
  G.settled = true
end

T.calls.repair = function(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if refused then return refused end
  if not T.closed(G) and tonumber(G.incarnation) > tonumber(a[5]) then return { T.envelope(S), 'repeated' } end
  local mission = T.try('HMGET', G.key .. ':mission', 'state', 'weight', 'account', 'class', 'form', 'keep', 'expired',
    'incarnation', 'total', 'verified', 'failed', 'cancelled')
  refused = check(S, G, a, mission)
  if refused then return refused end
  redis.call('DEL', G.key .. ':log')
  G.bad, G.fresh, G.seq = nil, true, tonumber(a[6])
  -- A record that nobody could read was written anew without it: the Mission knows it too.
  G.incarnation = T.int(math.max(tonumber(a[5]), tonumber(mission[8]) or 0) + 1)
  G.state, G.weight, G.account, G.class, G.form = STANDS[mission[1]], tonumber(mission[2]), mission[3], mission[4],
    mission[5] or 'whole'
  G.grown, G.bars = G.form == 'open' or G.form == 'sealed', redis.call('EXISTS', G.key .. ':ended') == 1
  -- The old log's Snapshot goes with it, the new log begins with one; where it begins is known, so that it can be trimmed.
  G.ids, G.mission = {}, { 'incarnation', G.incarnation, 'first', T.int(G.seq + 1) }
  G.count = { total = tonumber(a[8]), verified = tonumber(a[9]), failed = tonumber(a[10]), cancelled = tonumber(a[11]),
    live = tonumber(a[12]), keep = tonumber(mission[6]) }
  if tonumber(mission[9]) and tonumber(mission[10]) and tonumber(mission[11]) and tonumber(mission[12]) then
    G.unfinished = mission[9] - mission[10] - mission[11] - mission[12]
  end
  T.emit(S, G, 'group.repaired', '', a[3], { G.incarnation, a[6], a[7], a[4] })
  settle(S, G, tonumber(a[13]), tonumber(a[14]), tonumber(a[15]))
  G.due['g ' .. G.name .. ' 0'] = S.now
  if G.state == 'loading' then G.due['u ' .. G.name .. ' 0'] = S.now + T.LOAD_MS end
  if mission[1] == 'cancelled' or mission[1] == 'failed' then G.due['c ' .. G.name .. ' 0'] = S.now end
  if mission[1] == 'approved' and not mission[7] then T.keep_items(S, G) end
  T.commit(S)
  T.install_snapshot(S, G, G.key .. ':snap:' .. a[6] .. '.' .. a[7], a[6], a[7], a[16], a[17])
  return { T.finish(S), 'done' }
end
