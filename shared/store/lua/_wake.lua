-- Waking: a token list per set of capabilities that live sessions registered, an inbox per Agent or waiting client
-- (design.md 3.7). A token is pushed only onto an empty list, so a list never holds more than one.

T.INBOX_MAX = 1000
T.INBOX_TTL_MS = 3600000

-- Rings somebody's inbox: an entry is a doorbell (Group, previous, first, last), the Events themselves are in the log.
function T.push(S, who, entry)
  local key = S.base .. '@inbox:' .. who
  local length = T.try('RPUSH', key, entry)
  if not length then  -- not a list: nothing of ours
    redis.call('DEL', key)
    length = redis.call('RPUSH', key, entry)
  end
  if length > T.INBOX_MAX then redis.call('LTRIM', key, -T.INBOX_MAX, -1) end
  redis.call('PEXPIRE', key, T.INBOX_TTL_MS)
end

-- Pushes a token onto the empty lists among these sets.
local function wake(S, sets, token)
  for _, set in ipairs(T.words(sets)) do
    local key = S.base .. '@wake:' .. set
    local length = T.try('LLEN', key)
    if not length then redis.call('DEL', key) end
    if (length or 0) == 0 then redis.call('RPUSH', key, token) end
  end
end

-- Wakes one idle session of each set that offers a capability with something new or left to take.
function T.ring(S)
  for cap, group in pairs(S.rings) do
    wake(S, redis.call('HGET', S.base .. '@caps', cap) or '', cap .. ' ' .. group .. ' 0')
  end
end

-- A woken Worker that got nothing hands its token on; one that went past every live session of the capability ends.
function T.hand_on(S, token)
  local cap, group, hop = string.match(token, '^(%S+) (%S+) (%d+)$')
  if not cap or S.rings[cap] then return end
  if S.flags > 0 or S.quarantine > S.now then
    T.load(S, { group })
    if S.groups[group] and T.barred(S, S.groups[group], cap) then return end
  end
  if T.takeable(S, group, cap) == 0 then return end
  local sets = redis.call('HGET', S.base .. '@caps', cap) or ''
  local live = 0
  for _, set in ipairs(T.words(sets)) do
    live = live + tonumber(redis.call('HGET', S.base .. '@live', set) or '0')
  end
  if tonumber(hop) + 1 < live then wake(S, sets, cap .. ' ' .. group .. ' ' .. T.int(tonumber(hop) + 1)) end
end

-- Wakes somebody when this call made the head of the due index sooner, so that a sleeper learns of it.
function T.ring_timer(S, head)
  local due = tonumber(head) or 0
  if due == S.head then return end
  if due > 0 and (S.head == 0 or due < S.head) then
    for _, sets in ipairs(redis.call('HVALS', S.base .. '@caps')) do wake(S, sets, '- - 0') end
  end
  redis.call('HSET', S.base .. '@meta', 'head', T.int(due))
end

-- Ends a call that wrote: what its reply begins with, once sleepers know of an earlier due time.
function T.finish(S)
  local envelope = T.envelope(S)
  T.ring_timer(S, string.match(envelope, '^%S+ (%S+)'))
  return envelope
end

-- How many items of a Group and capability may be taken now.
function T.takeable(S, group, cap)
  return redis.call('ZLEXCOUNT', S.base .. '@take:' .. cap, '[' .. group .. ' ', '(' .. group .. '!')
end

-- Codes of a take that say nothing about others: its answer has them, the Group stands open.
T.NOT_SHUT = { PAUSED = true, QUARANTINE = true, SHARE = true, QUOTA = true, PASSED = true }

-- The directory's line of a Group: what may be taken of a capability, and its service so far.
function T.entry(S, group, cap, code)
  local G = S.groups[group]
  local low, high = '[' .. group .. ' ', '(' .. group .. '!'
  local barred = G and T.barred(S, G, cap)
  local open = G and G.state == 'active' and not barred
  local count = open and T.takeable(S, group, cap) or 0
  -- The answer to a call that is repeated says what was so at its first time; what is there to take now goes first.
  if barred then code = barred
  elseif T.NOT_SHUT[code or ''] or (count > 0 and code == 'EMPTY') then code = nil end
  local first = count > 0 and redis.call('ZRANGEBYLEX', S.base .. '@take:' .. cap, low, high, 'LIMIT', 0, 1)[1]
  return table.concat({ group, cap, T.int(count), first and T.shown_head(S, G, first) or '-',
    G and string.format('%.17g', G.weight) or '1', G and G.account or '-', G and G.class or '-',
    T.pack_usage(G and G.usage or T.usage('')), code or '-' }, ' ')
end
