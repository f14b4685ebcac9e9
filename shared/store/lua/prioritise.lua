-- prioritise: Changes the urgency, the deadline or the business impact of a WorkItem; what waits is reordered at once (protocol C8).
-- keys: the partition's @meta
-- args: replid group item actor action urgency deadline_ms impact
-- bound: one item, 16 candidates
-- flags: none
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN INVALID_COMMAND
--   INVALID_STATE_TRANSITION
-- events: work.reprioritised
--
-- Idempotent by its action id. '-' leaves a value as it is; a deadline of 0 is none. An item keeps the moment since when it is
-- queued, so that it ages on. What a Worker owns goes on undisturbed: its new place counts from its next offer on. It orders its
-- own Group only: class, account and weight are not an item's. The reply: envelope, "done" or "repeated", the state it is in now.
local IMPACT_MAX, DEADLINE_DIGITS = 99999, 14

local function whole(text, digits)
  return string.match(text, '^%d+$') and #text <= digits
end

-- What is wrong with what a call brings, or nil.
local function wrong(urgency, deadline, impact)
  if urgency ~= '-' and not T.PATIENCE[urgency] then return 'urgency=' .. urgency end
  if deadline ~= '-' and not whole(deadline, DEADLINE_DIGITS) then return 'deadline_ms=' .. deadline end
  if impact ~= '-' and not (whole(impact, 5) and tonumber(impact) <= IMPACT_MAX) then return 'impact=' .. impact end
  if urgency == '-' and deadline == '-' and impact == '-' then return 'urgency, deadline_ms and impact are all "-"' end
end

local function set(it, field, text, default)
  if text ~= '-' then T.put(it, field, text ~= default and text or nil) end
end

-- The names under which an item stands in the index now: none, where its offer was taken out of it.
local function places(S, G, it)
  local names, found = {}, {}
  if it.st ~= 'offered' then return found end
  for _, agent in ipairs(T.candidates(it.to)) do names[#names + 1] = '>' .. agent end
  if not it.to then names[1] = T.shelf(it.cap) end
  for _, name in ipairs(names) do
    if redis.call('ZSCORE', S.base .. '@take:' .. name, G.name .. ' ' .. it.key) then found[#found + 1] = name end
  end
  return found
end

-- Gives it the place in the order that it would have had, had it been so from the beginning.
local function move(S, G, it, since)
  local names = places(S, G, it)
  for _, name in ipairs(names) do T.stand(G, it, name, false) end
  T.put(it, 'qs', T.int(since))
  T.put(it, 'key', T.sort_key(it, since))
  for _, name in ipairs(names) do T.stand(G, it, name, true) end
end

T.calls.prioritise = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  local it
  it, refused = T.commanded(S, G, a)
  if refused then return refused end
  local fault = wrong(a[6], a[7], a[8])
  if fault then return T.refuse('SCHEMA_VALIDATION_FAILED', fault) end
  if it.act == a[5] then return { T.envelope(S), 'repeated', it.st } end
  if G.state ~= 'active' or T.has_ended(it) then return T.not_in(G, it) end
  local since = it.key and T.queued_since(it)
  set(it, 'urg', a[6], 'normal')
  set(it, 'dl', a[7] == '-' and '-' or T.int(tonumber(a[7]) or 0), '0')
  set(it, 'imp', a[8] == '-' and '-' or T.int(tonumber(a[8]) or 0), '0')
  if since then move(S, G, it, since) end
  T.put(it, 'act', a[5])
  T.emit(S, G, 'work.reprioritised', it.id, a[4], { it.urg or 'normal', it.dl or '0', it.imp or '0' })
  return T.answered(S, G, 'done', it.st)
end
