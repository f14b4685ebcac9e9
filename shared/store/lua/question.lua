-- question: Asks the live Workers that could run a WorkItem, or the one that owns it, why it waits.
-- keys: the partition's @meta
-- args: replid group item nonce
-- bound: 64 Workers
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND INVALID_COMMAND
-- events: none
--
-- Each inbox gets "? nonce group item asked_ms capability width ahead asked": how many of its own Group and capability come
-- first, and how many Workers are asked. They say it by `answer`. The reply: envelope, how many were asked. Repeated with its
-- nonce it rings nobody again. Nothing but an offered or an accepted item waits for a Worker: of any other none is asked.
T.ASKED_MAX = 64
T.ASKED_TTL_MS = 10000

-- Who could run what is offered, by name, since only the first 64 are asked.
local function able(S, G, it)
  local found, flat = {}, redis.call('HGETALL', S.base .. '@sessions')
  for i = 1, #flat, 2 do
    local agent, capabilities = flat[i], string.match(flat[i + 1], '(%S*)$')
    if T.does(capabilities, it.cap) and T.is_asked(it, agent) and not T.kept_out(S, G, agent) then
      found[#found + 1] = agent
    end
  end
  table.sort(found)
  for i = #found, T.ASKED_MAX + 1, -1 do found[i] = nil end
  return found
end

local function ahead(S, G, it)
  if it.to then return 0 end
  return redis.call('ZLEXCOUNT', S.base .. '@take:' .. T.shelf(it.cap), '[' .. G.name .. ' ', '(' .. G.name .. ' ' .. it.key)
end

T.calls.question = function(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if refused then return refused end
  local it = T.item(S, G, a[3])
  if not it then return T.refuse('INVALID_COMMAND', 'group=' .. a[2] .. ' item=' .. a[3] .. ' is not there') end
  local record = S.base .. '@asked:' .. a[4]
  local before = redis.call('GET', record)
  if before then return { T.envelope(S), before } end
  local who = T.closed(G) and {} or it.st == 'offered' and able(S, G, it) or it.st == 'queued' and { it.own } or {}
  local count = it.st == 'offered' and it.key and ahead(S, G, it) or 0
  local entry = table.concat({ '?', a[4], G.name, it.id, S.stamp, it.cap, T.fills(it), T.int(count), T.int(#who) }, ' ')
  for _, agent in ipairs(who) do T.push(S, agent, entry) end
  redis.call('SET', record, T.int(#who), 'PX', T.int(T.ASKED_TTL_MS))
  return { T.envelope(S), T.int(#who) }
end
