-- distrust: Has nothing of a partition accepted, started or lapsed until a person says so: its store went back in time.
-- keys: the partition's @meta
-- args: replid agent session minted incarnation
-- bound: one record
-- flags: allow-oom
-- refusals: STORE_CHANGED REVISION_CONFLICT
-- events: none
--
-- Said by a Worker whose Session Epoch is higher than the last one that its home partition has minted: the store lost more than
-- its last writes, as where an old backup was restored. A compare-and-set on the incarnation it saw: `reincarnate` ends it.
-- The first doubt stands. The reply: envelope.
T.calls.distrust = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  if S.incarnation ~= a[5] then return T.refuse('REVISION_CONFLICT', 'incarnation=' .. S.incarnation) end
  if redis.call('HSETNX', keys[1], 'doubt', table.concat({ a[2], a[3], a[4], S.stamp }, ' ')) == 1 then
    redis.call('HSET', keys[1], 'quarantine', T.int(T.NEVER))
    redis.call('ZADD', S.base .. '@due', T.int(T.NEVER), 'q - 0')
  end
  return { T.finish(S) }
end
