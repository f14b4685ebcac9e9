-- Sessions: who is live in this partition, with which capabilities. A record is "epoch set ttl slots capability,capability";
-- behind the slots stands what it has of resources (`_resources.lua`).

-- A session that neither renews nor closes for this many lease TTLs is ended by a tick (design.md 3.12).
T.SESSION_TTLS = 10
-- Lanes of one session: each keeps one record (design.md 3.5).
T.LANES = 4

-- Counts a set of capabilities among the live ones, or no longer; `@caps` lists the live sets that offer a capability.
local function count_set(S, set, capabilities, by)
  local live = redis.call('HINCRBY', S.base .. '@live', set, by)
  if live == by and by == 1 then
    for capability in string.gmatch(capabilities, '[^,]+') do
      capability = T.shelf(capability)
      local sets = redis.call('HGET', S.base .. '@caps', capability)
      redis.call('HSET', S.base .. '@caps', capability, sets and (sets .. ' ' .. set) or set)
    end
  elseif live <= 0 then
    redis.call('HDEL', S.base .. '@live', set)
    redis.call('DEL', S.base .. '@wake:' .. set)
    for capability in string.gmatch(capabilities, '[^,]+') do
      capability = T.shelf(capability)
      local left = {}
      for _, other in ipairs(T.words(redis.call('HGET', S.base .. '@caps', capability) or '')) do
        if other ~= set then left[#left + 1] = other end
      end
      if #left > 0 then redis.call('HSET', S.base .. '@caps', capability, table.concat(left, ' '))
      else redis.call('HDEL', S.base .. '@caps', capability) end
    end
  end
end

-- Takes a session out of the registry, if it is still the given one, with its lane records and its due entry.
function T.unregister(S, agent, epoch)
  local record = redis.call('HGET', S.base .. '@sessions', agent)
  if not record then return end
  local current, set, capabilities = string.match(record, '^(%d+) (%S+) %d+ %S+ (%S*)$')
  if epoch and current ~= epoch then return end
  count_set(S, set, capabilities, -1)
  redis.call('HDEL', S.base .. '@sessions', agent)
  for lane = 0, T.LANES - 1 do redis.call('HDEL', S.base .. '@lanes', agent .. ' ' .. T.int(lane)) end
  redis.call('ZREM', S.base .. '@due', 'x ' .. agent .. ' ' .. current)
end

function T.register(S, agent, epoch, ttl, slots, set, capabilities)
  redis.call('HSET', S.base .. '@sessions', agent, table.concat({ epoch, set, ttl, slots, capabilities }, ' '))
  count_set(S, set, capabilities, 1)
  T.note_ttl(S, ttl)
  redis.call('ZADD', S.base .. '@due', T.int(S.now + T.SESSION_TTLS * tonumber(ttl)), 'x ' .. agent .. ' ' .. epoch)
end

-- Gives the caller's session another number of slots; its resources stay.
function T.resize(S, slots)
  local before, after = string.match(S.record, '^(%d+ %S+ %d+ )%d+(%S* %S*)$')
  redis.call('HSET', S.base .. '@sessions', S.agent, before .. slots .. after)
end

-- The items an Agent holds in this partition, at most `most` after the given one, in memory: pairs of Group and item.
function T.held(S, agent, after, most)
  local from = after == '-' and after or '(' .. after
  local members = redis.call('ZRANGEBYLEX', S.base .. '@held:' .. agent, from, '+', 'LIMIT', 0, most)
  local names, pairs_ = {}, {}
  for i, member in ipairs(members) do
    local group, id = string.match(member, '^(%S+) (%S+)$')
    names[i], pairs_[i] = group, { group, id }
  end
  T.load(S, names)
  return pairs_
end

-- Gives back what an ended session held, at most `most` items; true when nothing is left, and how many these were.
function T.abandon(S, agent, epoch, reason, most)
  local held = T.held(S, agent, '-', most)
  for _, pair in ipairs(held) do
    local G = S.groups[pair[1]]
    local it = not T.closed(G) and T.named(S, G, pair[2])
    if it and it.own == agent then
      T.part(S, G, it, agent .. '@' .. epoch, reason)
    else
      S.strays[#S.strays + 1] = { S.base .. '@held:' .. agent, pair[1] .. ' ' .. pair[2] }
    end
  end
  return #held < most, #held
end
