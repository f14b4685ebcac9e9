-- pause: Sets or clears a flag that keeps new work of a partition from being accepted and started; what runs goes on.
-- keys: the partition's @meta
-- args: replid verb what actor after
-- bound: 1,024 flags; 256 Groups and capabilities looked at a call, "more" asks for another
-- flags: allow-oom
-- refusals: STORE_CHANGED SCHEMA_VALIDATION_FAILED GROUP_NOT_FOUND BACKPRESSURE
-- events: none
--
-- `verb` is pause or resume, `what` is all, a:<account>, c:<capability> or g:<group>; `after` is '-', or what the call before
-- answered with "more". Either verb is idempotent: the first to set a flag stands in it. Every Worker's next look gets the
-- whole directory. A resume wakes a session of each set of capabilities that has something to take again. The Groups enter
-- anew (scheduler.md, rule 3): how long they were paused gives them nothing. The reply: envelope, "done" or "more place",
-- 1 where something changed.
T.FLAGS_MAX = 1024

local function fault(S, verb, what)
  local kind, name = string.match(what, '^([acg]):(%S+)$')
  if (verb ~= 'pause' and verb ~= 'resume') or (what ~= 'all' and not kind) then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'verb=' .. verb .. ' what=' .. what)
  end
  if verb == 'resume' then return end
  local group = kind == 'g' and redis.call('HGET', S.base .. '@groups', name)
  if kind == 'g' and (not group or string.match(group, '^loading ')) then
    return T.refuse('GROUP_NOT_FOUND', 'group=' .. name)
  end
  if S.flags >= T.FLAGS_MAX and redis.call('HEXISTS', S.base .. '@pause', what) == 0 then
    return T.refuse('BACKPRESSURE', 'flags=' .. T.int(S.flags) .. ' are set in this partition: clear some first')
  end
end

-- A capability as live sessions offer it: with no version, and with each major number.
local function versions(S, name)
  local list = { name }
  for _, cap in ipairs(redis.call('HKEYS', S.base .. '@caps')) do
    if cap ~= name and string.match(cap, '^[^~]+') == name then list[#list + 1] = cap end
  end
  return list
end

-- The capabilities in which a flag may have kept something from being taken.
local function capabilities(S, what)
  local kind, name = string.match(what, '^(%a):(%S+)$')
  local list = kind == 'c' and versions(S, name)
    or kind == 'g' and T.words(redis.call('HGET', S.base .. name .. ':mission', 'caps') or '')
    or redis.call('HKEYS', S.base .. '@caps')
  table.sort(list)
  return list
end

-- Lets the Groups of a cleared flag enter anew, 256 a call, and plans tokens; the place to go on from, or nil.
local function enter(S, what, place)
  local from_cap, from = string.match(place, '^(%S+) (%d+)$')
  local left, kind, name = 256, string.match(what, '^(%a):(%S+)$')
  for _, cap in ipairs(capabilities(S, what)) do
    local first = cap == from_cap and tonumber(from) or 0
    if not from_cap or cap >= from_cap then
      local names = kind == 'g' and { name } or redis.call('ZRANGE', S.base .. '@dir:' .. cap, first, first + left - 1)
      T.load(S, names)
      for _, group in ipairs(names) do
        local G = S.groups[group]
        if G and G.state == 'active' and (kind ~= 'a' or G.account == name) and not T.paused(S, G, cap)
          and redis.call('ZSCORE', S.base .. '@dir:' .. cap, group) then
          if not G.entered then T.leave(G) end
          G.entered, G.usage.entry_ms, S.rings[cap] = true, S.now, group
        end
      end
      left = left - 1 - #names
      if left <= 0 then return cap .. ' ' .. T.int(first + #names) end
    end
  end
end

T.calls.pause = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or fault(S, a[2], a[3])
  if refused then return refused end
  local changed, place, flags = 0, nil, S.base .. '@pause'
  if a[2] == 'pause' then
    changed = redis.call('HSETNX', flags, a[3], a[4] .. ' ' .. T.int(S.now))
  elseif a[5] == '-' then
    changed = redis.call('HDEL', flags, a[3])
  end
  if changed == 1 or a[5] ~= '-' then
    S.flags = redis.call('HLEN', flags)
    if a[2] == 'resume' then place = enter(S, a[3], a[5]) end
    S.version = S.version + 1
    redis.call('HSET', keys[1], 'paused', T.int(S.flags), 'version', T.int(S.version), 'floor', T.int(S.version))
    T.commit(S)
  end
  return { T.envelope(S), place and 'more ' .. place or 'done', T.int(changed) }
end
