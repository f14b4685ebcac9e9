-- install_session: Makes a Session Epoch the current one in one partition; the Agent's older leases are revoked there.
-- keys: the partition's @meta
-- args: replid agent session ttl_ms slots lives set capabilities after
-- bound: 256 items requeued a call; "more" asks for another
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION
-- events: work.requeued work.released work.offer.created work.parked
--
-- What the older session held goes back to `queued`, owned by the new one, once (WRK-014); what is blocked stays so, and
-- belongs to nobody; a run that was asked for its slot goes to everybody, as it would have at its safe point. `lives` is 1
-- where the process that held it is the one that asks: else a run that is lost a second time without a new Checkpoint is
-- released, to wait or to be parked. `after` is '-', or the Group and item that the call before answered with "more". The
-- Agent's home partition knows the last epoch minted, and refuses an older one. The reply: envelope, "done" or "more group
-- item", the grant lines of what the Agent owns, then inputs and contract of each.
local function requeue(S, G, it, lives)
  local ran, by, asked = it.st == 'active', S.agent .. '@' .. S.epoch, it.ya
  if it.st == 'blocked' then
    T.concern(S, G, S.agent, T.emit(S, G, 'work.released', it.id, by, { it.oe, 'session' }))
    return T.loosen(S, G, it)
  end
  T.disown(S, G, it, ran and math.min(S.now, tonumber(it.lex)) or S.now)
  local start_by = T.int(S.now + 1000 * tonumber(it.sb or T.START_BY_S))
  local seq = T.emit(S, G, 'work.requeued', it.id, by, { it.oe, S.agent, S.epoch, 'session', start_by })
  local lost = ran and not lives
  local back = lost and it.lp and 'lost' or asked and 'asked'
  if back then T.emit(S, G, 'work.released', it.id, by, { it.oe, back }) end
  if lost and back ~= 'lost' then T.put(it, 'lp', '1') end
  if back == 'lost' then
    T.after_loss(S, G, it)
  elseif back then
    T.offer_to_all(S, G, it, 'released')
  else
    T.put(it, 'st', 'queued')
    T.put(it, 'ses', S.epoch)
    T.put(it, 'sby', start_by)
    G.held[S.agent][it.id] = true
    G.due['s ' .. G.name .. ' ' .. it.id] = tonumber(start_by)
  end
  T.concern(S, G, S.agent, seq)
  return not back
end

T.calls.install_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local agent, epoch = a[2], a[3]
  local current = tonumber(string.match(redis.call('HGET', S.base .. '@sessions', agent) or '0', '^%d+'))
  local minted = T.minted(S, agent)
  if math.max(current, minted) > tonumber(epoch) then
    return T.refuse('AUTH_STALE_SESSION', 'agent=' .. agent .. ' session=' .. epoch .. ' current='
      .. T.int(math.max(current, minted)))
  end
  S.agent, S.epoch = agent, epoch
  -- Before the plan: it fences the older session even where every log it wrote to is bad.
  if current < tonumber(epoch) then
    T.unregister(S, agent)
    T.register(S, agent, epoch, a[4], a[5], a[7], a[8])
    T.keep_mint(S, agent, epoch)
  end
  local held, granted = T.held(S, agent, a[9], 256), {}
  for _, pair in ipairs(held) do
    local G = S.groups[pair[1]]
    local it = not T.shut(G) and T.named(S, G, pair[2])
    if it and it.own == agent then
      if it.ses == epoch or requeue(S, G, it, a[6] == '1') then
        granted[#granted + 1] = { G, T.granted(S, G, it, G.seq + #G.events) }
      end
    end
  end
  T.commit(S)
  local lines = {}
  for _, line in ipairs(granted) do
    if not line[1].bad then lines[#lines + 1] = line[2] end
  end
  local reply = T.answer(S, table.concat(lines, '\n'), {})
  reply[3] = reply[2]
  reply[2] = #held == 256 and 'more ' .. held[256][1] .. ' ' .. held[256][2] or 'done'
  return reply
end
