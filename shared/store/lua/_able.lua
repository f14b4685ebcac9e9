-- What live sessions are able to do: by capability and version, by slots and resources.

-- The records of the live sessions; read once a call.
local function records(S)
  S.sessions = S.sessions or redis.call('HVALS', S.base .. '@sessions')
  return S.sessions
end

-- What a session's record says of its slots and resources, and of its capabilities.
local function offer_of(record)
  return string.match(record, '^%d+ %S+ %d+ (%S+) (%S*)$')
end

-- Whether a session's capacity and capabilities will do for an item, with all that it has.
local function suits(capacity, capabilities, cap, width, need)
  return width <= T.slots_of(capacity) and T.does(capabilities, cap) and (need == '' or T.covers(T.counts_of(capacity), need))
end

-- Whether the caller's session does work of an item's capability, with all its slots and resources.
function T.is_able(S, it)
  local capacity, capabilities = offer_of(S.record)
  return suits(capacity, capabilities, it.cap, tonumber(it.w or '1'), it.need or '')
end

-- Slots of the largest live session that offers a capability.
function T.largest(S, cap)
  local most = 0
  for _, record in ipairs(records(S)) do
    local capacity, capabilities = offer_of(record)
    if T.does(capabilities, cap) then most = math.max(most, T.slots_of(capacity)) end
  end
  return most
end

-- What live sessions that offer a capability have at most of each resource that an item needs, "gpu=1,license-x=0"; nil where
-- one of them has all of it.
function T.lacking(S, cap, width, need)
  local most = {}
  for _, record in ipairs(records(S)) do
    local capacity, capabilities = offer_of(record)
    if suits(capacity, capabilities, cap, width, need) then return nil end
    if T.does(capabilities, cap) then
      for name, count in pairs(T.counts_of(capacity)) do most[name] = math.max(most[name] or 0, count) end
    end
  end
  local said = {}
  for name in string.gmatch(need, '([^,=]+)=') do said[#said + 1] = name .. '=' .. T.int(most[name] or 0) end
  return table.concat(said, ',')
end
