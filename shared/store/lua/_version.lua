-- Versions of capabilities (protocol R27). An item may ask for "name~1.2.0": it stands in the index under "name~1", with all that
-- ask for that major number; a session that does 1.2.0 or a later 1.x registers "name" and "name~1.4.2".

-- The name under which what asks for a capability stands in the index and the directory.
function T.shelf(cap)
  return string.find(cap, '~', 1, true) and string.match(cap, '^[^~]+~%d+') or cap
end

-- Says that what may be taken of an item's Group, or its service, has changed.
function T.touch(G, it)
  local name = T.shelf(it.cap)
  G.dir[name] = G.dir[name] or 'touch'
end

-- Whether what a session registered, separated by commas, will do for an item's capability.
function T.does(registered, cap)
  local listed = ',' .. registered .. ','
  local name, major, minor, patch = string.match(cap, '^([^~]+)~(%d+)%.(%d+)%.(%d+)$')
  if not name then return string.find(listed, ',' .. cap .. ',', 1, true) ~= nil end
  local _, stop = string.find(listed, ',' .. name .. '~' .. major .. '.', 1, true)
  if not stop then return false end
  local has_minor, has_patch = string.match(listed, '^(%d+)%.(%d+)', stop + 1)
  minor, has_minor = tonumber(minor), tonumber(has_minor)
  return has_minor > minor or has_minor == minor and tonumber(has_patch) >= tonumber(patch)
end
