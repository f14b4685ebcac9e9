-- install_session: Makes a Session Epoch the current one in one partition; the Agent's older leases are revoked there.
-- keys: the partition's @meta
-- args: replid agent session ttl_ms set capabilities
-- bound: 256 items requeued a call; "more" asks for another
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION
-- events: work.requeued
--
-- What the older session held goes back to `queued`, owned by the new one, once (WRK-014). The reply: envelope, "done" or
-- "more", the grant lines of what was requeued, then inputs and contract of each.
T.calls.install_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local agent, epoch = a[2], a[3]
  local record = redis.call('HGET', S.base .. '@sessions', agent)
  local current = record and tonumber(string.match(record, '^%d+')) or 0
  if current > tonumber(epoch) then
    return T.refuse('AUTH_STALE_SESSION', 'agent=' .. agent .. ' session=' .. epoch .. ' current=' .. T.int(current))
  end
  S.agent, S.epoch = agent, epoch
  if current < tonumber(epoch) then
    T.unregister(S, agent)
    T.register(S, agent, epoch, a[4], a[5], a[6])
  end
  local held, lines, more = T.held(S, agent, 256), {}, false
  for _, pair in ipairs(held) do
    local G = S.groups[pair[1]]
    local it = not T.closed(G) and T.item(S, G, pair[2])
    if it and it.own == agent and it.ses ~= epoch then
      local lapsed = it.st == 'active' and math.min(S.now, tonumber(it.lex)) or S.now
      T.disown(S, G, it, lapsed)
      T.put(it, 'st', 'queued')
      T.put(it, 'ses', epoch)
      T.put(it, 'sby', T.int(S.now + 1000 * tonumber(it.sb or '60')))
      G.held[agent][it.id] = true
      G.due['s ' .. G.name .. ' ' .. it.id] = tonumber(it.sby)
      local seq = T.emit(S, G, 'work.requeued', it.id, agent .. '@' .. epoch, { it.oe, agent, epoch, 'session' })
      T.concern(S, G, agent, seq)
      more = true
    end
    if it and it.own == agent then lines[#lines + 1] = T.granted(S, G, it, G.seq + #G.events) end
  end
  T.commit(S)
  local short = table.concat(lines, '\n')
  local reply = T.answer(S, short, {})
  reply[2], reply[3] = more and #held == 256 and 'more' or 'done', short
  return reply
end
