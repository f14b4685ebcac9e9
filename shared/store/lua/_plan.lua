-- New WorkItems as a call brings them: checked and planned.

-- Arguments of one item: item capability width urgency impact deadline start_by_s not_before retry digest after inputs contract
-- offer timeout_ms (0 for none) gates: `approval` where a person must give it, `risk:low` or `risk:high`;
-- resources it needs (`_resources.lua`).
T.ITEM_FIELDS = 17
local ITEMS_MAX, INPUTS_BYTES_MAX, EDGES_MAX, DEPENDENTS_MAX = 256, 16777216, 1024, 16384
T.CAPS_MAX = 512

-- What is wrong with the dependencies of one item, or nil: each stands before it or is stored, and not too many wait for one.
local function wrong_after(S, G, id, after, seen, outs)
  for _, other in ipairs(after) do
    local stored = not seen[other] and G and other ~= id and T.item(S, G, other)
    if not seen[other] and not stored then
      return 'item=' .. id .. ' waits for ' .. other .. ', which does not stand before it'
    end
    outs[other] = (outs[other] or (stored and tonumber(stored.out or '0')) or 0) + 1
    if outs[other] > DEPENDENTS_MAX then return 'item=' .. other .. ' dependents=' .. outs[other] end
  end
end

function T.wrong_timeout(text)
  if not string.match(text, '^%d+$') or #text > 14 then return 'timeout_ms=' .. text end
end

-- The field that is wrong, or nil. No cycle can come to be, since what an item waits for stands before it.
function T.wrong_items(S, G, a, first, least)
  local seen, outs, number = {}, {}, (#a - first + 1) / T.ITEM_FIELDS
  local bytes, edges = 0, 0
  if number < least or number > ITEMS_MAX or number % 1 ~= 0 then
    return 'items=' .. number .. ' (' .. least .. ' to ' .. ITEMS_MAX .. ')'
  end
  for i = first, #a, T.ITEM_FIELDS do
    if seen[a[i]] then return 'item=' .. a[i] .. ' is there twice' end
    local after = T.words(a[i + 10])
    edges = edges + #after
    if edges > EDGES_MAX then return 'dependencies=' .. edges .. ' in one call (' .. EDGES_MAX .. ' at most)' end
    local fault = wrong_after(S, G, a[i], after, seen, outs) or T.wrong_offer(a[i + 13])
      or T.wrong_timeout(a[i + 14]) or T.wrong_gates(a[i + 15]) or T.wrong_need(a[i + 16])
    if fault then return fault end
    seen[a[i]] = true
    bytes = bytes + #a[i + 11]
  end
  if bytes > INPUTS_BYTES_MAX then return 'inputs=' .. bytes .. ' bytes (' .. INPUTS_BYTES_MAX .. ' at most)' end
end

-- Notes who waits for what; what was verified before is not waited for, but its result is asked for: it is noted too.
local function depend(S, G, it, after)
  local waits = 0
  for _, other in ipairs(T.words(after)) do
    local before = T.item(S, G, other)
    if before.st ~= 'verified' or before.rel then waits = waits + 1 end
    G.outs[other] = G.outs[other] or {}
    table.insert(G.outs[other], it.id)
    T.put(before, 'out', T.int(tonumber(before.out or '0') + 1))
  end
  if after ~= '' then T.put(it, 'after', after) end
  if waits > 0 then T.put(it, 'dep', T.int(waits)) end
  return waits
end

-- A moment as a client writes it: nothing, a time, or "+" and milliseconds from the store's now.
local function moment(S, text)
  local later = string.match(text, '^%+(%d+)$')
  return later and S.now + tonumber(later) or tonumber(text) or 0
end

-- Plans the item whose arguments begin at `i`, and offers it where it waits for nothing.
function T.add_item(S, G, a, i)
  local it = T.new_item(G, a[i])
  T.put(it, 'cap', a[i + 1])
  T.put(it, 'st', 'open')
  if a[i + 2] ~= '1' then T.put(it, 'w', a[i + 2]) end
  if a[i + 3] ~= 'normal' then T.put(it, 'urg', a[i + 3]) end
  if a[i + 4] ~= '0' then T.put(it, 'imp', a[i + 4]) end
  if a[i + 5] ~= '0' then T.put(it, 'dl', a[i + 5]) end
  if tonumber(a[i + 6]) ~= T.START_BY_S then T.put(it, 'sb', a[i + 6]) end
  local not_before = moment(S, a[i + 7])
  if not_before > S.now then T.put(it, 'nb', T.int(not_before)) end
  if a[i + 8] ~= '' then T.put(it, 'rt', a[i + 8]) end
  if a[i + 9] ~= '' then T.put(it, 'cd', a[i + 9]) end
  local waits = depend(S, G, it, a[i + 10])
  T.put_body(S, G, it, 'in', a[i + 11])
  if a[i + 12] ~= '' then T.put(it, 'ct', a[i + 12]) end
  if a[i + 14] ~= '0' then T.put(it, 'tm', a[i + 14]) end
  if a[i + 13] ~= '' then T.direct(it, a[i + 13]) end
  if a[i + 15] ~= '' then T.put_gates(it, a[i + 15]) end
  if a[i + 16] ~= '' then T.put(it, 'need', a[i + 16]) end
  local seq = T.emit(S, G, 'work.authorized', it.id, G.actor, { a[i + 1], a[i + 2], T.int(#T.words(a[i + 10])) })
  G.ids[#G.ids + 1] = it.id
  if G.grown then
    G.ranks = G.ranks or {}
    G.ranks[#G.ranks + 1], G.ranks[#G.ranks + 2] = T.int(seq), it.id
  end
  G.count.total = G.count.total + 1
  if waits == 0 then
    G.count.live = G.count.live + 1
    T.offer_when_due(S, G, it, 'created')
  end
end
