-- answer: Says to whoever asked why a WorkItem waits with this Worker.
-- keys: the partition's @meta
-- args: replid agent session nonce reasons
-- bound: 4 KiB, and what an inbox holds
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION SCHEMA_VALIDATION_FAILED
-- events: none
--
-- The answers stand in the inbox of the question's nonce, "agent reasons" each, for ten seconds. The reply: envelope, "taken",
-- or "over" where nobody waits for it any more. Repeated it stands there once.
T.ANSWER_MAX = 4096

T.calls.answer = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or T.session(S, a[2], a[3])
  if refused then return refused end
  if #a[5] > T.ANSWER_MAX then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'reasons=' .. T.int(#a[5]) .. ' bytes (' .. T.int(T.ANSWER_MAX) .. ' at most)')
  end
  if redis.call('EXISTS', S.base .. '@asked:' .. a[4]) == 0 then return { T.envelope(S), 'over' } end
  local key, entry = S.base .. '@inbox:' .. a[4], a[2] .. ' ' .. a[5]
  redis.call('LREM', key, 0, entry)
  T.push(S, a[4], entry)
  redis.call('PEXPIRE', key, T.ASKED_TTL_MS)
  return { T.envelope(S), 'taken' }
end
