-- Resources: what a session has besides its slots, and an item needs while it runs: counts by name, "gpu=2,license-x=1". What
-- a session has, what a turn may use and what a grant fills is written with the slots before it: "4,gpu=2,license-x=1".
T.RESOURCES_MAX = 8

local PAIR = '([%w._-]+)=(%d+)'

-- What an item fills, as such a text.
function T.fills(it)
  return (it.w or '1') .. (it.need and ',' .. it.need or '')
end

-- The slots of such a text.
function T.slots_of(text)
  return tonumber(string.match(text, '^%d+'))
end

-- Its counts, by name.
function T.counts_of(text)
  local counts = {}
  for name, count in string.gmatch(text, PAIR) do counts[name] = tonumber(count) end
  return counts
end

-- Whether there is as much of each as an item needs.
function T.covers(counts, need)
  for name, count in string.gmatch(need, PAIR) do
    if (counts[name] or 0) < tonumber(count) then return false end
  end
  return true
end

-- What is left of each to the call's takes.
local function spare(S)
  S.spare = S.spare or T.counts_of(S.capacity)
  return S.spare
end

-- Whether what an item needs is free.
function T.is_spare(S, it)
  return not it.need or T.covers(spare(S), it.need)
end

-- An item is started: less is left to the rest of the call.
function T.fill(S, it)
  if not it.need then return end
  local counts = spare(S)
  for name, count in string.gmatch(it.need, PAIR) do counts[name] = counts[name] - tonumber(count) end
end

-- What is wrong with what a new item needs, as a call brings it, or nil.
function T.wrong_need(text)
  local seen, number = {}, 0
  for part in string.gmatch(text, '[^,]+') do
    local name, count = string.match(part, '^([%l%d][%l%d._-]*)=([1-9]%d*)$')
    number = number + 1
    if not name or #name > 64 or #count > 7 or seen[name] then number = T.RESOURCES_MAX + 1 end
    if name then seen[name] = true end
  end
  if number > T.RESOURCES_MAX or text ~= '' and number == 0 then
    return 'resources=' .. text .. ' (NAME=COUNT,..., ' .. T.RESOURCES_MAX .. ' names at most, each once)'
  end
end
