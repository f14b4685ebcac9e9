-- WorkItems in memory. Fields of an item's hash:
--   st state, cap capability, key its place in the order (design.md 3.6), w width, need what it needs of resources,
--   tm its time-out, urg imp dl sb: urgency
--   rank, business impact, deadline, start-by seconds; qs since when it is queued, where `key` does not tell;
--   dep unfinished dependencies, after what it waits for, out how many
--   wait for it, rel how many of `out` are released, ex how many of them have been seen to have ended; oe own ses:
--   Ownership Epoch, owner, its session; sby start-by; lid lex ln t0 est: Lease ID, its expiry, how many leases so far,
--   start, charge estimate; ckn ckd: number and digest of the newest Checkpoint, ckp digest of the one before it, dg
--   digest of the result or failure; nb not before, rt retry contract, fc failures and lp lost runs so far, hold why it is
--   parked, bad what of it is damaged, br since when and why it is blocked, bex expiry of its blocked lease, sd what was last
--   disclosed of it, pg how far its latest run said it is (progress.lua), ap Approval: wanted or given, rk risk, cd
--   digest of its content, act last action, wt somebody waits for its end, to ox om whom it is offered to, until when, how
--   long each time, ya by when its run is to reach a safe point that was asked to give its slot up, 0 once
--   it was said that it did not, rsv who keeps slots free for it and until when, ef how many effects (`_effect.lua`) it has.
--   ct contract bytes.
--   Bodies (in inputs; ck0 ck1 the newest two Checkpoints, by the parity of their numbers; rs result, fl failure, nd what it
--   needs that is blocked, rv the resolution of the last block) stand in the field when short, else in a key of their own
--   with their length in `<name>x`.

-- An item in memory. A table that grows field by field is half of what a call costs: these have room from the start.
local function blank(id)
  return { id = id, st = nil, cap = nil, key = nil, own = nil, oe = nil, ses = nil, sby = nil, lid = nil, ln = nil,
    lex = nil, t0 = nil, est = nil, dg = nil, rs = nil, ct = nil, gone = nil, ['in'] = nil,
    puts = { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil } }
end

function T.item(S, G, id)
  local it = G.items[id]
  if it ~= nil then return it end
  local flat = T.try('HGETALL', G.key .. ':i:' .. id)
  it = false
  if not flat or #flat > 0 then
    it = blank(id)
    for i = 1, #(flat or ''), 2 do it[flat[i]] = flat[i + 1] end
    if not T.is_sound(it) then it, G.bad = false, 'LOG_FOREIGN' end
  end
  G.items[id] = it
  return it
end

-- A new item in the plan.
function T.new_item(G, id)
  local it = blank(id)
  G.items[id] = it
  return it
end

-- Plans a field's value, nil for none. `puts` is what HSET will be given, `gone` what HDEL; of a field that was planned twice
-- the later pair counts.
function T.put(it, field, value)
  if value == nil then
    if it[field] == nil then return end
    it.gone = it.gone or {}
    it.gone[field] = true
  else
    local puts = it.puts
    local size = #puts
    puts[size + 1], puts[size + 2] = field, value
    if it.gone then it.gone[field] = nil end
  end
  it[field] = value
end

-- Of an item that says nothing else: how long its acceptance holds without a start.
T.START_BY_S = 60
T.PATIENCE = { critical = 0, high = 300000, normal = 3600000, routine = 86400000 }
T.RANK = { critical = '0', high = '1', normal = '2', routine = '3' }

-- The fixed order inside a Group: effective deadline, urgency, business impact, id (design.md 3.6). It ages by itself.
function T.sort_key(it, queued)
  local urgency = it.urg or 'normal'
  local due = queued + T.PATIENCE[urgency]
  if it.dl then due = math.max(queued, math.min(tonumber(it.dl), due)) end
  return string.format('%014.0f', due) .. T.RANK[urgency]
    .. string.format('%05.0f', 99999 - tonumber(it.imp or '0')) .. ':' .. it.id
    .. (it.w and '*' .. it.w or '') .. (it.tm and '+' .. it.tm or '') .. (it.need and '&' .. it.need or '')
end

-- Since when an item is queued that has a sort key. Without a deadline the key tells.
function T.queued_since(it)
  return tonumber(it.qs) or tonumber(string.sub(it.key, 1, 14)) - T.PATIENCE[it.urg or 'normal']
end

-- The item that a sort key is of. Behind its id stand its width, where that is not 1, its time-out in milliseconds, where it has
-- one, and what it needs of resources: who reads the head of a Group knows without the item whether it fits, and when it is over.
function T.of_key(key)
  return string.match(key, ':([^:*+&]*)[^:]*$') or ''
end
