-- admit: Lets an Agent whose Membership in a Group was ended in again, with a higher Membership Epoch. Idempotent.
-- keys: the partition's @meta
-- args: replid group agent actor
-- bound: one Agent
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION
-- events: membership.changed
--
-- It sees the log from that Event on. Refused while something it held is still on its way to others (state=expelling). The
-- reply: envelope, "done" or "repeated" (it is not kept out).
T.calls.admit = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local agent, list = a[3], G.key .. ':ended'
  local ended = T.kept_out(S, G, agent)
  if G.bad then return T.halted(S, G) end
  if not ended then return { T.envelope(S), 'repeated' } end
  if G.state ~= 'active' then return T.not_in(G) end
  if redis.call('ZSCORE', S.base .. '@due', 'm ' .. G.name .. ' ' .. agent) then
    return T.refuse('INVALID_STATE_TRANSITION', 'group=' .. G.name .. ' agent=' .. agent .. ' state=expelling')
  end
  local seq = T.emit(S, G, 'membership.changed', '', a[4], { agent, T.int(G.seq + 1) })
  -- Only who has a session is a member; all others become one as ever, with their first acceptance.
  if redis.call('HEXISTS', S.base .. '@sessions', agent) == 1 then
    G.admits = agent
    T.concern(S, G, agent, seq)
  end
  G.bars, G.changed = redis.call('HLEN', list) > 1, true
  T.commit(S)
  if G.bad then return T.refuse(G.bad, 'group=' .. G.name) end
  redis.call('HDEL', list, agent)
  return { T.finish(S), 'done' }
end
