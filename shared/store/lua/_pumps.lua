-- What ticks carry on, a chunk a call: withdrawn and outdated items, unfinished loads, silent sessions.

-- A page of a Mission's items from a position on, and the position behind it: a place in the list, or of a Mission that
-- grew the sequence of the last one, for there items go while others stay.
function T.page(S, G, from)
  local key = S.base .. G.name
  if not G.grown then
    local ids = T.listed(G, 'LRANGE', key .. ':items', from, from + S.release_left - 1)
    return ids, from + #ids
  end
  local flat, ids = T.listed(G, 'ZRANGEBYSCORE', key .. ':jobs', '(' .. T.int(from), '+inf', 'WITHSCORES', 'LIMIT', 0,
    S.release_left), {}
  for i = 1, #flat, 2 do ids[#ids + 1] = flat[i] end
  return ids, tonumber(flat[#flat] or '0')
end

-- c: the items of an ended Mission that have not ended are cancelled, and their Workers told.
function T.pump_cancel(S, G, from, member)
  local ids, next_from = T.page(S, G, from)
  G.due[member] = false
  if #ids == 0 then return T.keep_items(S, G) end
  local reason = G.state == 'cancelled' and 'mission_cancelled' or 'mission_failed'
  for _, id in ipairs(ids) do
    local it = T.named(S, G, id)
    if not it then return end
    if not T.has_ended(it) then T.cancel_item(S, G, it, 'policy', reason) end
  end
  S.release_left = S.release_left - #ids
  G.due['c ' .. G.name .. ' ' .. T.int(next_from)] = S.now
end

-- z: the time for which an ended Mission was kept is over: its items go, and with the last of them its Group. Where an
-- archive is required it stays until it has one (`archived.lua` makes it due again).
T.UNARCHIVED_MS = 600000
function T.pump_expire(S, G, member)
  if redis.call('HGET', S.base .. '@meta', 'archive') and not redis.call('HGET', G.key .. ':mission', 'archive') then
    G.due[member] = S.now + T.UNARCHIVED_MS
    return
  end
  local ids = T.page(S, G, 0)
  G.due[member] = #ids > 0 and S.now or false
  G.doomed, G.buried = ids, #ids == 0
  S.release_left = S.release_left - (G.buried and T.BURIAL or #ids)
end

-- u: a load that was never sealed is removed as if it had not been, so long after its last chunk.
T.LOAD_MS = 3600000
function T.pump_unload(S, G, member)
  G.due[member] = false
  if G.state ~= 'loading' then return end
  local ids = T.page(S, G, 0)
  for _, id in ipairs(ids) do
    local it = T.named(S, G, id)
    if not it then return end
    if it.st == 'offered' then T.retract(G, it) end
    T.unhold(G, it)
  end
  local count = T.counts(S, G)
  count.total = count.total - #ids
  G.doomed, G.gone = ids, #ids == 0
  S.release_left = S.release_left - #ids
  if #ids > 0 then G.due[member] = S.now end
end

-- x: a session that was silent for too long is ended like one that closes.
function T.silence(S, agent, epoch, member)
  local due = redis.call('ZSCORE', S.base .. '@due', member)
  if not due or tonumber(due) > S.now then return end
  local record = redis.call('HGET', S.base .. '@sessions', agent)
  if not record or string.match(record, '^%d+') ~= epoch then
    S.strays[#S.strays + 1] = { S.base .. '@due', member }
  elseif S.release_left > 0 then
    local done, looked = T.abandon(S, agent, epoch, 'silent', S.release_left)
    S.release_left = S.release_left - looked
    if done then S.silent[#S.silent + 1] = { agent, epoch } end
  end
end

-- What is due of a Group or item and no timer of a run, by the kind of its entry.
T.PUMPS = {
  m = function(S, G, agent) T.expel(S, G, agent) end,
  g = function(S, G, id, member) T.pump_relist(S, G, tonumber(id) or 0, member) end,
  c = function(S, G, id, member) T.pump_cancel(S, G, tonumber(id) or 0, member) end,
  z = function(S, G, _, member) T.pump_expire(S, G, member) end,
  u = function(S, G, _, member) T.pump_unload(S, G, member) end,
  e = function(S, G, id, member)
    local it = T.item(S, G, id)
    if it then T.expire_item(S, G, it, member) else G.due[member] = false end
  end,
  r = function(S, G, id, member)
    local it = T.named(S, G, id)
    if it and it.rel then T.release(S, G, it) else G.due[member] = false end
  end,
  h = function(S, G, id, member) T.end_hold(S, G, T.item(S, G, id), member) end,
  k = function(S, G, _, member) T.ask_for_snapshot(S, G, member) end,
  v = function(S, G, id, member) T.come_overdue(S, G, T.item(S, G, id), member) end,
}
