-- open_session: Mints an Agent's next Session Epoch, in the Agent's home partition.
-- keys: the home partition's @meta
-- args: replid agent nonce
-- bound: one Agent
-- flags: allow-oom
-- refusals: STORE_CHANGED
-- events: none
--
-- Idempotent by nonce: a repeated call with the nonce of the last epoch gets that epoch again. Nothing is fenced before
-- `install_session` ran in every partition, and nothing starts before either (design.md 3.12).
T.calls.open_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local record = redis.call('HGET', S.base .. '@epochs', a[2])
  local epoch, nonce = string.match(record or '0 -', '^(%d+) (%S+)$')
  if nonce ~= a[3] then
    epoch = T.int(tonumber(epoch) + 1)
    redis.call('HSET', S.base .. '@epochs', a[2], epoch .. ' ' .. a[3])
  end
  return { T.envelope(S), epoch }
end
