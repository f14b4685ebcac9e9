-- end_membership: Ends an Agent's Membership in a Group, at once: what it holds there goes to others, what it asks is refused.
-- keys: the partition's @meta
-- args: replid group agent actor reason
-- bound: 64 items, the rest by ticks; 1,024 Agents kept out of a Group
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION BACKPRESSURE
-- events: membership.ended work.released work.offer.created
--
-- It need not be a member, nor there: it is kept out until it is let in. The reply: envelope, "done" or "repeated", how many
-- items it lost in this call, and the Membership Epoch that ended, 0 for none.
T.calls.end_membership = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local agent = a[3]
  if T.kept_out(S, G, agent) then return { T.envelope(S), 'repeated', '0', '0' } end
  if G.bad then return T.halted(S, G) end
  if G.state ~= 'active' then return T.not_in(G) end
  local list = G.key .. ':ended'
  if G.bars and redis.call('HLEN', list) >= T.BARS_MAX then
    return T.refuse('BACKPRESSURE', 'group=' .. a[2] .. ' keeps ' .. T.int(T.BARS_MAX) .. ' Agents out already')
  end
  local joined = S.base .. '@joined:' .. agent
  local epoch = string.match(redis.call('HGET', joined, G.name) or '0', '^%d+')
  local seq = T.emit(S, G, 'membership.ended', '', a[4], { agent, epoch, a[5] })
  T.concern(S, G, agent, seq)
  local lost = T.expel(S, G, agent)
  G.bars, G.changed = true, true
  T.commit(S)
  if G.bad then return T.refuse(G.bad, 'group=' .. G.name) end
  redis.call('HSET', list, agent, T.int(seq))
  redis.call('HDEL', joined, G.name)
  return { T.finish(S), 'done', T.int(lost), epoch }
end
