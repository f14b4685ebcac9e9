-- seal: Ends the growth of a Mission: one that was loaded becomes active, an open one ends with what it has.
-- keys: the partition's @meta
-- args: replid group actor
-- bound: as many entries as the Mission has capabilities
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_STATE_TRANSITION
-- events: mission.sealed mission.submitted_for_approval mission.approved mission.terminated
--
-- Who is asked by name by its items is rung by this Event. The reply: envelope, "0", or "1" where nothing was left to seal:
-- one that was given whole, or sealed before, for ever. An open one that was cancelled is refused.
local function list(S, G, seq)
  G.due['u ' .. G.name .. ' 0'] = false
  G.usage.entry_ms, G.touched = S.now, true
  for _, cap in ipairs(T.words(redis.call('HGET', S.base .. G.name .. ':mission', 'caps'))) do
    if T.takeable(S, G.name, cap) > 0 then
      G.dir[cap] = 'live'
      if string.byte(cap) == 62 then T.concern(S, G, string.sub(cap, 2), seq) else T.call_for(S, G, cap) end
    end
  end
end

T.calls.seal = function(keys, a)
  local S, refused, G = T.command(keys, a, true)
  if refused then return refused end
  if G.state ~= 'loading' and G.form ~= 'open' then return { T.envelope(S), '1' } end
  if G.state == 'cancelled' then return T.not_in(G) end
  local seq = T.emit(S, G, 'mission.sealed', '', a[3], { T.int(G.count.total) })
  if G.state == 'loading' then list(S, G, seq) end
  G.form = G.form == 'open' and 'sealed' or 'whole'
  G.state, G.changed, G.mission, G.ids = 'active', true, { 'state', 'active', 'form', G.form }, {}
  T.conclude(S, G)
  return T.answered(S, G, '0')
end
