-- New WorkItems as a call brings them: checked and planned.

-- Arguments of one item: item capability width urgency impact deadline start_by_s not_before retry digest after inputs contract.
T.ITEM_FIELDS = 13
local ITEMS_MAX, BYTES_MAX = 256, 16777216

-- The field that is wrong, or nil: what an item waits for stands before it or is stored, so no cycle can come to be.
function T.wrong_items(S, G, a, first, least)
  local seen, number, bytes = {}, (#a - first + 1) / T.ITEM_FIELDS, 0
  if number < least or number > ITEMS_MAX or number % 1 ~= 0 then
    return 'items=' .. number .. ' (' .. least .. ' to ' .. ITEMS_MAX .. ')'
  end
  for i = first, #a, T.ITEM_FIELDS do
    if seen[a[i]] then return 'item=' .. a[i] .. ' is there twice' end
    for _, other in ipairs(T.words(a[i + 10])) do
      if not seen[other] and not (G and other ~= a[i] and T.item(S, G, other)) then
        return 'item=' .. a[i] .. ' waits for ' .. other .. ', which does not stand before it'
      end
    end
    seen[a[i]] = true
    bytes = bytes + #a[i + 11]
  end
  if bytes > BYTES_MAX then return 'inputs=' .. bytes .. ' bytes (' .. BYTES_MAX .. ' at most)' end
end

local function depend(S, G, it, after)
  local waits = 0
  for _, other in ipairs(T.words(after)) do
    local before = T.item(S, G, other)
    if before.st ~= 'verified' then
      waits = waits + 1
      T.put(before, 'out', before.out and (before.out .. ' ' .. it.id) or it.id)
    end
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
  if a[i + 6] ~= '60' then T.put(it, 'sb', a[i + 6]) end
  local not_before = moment(S, a[i + 7])
  if not_before > S.now then T.put(it, 'nb', T.int(not_before)) end
  if a[i + 8] ~= '' then T.put(it, 'rt', a[i + 8]) end
  if a[i + 9] ~= '' then T.put(it, 'cd', a[i + 9]) end
  local waits = depend(S, G, it, a[i + 10])
  T.put_body(S, G, it, 'in', a[i + 11])
  if a[i + 12] ~= '' then T.put(it, 'ct', a[i + 12]) end
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
