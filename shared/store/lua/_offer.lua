-- Offering, releasing dependents, giving back.

-- Offers an item: from here on it may be accepted, by everybody or by those it is for.
function T.offer(S, G, it, cause, by)
  if not it.key then
    T.put(it, 'key', T.sort_key(it, S.now))
    if it.dl then T.put(it, 'qs', T.int(S.now)) end
  end
  T.put(it, 'nb', nil)
  T.put(it, 'st', 'offered')
  if it.to or it.om then T.announce(S, G, it, cause, by or 'policy')
  else T.emit(S, G, 'work.offer.created', it.id, by or 'policy', it.cap .. ' ' .. cause .. ' - 0') end
  T.index(G, it, true)
end

-- Plans that an item enters or leaves the index under one name.
function T.stand(G, it, name, enters)
  local adds = G.adds[name] or {}
  local dels = G.dels[name] or {}
  G.adds[name], G.dels[name] = adds, dels
  local here, there = enters and adds or dels, enters and dels or adds
  here[it.key] = true
  if there[it.key] then there[it.key] = nil end
  if it.rsv and not enters then T.let_go(G, it) end
end

-- The same under all names it has there: its capability, or those whom it asks.
function T.index(G, it, enters)
  if not it.to then return T.stand(G, it, T.shelf(it.cap), enters) end
  for _, agent in ipairs(T.candidates(it.to)) do T.stand(G, it, '>' .. agent, enters) end
end

-- Ends an item's ownership and lease in the plan; the charge of a run is settled at `at`.
function T.disown(S, G, it, at)
  local timer = it.st == 'active' and 'l ' or 's '
  if it.st == 'active' then T.end_run(S, G, it, at) end
  local held = G.held[it.own] or {}
  G.held[it.own] = held
  held[it.id] = false
  G.due[timer .. G.name .. ' ' .. it.id] = false
  if it.ya then T.unask(G, it) end
  T.put(it, 'lex', '0')
end

-- Gives an item back to everybody: its next acceptance gets a higher Ownership Epoch.
function T.give_back(S, G, it, at, cause)
  T.disown(S, G, it, at)
  T.offer_to_all(S, G, it, cause)
end

function T.offer_to_all(S, G, it, cause)
  T.put(it, 'own', nil)
  T.offer(S, G, it, cause)
end

-- Releases dependents of a verified item, as many as this call may; the rest is a pump that any tick continues.
function T.release(S, G, it)
  local count = T.counts(S, G)
  if not it.out then
    count.live = count.live - 1
    return
  end
  local total, i, ids = tonumber(it.out), tonumber(it.rel or '0'), {}
  if i < total and S.release_left > 0 then
    ids = T.listed(G, 'LRANGE', S.base .. G.name .. ':out:' .. it.id, i, i + S.release_left - 1)
    if #ids == 0 then G.bad = 'LOG_FOREIGN' end
  end
  for _, id in ipairs(ids) do
    i = i + 1
    S.release_left = S.release_left - 1
    -- In a Mission that grew, one that ended before may be gone: its time was over.
    local waiting = G.grown and T.item(S, G, id) or not G.grown and T.named(S, G, id)
    if not waiting and not G.grown then return end
    if waiting and waiting.dep then
      local left = tonumber(waiting.dep) - 1
      T.put(waiting, 'dep', T.int(left))
      if left == 0 and waiting.st == 'open' then
        T.offer_when_due(S, G, waiting, 'released')
        count.live = count.live + 1
      end
    end
  end
  local pump = 'r ' .. G.name .. ' ' .. it.id
  if i < total then
    T.put(it, 'rel', T.int(i))
    G.due[pump] = S.now
  else
    if it.rel then G.due[pump] = false end
    T.put(it, 'rel', nil)
    count.live = count.live - 1
  end
end
