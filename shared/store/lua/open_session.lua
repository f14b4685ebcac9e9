-- open_session: Mints an Agent's next Session Epoch, in the Agent's home partition.
-- keys: the home partition's @meta
-- args: replid agent nonce
-- bound: one Agent
-- flags: allow-oom
-- refusals: STORE_CHANGED
-- events: none
--
-- Idempotent by nonce: a repeated call with the nonce of one of the last epochs gets that epoch again, so that one that comes
-- late takes nothing from a newer runtime. Nothing is fenced before `install_session` ran in every partition, and nothing starts
-- before either (design.md 3.12).
local NONCES_KEPT = 8

T.calls.open_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local record = T.words(redis.call('HGET', S.base .. '@epochs', a[2]) or '0')
  local epoch = tonumber(record[1])
  for i = 2, #record do
    if record[i] == a[3] then return { T.envelope(S), T.int(epoch - i + 2) } end
  end
  table.insert(record, 2, a[3])
  record[1] = T.int(epoch + 1)
  redis.call('HSET', S.base .. '@epochs', a[2], table.concat(record, ' ', 1, math.min(#record, NONCES_KEPT + 1)))
  return { T.envelope(S), record[1] }
end
