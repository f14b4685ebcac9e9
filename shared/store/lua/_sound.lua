-- Whether what the store reads is what it wrote: a Group with something else leaves the plan and is halted, others go on.

local NUMBERS = { 'w', 'dep', 'out', 'rel', 'ex', 'oe', 'sby', 'lex', 'ln', 't0', 'est', 'ckn', 'nb', 'fc', 'lp', 'dl', 'sb',
  'imp', 'ox', 'bex', 'tm', 'ya', 'qs', 'ef' }
-- What an item of each state has besides; KEPT: one that is blocked and still somebody's.
local NEEDS = { open = {}, offered = { 'key' }, queued = { 'own', 'oe', 'ses', 'sby' },
  active = { 'own', 'oe', 'ses', 'lid', 'lex', 't0', 'est' }, blocked = {}, submitted = {}, verified = {}, failed = {},
  cancelled = {} }
local KEPT = { 'own', 'oe', 'ses', 'bex' }
-- What stands in a grant's line as it is: with anything else in it the line could not be read, and whoever takes the item ends.
local WORDS = { ckn = '^%d+$', ckd = '^[%w_.-]+$', ckp = '^[%w_.-]+$' }

local function has_words(it)
  for field, shape in pairs(WORDS) do
    if it[field] and not string.find(it[field], shape) then return false end
  end
  return true
end

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
  if it.need and string.gsub(it.need .. ',', '[%w._-]+=%d+,', '') ~= '' then return false end
  return not (it.ckn or it.ckd or it.ckp) or has_words(it)
end

-- Whether what an item comes after is a list of tokens. It may be long, and is looked at where it is told.
function T.is_listed(it)
  return not it.after or not string.find(it.after, '[^%w_.~%% -]')
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
