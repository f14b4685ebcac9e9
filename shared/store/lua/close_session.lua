-- close_session: Ends a session in one partition and gives back what it still holds.
-- keys: the partition's @meta
-- args: replid agent session
-- bound: 256 items a call; "more" asks for another
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION
-- events: work.released work.offer.created
--
-- A session that is already closed is answered "done".
T.calls.close_session = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local record = redis.call('HGET', S.base .. '@sessions', a[2])
  if not record then return { T.envelope(S), 'done' } end
  refused = T.session(S, a[2], a[3])
  if refused then return refused end
  local done = T.abandon(S, a[2], a[3], 'closed', 256)
  T.commit(S)
  if done then T.end_session(S, a[2], a[3]) end
  return { T.finish(S), done and 'done' or 'more' }
end
