-- recall: Brings back due entries that were set aside with a Group that was halted. Idempotent.
-- keys: the partition's @meta
-- args: replid group entry ...
-- bound: 256 entries
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND INVALID_STATE_TRANSITION
-- events: none
--
-- They are due at once, where they are not due already: what is to be done when, the items say. The reply: envelope, how many.
T.calls.recall = function(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if refused then return refused end
  local back = 0
  if T.closed(G) then return T.not_in(G) end
  for i = 3, math.min(#a, 258) do
    if string.match(a[i], '^%a (%S+) %S+$') == G.name and redis.call('ZREM', S.base .. '@halted', a[i]) == 1 then
      redis.call('ZADD', S.base .. '@due', 'NX', T.int(S.now), a[i])
      back = back + 1
    end
  end
  return { T.finish(S), T.int(back) }
end
