-- cancel: Cancels a Mission, or one WorkItem in whatever state it is before its end. Idempotent.
-- keys: the partition's @meta
-- args: replid group item actor reason
-- bound: one item; the items of a Mission by ticks, 64 a call
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND INVALID_STATE_TRANSITION
-- events: work.cancelled work.retries_ended mission.cancelled mission.terminated
--
-- `item` is '-' for the Mission: from here on nothing of it starts, is saved or ends; a pump withdraws its items, and their
-- Workers' leases with them. The reply: envelope, "done" or "repeated", the state it is in now.
local function mission(S, G, a)
  if G.state == 'cancelled' then return 'repeated' end
  if G.state ~= 'active' then return end
  T.emit(S, G, 'mission.cancelled', '', a[4], { a[5] })
  T.end_mission(S, G, 'cancelled', 'cancelled')
  return 'done'
end

local function item(S, G, it, a)
  if it.st == 'cancelled' then return 'repeated' end
  if G.state ~= 'active' or T.has_ended(it) then return end
  T.cancel_item(S, G, it, a[4], a[5])
  T.conclude(S, G)
  return 'done'
end

T.calls.cancel = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  if a[3] == '-' then
    local done = mission(S, G, a)
    return done and T.answered(S, G, done, G.state) or T.not_in(G)
  end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  local done = item(S, G, it, a)
  return done and T.answered(S, G, done, it.st) or T.not_in(G, it)
end
