-- Ground of every call: the clock, the partition's record, and small tools.
-- Loaded first. `T` is the one namespace (a Lua 5.1 function may hold only 60 upvalues); `T.calls` are the library's
-- functions, `T.ops` the operations a `turn` carries. A call's memory is the table `S`; nothing outlives the call.
local T = { calls = {}, ops = {}, arity = {} }

-- Starts are summed relative to 2025-01-01 so that the sums stay exact integers (model.STARTS_EPOCH_MS).
T.EPOCH = 1735689600000
T.INLINE_MAX = 64
T.RELEASE_MAX = 64
-- The longest body, the longest Evidence (codec.PAYLOAD_MAX, codec.EVIDENCE_MAX) and the longest token of an Event.
T.BYTES_MAX, T.EVIDENCE_MAX, T.TOKEN_MAX = 1048576, 16384, 2400

-- A whole number as text. `%d` is exact below 2^53 and costs a third of `%.0f`, which is most of a call's formatting.
function T.int(n)
  return string.format('%d', n)
end

function T.words(text)
  local list = {}
  for word in string.gmatch(text or '', '%S+') do list[#list + 1] = word end
  return list
end

-- Whether a text is a token that an Event may hold: a reason, a Lease ID.
function T.is_token(text)
  return text ~= '' and #text <= T.TOKEN_MAX and not string.find(text, '[^%w_.~%%-]')
end

-- How many values one command takes: `unpack` can hand over fewer than 8,000; even, so that pairs stay together.
T.SLICE = 4000

-- Calls `command key value...` for a list of any length, in slices that `unpack` can take; the sum of the answers.
function T.many(command, key, list)
  local sum = 0
  for from = 1, #list, T.SLICE do
    sum = sum + redis.call(command, key, unpack(list, from, math.min(from + T.SLICE - 1, #list)))
  end
  return sum
end

-- The answer of a command that may meet what the store did not write; where it fails, nil and what was said. The library's
-- only `pcall`: around reads, the first XADD of a Group, and rings, which nothing depends on.
function T.try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then return nil, answer.err end
  return answer
end

function T.refuse(code, text)
  return redis.error_reply(code .. ' ' .. text)
end

-- Opens a call on the partition whose `@meta` key is keys[1]; false and a refusal where the server is not the one the
-- caller opened its session on (design.md 3.11).
function T.begin(keys, replid)
  local clock = redis.call('TIME')
  local S = {
    base = string.sub(keys[1], 1, -6),
    now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000),
    groups = {}, order = {}, rings = {}, pauses = {}, strays = {}, nodes = {}, release_left = T.RELEASE_MAX,
  }
  local meta = redis.call('HMGET', keys[1], 'incarnation', 'replid', 'version', 'head', 'paused', 'adopted',
    'quarantine', 'policy')
  if not meta[1] or meta[2] ~= replid then
    return false, T.refuse('STORE_CHANGED', 'this partition was opened on server ' .. (meta[2] or 'none')
      .. ', the call names ' .. replid .. ': open a new session')
  end
  S.incarnation, S.replid, S.stamp = meta[1], meta[2], T.int(S.now)
  S.version, S.head = tonumber(meta[3] or '0'), tonumber(meta[4] or '0')
  S.flags, S.adopted, S.quarantine = tonumber(meta[5] or '0'), tonumber(meta[6] or '0'), tonumber(meta[7] or '0')
  S.policy = meta[8] or '0'
  return S
end

-- What every reply begins with: the store's time, the earliest due time ('-' for none), directory version, incarnation,
-- and the version of the policy that was noted here (0: the default one).
function T.envelope(S)
  local head = redis.call('ZRANGE', S.base .. '@due', 0, 0, 'WITHSCORES')
  return S.stamp .. ' ' .. (head[2] and T.int(tonumber(head[2])) or '-') .. ' ' .. T.int(S.version) .. ' '
    .. S.incarnation .. ' ' .. S.policy
end
