-- offer: Offers a WorkItem again, to everybody or to some Workers, with all its attempts before it. Idempotent by its action id.
-- keys: the partition's @meta
-- args: replid group item actor action offer
-- bound: one item, 16 candidates
-- flags: none
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND WORK_ALREADY_OWNED
--   INVALID_STATE_TRANSITION APPROVAL_REQUIRED
-- events: work.lease_lapsed work.offer.created
--
-- `offer` as an item's (`T.wrong_offer`); it counts for every later offer of the item. It takes an item that is open and waits
-- for no other, offered, failed, parked or blocked without an owner, and one whose owner let its lease or start-by deadline
-- pass: that is fenced first. The reply: envelope, "done" or "repeated".

-- The code why an item cannot be offered now, or nil.
local function closed(S, G, it)
  if G.state ~= 'active' then return 'INVALID_STATE_TRANSITION' end
  local ends = T.held_until(S, it)
  -- In a quarantine nothing lapses.
  if ends and math.max(ends, S.quarantine) > S.now or it.st == 'blocked' and it.own then return 'WORK_ALREADY_OWNED' end
  if it.st == 'verified' or it.st == 'cancelled' or tonumber(it.dep or '0') > 0 then return 'INVALID_STATE_TRANSITION' end
end

local function free(S, G, it)
  if it.st == 'offered' then
    T.retract(G, it)
  elseif it.st == 'queued' or it.st == 'active' then
    T.concern(S, G, it.own, T.end_lapsed(S, G, it, T.held_until(S, it)))
    T.touch(G, it)
  elseif it.st == 'blocked' then
    T.end_block(S, G, it)
  end
end

T.calls.offer = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  if it.act == a[5] then return { T.envelope(S), 'repeated' } end
  local code, fault = closed(S, G, it), T.wrong_offer(a[6])
  if code then
    return T.refuse(code, 'group=' .. G.name .. ' item=' .. it.id .. ' state=' .. it.st .. ' mission=' .. G.state .. ' owner='
      .. (it.own or '-') .. ' dependencies=' .. (it.dep or '0'))
  end
  refused = T.unapproved(G, it)
  if refused then return refused end
  local names = {}
  for _, agent in ipairs(T.candidates(string.match(a[6], '^%S+'))) do names[#names + 1] = '>' .. agent end
  local caps = T.merged(redis.call('HGET', G.key .. ':mission', 'caps'), names)
  fault = fault or (not caps and 'mission=' .. G.name .. ' capabilities and candidates (' .. T.CAPS_MAX .. ' at most)')
  if fault then return T.refuse('SCHEMA_VALIDATION_FAILED', fault) end
  free(S, G, it)
  T.renew_attempts(S, G, it)
  if #names > 0 then G.ids, G.mission = {}, { 'caps', caps } end
  T.put(it, 'act', a[5])
  T.direct(it, a[6])
  T.offer(S, G, it, 'asked', a[4])
  return T.answered(S, G, 'done')
end
