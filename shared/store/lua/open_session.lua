-- open_session: Mints an Agent's next Session Epoch, in the Agent's home partition.
-- keys: the home partition's @meta
-- args: replid agent nonce
-- bound: one Agent
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION
-- events: none
--
-- Idempotent by nonce: a repeated call with the nonce of the last epoch gets that epoch again, one with a nonce before it comes
-- late and mints nothing: it would fence the session that is current. Nothing is fenced before `install_session` ran in every
-- partition, and nothing starts before either (design.md 3.12).
T.NONCES_KEPT = 4

T.calls.open_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local nonces = T.words(redis.call('HGET', S.base .. '@epochs', a[2]) or '0')
  local epoch = tonumber(table.remove(nonces, 1))
  for back, nonce in ipairs(nonces) do
    if nonce == a[3] and back == 1 then return { T.envelope(S), T.int(epoch) } end
    if nonce == a[3] then
      return T.refuse('AUTH_STALE_SESSION', 'agent=' .. a[2] .. ' session=' .. T.int(epoch - back + 1) .. ' current='
        .. T.int(epoch))
    end
  end
  local kept = { T.int(epoch + 1), a[3], unpack(nonces, 1, T.NONCES_KEPT - 1) }
  redis.call('HSET', S.base .. '@epochs', a[2], table.concat(kept, ' '))
  return { T.envelope(S), T.int(epoch + 1) }
end
