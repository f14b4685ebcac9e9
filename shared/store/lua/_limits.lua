-- What a take may give at most: budgets and quotas of its Group, account and class (scheduler.md, rules 2 and 5).

-- Fields of a take's `limits`, each a whole number or '-': the charge in this partition up to which a Group, account and class
-- is served; the widths that may run of a Group and account; of both how much may be taken in one window of Redis' time.
local FIELDS = '^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+)$'

-- Whether every text is '-' or like the pattern.
local function are(pattern, ...)
  for _, text in ipairs({ ... }) do
    if text ~= '-' and not string.find(text, pattern) then return false end
  end
  return true
end

-- The limits of a take, nil for none ('-'), false for what is none.
function T.limits(text)
  if text == '-' then return nil end
  local charge_g, charge_a, charge_c, slots_g, slots_a, rate_g, rate_a = string.match(text, FIELDS)
  if not rate_a or not are('^%-?%d+$', charge_g, charge_a, charge_c, slots_g, slots_a) or not are('^%d+/[1-9]%d*$', rate_g, rate_a) then
    return false
  end
  return { is_capped = slots_g ~= '-' or slots_a ~= '-', charges = { tonumber(charge_g), tonumber(charge_a), tonumber(charge_c) },
    slots = { tonumber(slots_g), tonumber(slots_a) }, rates = { rate_g, rate_a } }
end

-- Whether an item of this width can be given: what has a cap is not accepted ahead of its start.
function T.has_room(S, limits, width)
  return width <= S.slots or S.ahead > 0 and not (limits and limits.is_capped)
end

-- The service of a Group (1), its account (2) or its class (3) as far as it is planned.
local function service(S, G, level)
  return level == 1 and G.usage or T.service(S, G, level - 1)
end

-- How much was taken of a Group (1) or account (2) in the present window, how much may be, and when the window ends.
local function rate(S, G, level, text)
  local node = level == 1 and 'g:' .. G.name or 'a:' .. G.account
  local allowed, window = string.match(text, '^(%d+)/(%d+)$')
  local number = math.floor(S.now / tonumber(window))
  local taken = S.rates and S.rates[node]
  if not taken then
    local first, count = string.match(redis.call('HGET', S.base .. '@rates', node) or '', '^(%d+) (%d+)$')
    taken = { number = number, count = tonumber(first) == number and tonumber(count) or 0 }
    S.rates = S.rates or {}
    S.rates[node] = taken
  end
  return taken, tonumber(allowed), (number + 1) * tonumber(window)
end

-- Whether a Group (1) or account (2) has its quota with this width more, and until when where that is known.
local function is_full(S, G, limits, level, width)
  local slots = limits.slots[level]
  if slots and service(S, G, level).running + width > slots then return true end
  if limits.rates[level] == '-' then return false end
  local taken, allowed, ends = rate(S, G, level, limits.rates[level])
  return taken.count >= allowed, ends
end

-- Why nothing of this width may be taken now (QUOTA with the end of its window, or SHARE); nil where it may.
function T.limited(S, G, limits, width)
  if not limits then return nil end
  for level = 1, 2 do
    local full, ends = is_full(S, G, limits, level, width)
    if full then return 'QUOTA', ends and '0 ' .. T.int(ends) end
  end
  for level = 1, 3 do
    local most = limits.charges[level]
    local u = most and service(S, G, level)
    if u and u.used + math.max(u.running * (S.now - T.EPOCH) - u.starts, u.estimate) > most then return 'SHARE' end
  end
end

-- Whether a Group is at its own cap: until it leaves it, it is not ready (rule 3).
function T.is_at_cap(S, G, limits)
  return limits and is_full(S, G, limits, 1, 1)
end

-- Counts one that was taken.
function T.count_rates(S, G, limits)
  for level = 1, 2 do
    if limits.rates[level] ~= '-' then
      local taken = rate(S, G, level, limits.rates[level])
      taken.count, taken.more = taken.count + 1, true
    end
  end
end

function T.write_rates(S)
  if not S.rates then return end
  local list = {}
  for node, taken in pairs(S.rates) do
    if taken.more then
      list[#list + 1] = node
      list[#list + 1] = T.int(taken.number) .. ' ' .. T.int(taken.count)
    end
  end
  T.many('HSET', S.base .. '@rates', list)
end
