-- Offers to some Workers only, and offers that expire (protocol R24). `to` of an item says whom: "named:a,b" or
-- "preferred:a,b", those who are still asked; nil is everybody. Such an offer stands in the index and the directory of each
-- of them, under ">agent", and of no capability. `om`: how long an offer of it holds; `ox`: when the present one expires.
T.CANDIDATES_MAX = 16
T.OFFER_MS_MAX = 2592000000

-- Who is asked, as a list.
function T.candidates(to)
  local agents = {}
  for agent in string.gmatch(string.match(to or '', ':(.*)$') or '', '[^,]+') do agents[#agents + 1] = agent end
  return agents
end

-- What is wrong with an offer as a call brings it, "to milliseconds", or nil; '' is an offer to everybody, for ever.
function T.wrong_offer(offer)
  if offer == '' then return end
  local to, ms = string.match(offer, '^(%S+) (%d+)$')
  local mode = to and string.match(to, '^(%a+):[^:]+$')
  local number = #T.candidates(to)
  if not to or #ms > 10 or tonumber(ms) > T.OFFER_MS_MAX or number > T.CANDIDATES_MAX
    or (to ~= '-' and mode ~= 'named' and mode ~= 'preferred') or (to ~= '-' and number == 0)
    or (mode == 'preferred' and tonumber(ms) == 0) then
    return 'offer=' .. offer .. ' (named or preferred, ' .. T.CANDIDATES_MAX .. ' Workers, ' .. T.OFFER_MS_MAX .. ' ms at most)'
  end
end

-- Plans whom an item is offered to from now on, and how long each time.
function T.direct(it, offer)
  local to, ms = string.match(offer, '^(%S+) (%d+)$')
  T.put(it, 'to', to ~= '-' and to or nil)
  T.put(it, 'om', ms and tonumber(ms) > 0 and ms or nil)
end

-- The Event of an offer to some, or for a time: who is asked is rung, and a tick ends it.
function T.announce(S, G, it, cause, by)
  local expires = it.om and S.now + tonumber(it.om) or 0
  if it.om then
    T.put(it, 'ox', T.int(expires))
    G.due['o ' .. G.name .. ' ' .. it.id] = expires
  end
  local seq = T.emit(S, G, 'work.offer.created', it.id, by, { it.cap, cause, it.to or '-', T.int(expires) })
  -- Of a Mission that is still hidden nobody hears; its sealing rings.
  if G.state == 'loading' then return end
  for _, agent in ipairs(T.candidates(it.to)) do T.concern(S, G, agent, seq) end
end

-- One who was asked is not any more.
function T.unlist(G, it, agent)
  T.stand(G, it, '>' .. agent, false)
  G.dir['>' .. agent] = 'check'
end

-- Takes an item's offer back: out of every index and directory it stands in.
function T.retract(G, it)
  if it.to then
    for _, agent in ipairs(T.candidates(it.to)) do T.unlist(G, it, agent) end
  else
    T.index(G, it, false)
    local name = T.shelf(it.cap)
    G.dir[name] = G.dir[name] or 'check'
  end
  if it.ox then
    T.put(it, 'ox', nil)
    G.due['o ' .. G.name .. ' ' .. it.id] = false
  end
end

-- Whether the present offer of an item is over by Redis' time, whether or not a tick has seen it.
function T.is_offer_over(S, it)
  return it.ox and tonumber(it.ox) <= S.now
end

-- Whether an Agent is asked by an item's offer: all are, where it names nobody.
function T.is_asked(it, agent)
  for _, asked in ipairs(T.candidates(it.to)) do
    if asked == agent then return true end
  end
  return not it.to
end

-- What preferred Workers let pass is offered to everybody, for good.
function T.move_on(S, G, it, cause)
  T.direct(it, '- 0')
  T.offer(S, G, it, cause)
end

-- o: an offer is over. A preferred one moves on; of any other nothing is appended: it can only not be accepted any more.
function T.expire_offer(S, G, it, member)
  G.due[member] = false
  if not it or it.st ~= 'offered' or not it.ox or G.state == 'cancelled' or G.state == 'ended' then return end
  if tonumber(it.ox) > S.now then
    G.due[member] = tonumber(it.ox)
    return
  end
  local over = it.ox
  T.retract(G, it)
  G.due[member] = false
  if it.to and string.sub(it.to, 1, 1) == 'p' then T.move_on(S, G, it, 'expired') else T.put(it, 'ox', over) end
end
