-- Whether what the store reads is what it wrote: a Group with something else leaves the plan and is halted, others go on.

local NUMBERS = { 'w', 'dep', 'out', 'rel', 'ex', 'oe', 'sby', 'lex', 'ln', 't0', 'est', 'ckn', 'nb', 'fc', 'lp', 'dl', 'sb',
  'imp', 'ox', 'bex', 'tm', 'ya', 'qs', 'ef' }
-- What an item of each state has besides; KEPT: one that is blocked and still somebody's.
local NEEDS = { open = {}, offered = { 'key' }, queued = { 'own', 'oe', 'ses', 'sby' },
  active = { 'own', 'oe', 'ses', 'lid', 'lex', 't0', 'est' }, blocked = {}, submitted = {}, verified = {}, failed = {},
  cancelled = {} }
local KEPT = { 'own', 'oe', 'ses', 'bex' }

-- Whether an item has what every call reckons with.
function T.is_sound(it)
  local needs = it.cap and (it.st == 'blocked' and it.own and KEPT or NEEDS[it.st])
  if not needs then return false end
  for _, field in ipairs(needs) do
    if not it[field] then return false end
  end
  for _, field in ipairs(NUMBERS) do
    if it[field] and not tonumber(it[field]) then return false end
  end
  return true
end

-- An item that the store's own lists name. Where it is not there the Group is damaged.
function T.named(S, G, id)
  local it = T.item(S, G, id)
  if it then return it end
  G.bad = 'LOG_FOREIGN'
  return false
end

-- The elements of a list of a Group's that may be of another type by now.
function T.listed(G, ...)
  local ids = T.try(...)
  if ids then return ids end
  G.bad = 'LOG_FOREIGN'
  return {}
end
