-- What a receipt says of the capabilities that new WorkItems need.

-- Capabilities of the items from `first` on, each once, in their order.
function T.capabilities(a, first)
  local seen, list = {}, {}
  for i = first + 1, #a, T.ITEM_FIELDS do
    if not seen[a[i]] then list[#list + 1] = a[i] end
    seen[a[i]] = true
  end
  return list
end

-- What a receipt says of the live sessions: capabilities that none offers, then "capability:slots" where an item is wider
-- than the largest that offers it.
function T.unoffered(S, a, first)
  local missing, narrow, widest = {}, {}, {}
  for i = first, #a, T.ITEM_FIELDS do
    widest[a[i + 1]] = math.max(widest[a[i + 1]] or 1, tonumber(a[i + 2]))
  end
  for _, cap in ipairs(T.capabilities(a, first)) do
    if not redis.call('HGET', S.base .. '@caps', cap) then
      missing[#missing + 1] = cap
    elseif widest[cap] > 1 then
      local slots = T.largest(S, cap)
      if slots < widest[cap] then narrow[#narrow + 1] = cap .. ':' .. T.int(slots) end
    end
  end
  return table.concat(missing, ' '), table.concat(narrow, ' ')
end
