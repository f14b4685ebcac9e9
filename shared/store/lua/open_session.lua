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
T.calls.open_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local minted = T.words(redis.call('HGET', S.base .. '@epochs', a[2]))
  if minted[2] == a[3] then return { T.envelope(S), minted[1] } end
  for i = 3, #minted, 2 do
    if minted[i + 1] == a[3] then
      return T.refuse('AUTH_STALE_SESSION', 'agent=' .. a[2] .. ' session=' .. minted[i] .. ' current=' .. minted[1])
    end
  end
  local epoch = T.mint(S, a[2], a[3], minted)
  return { T.finish(S), epoch }
end
