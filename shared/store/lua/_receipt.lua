-- The capabilities of new WorkItems: what their Mission lists, and what a receipt says of them.

-- Capabilities of the items from `first` on, each once, in their order.
function T.capabilities(a, first)
  local seen, list = {}, {}
  for i = first + 1, #a, T.ITEM_FIELDS do
    if not seen[a[i]] then list[#list + 1] = a[i] end
    seen[a[i]] = true
  end
  return list
end

-- A Mission's list of capabilities and candidates with more of them, or nil where these are too many: sealing lists each.
function T.merged(stored, names)
  local list, seen = T.words(stored), {}
  for _, name in ipairs(list) do seen[name] = true end
  for _, name in ipairs(names) do
    if not seen[name] then list[#list + 1] = name end
    seen[name] = true
  end
  if #list <= T.CAPS_MAX then return table.concat(list, ' ') end
end

-- The same with those of the items from `first` on.
function T.merged_capabilities(stored, a, first)
  local names = T.capabilities(a, first)
  for i, cap in ipairs(names) do names[i] = T.shelf(cap) end
  for i = first, #a, T.ITEM_FIELDS do
    for _, agent in ipairs(T.candidates(string.match(a[i + 13], '^%S+'))) do names[#names + 1] = '>' .. agent end
  end
  return T.merged(stored, names)
end

-- How many kinds of items, by what they need, a receipt is asked about.
local NEEDS_MAX = 16

-- Says of items that need resources whether some live session has all that one needs; a capability that none offers is missing.
local function add_lacking(S, a, first, narrow)
  local seen, kinds, told = {}, 0, {}
  for i = first, #a, T.ITEM_FIELDS do
    local cap, need = a[i + 1], a[i + 16]
    local kind = need ~= '' and cap .. ' ' .. a[i + 2] .. ' ' .. need
    if kind and not seen[kind] and not told[cap] and kinds < NEEDS_MAX and T.largest(S, cap) >= tonumber(a[i + 2]) then
      seen[kind], kinds = true, kinds + 1
      local most = T.lacking(S, cap, tonumber(a[i + 2]), need)
      told[cap] = most
      if most then narrow[#narrow + 1] = cap .. ':' .. most end
    end
  end
end

-- What a receipt says of the live sessions: capabilities that none offers, then "capability:slots" where an item is wider
-- than the largest that offers it, or "capability:gpu=1" where none that offers it has all the resources that one needs.
function T.unoffered(S, a, first)
  local missing, narrow, widest = {}, {}, {}
  for i = first, #a, T.ITEM_FIELDS do
    widest[a[i + 1]] = math.max(widest[a[i + 1]] or 1, tonumber(a[i + 2]))
  end
  for _, cap in ipairs(T.capabilities(a, first)) do
    if not redis.call('HGET', S.base .. '@caps', T.shelf(cap)) then
      missing[#missing + 1] = cap
    elseif widest[cap] > 1 or T.shelf(cap) ~= cap then
      local slots = T.largest(S, cap)
      if slots == 0 then missing[#missing + 1] = cap
      elseif slots < widest[cap] then narrow[#narrow + 1] = cap .. ':' .. T.int(slots) end
    end
  end
  add_lacking(S, a, first, narrow)
  return table.concat(missing, ' '), table.concat(narrow, ' ')
end
