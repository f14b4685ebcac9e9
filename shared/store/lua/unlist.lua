-- unlist: Takes a halted Group's entries out of indexes of its partition, before a repair lists what is there.
-- keys: the partition's @meta
-- args: replid group index ...
-- bound: 64 indexes, 1,000 entries
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: none
--
-- An index is `@take:<capability>` or `@held:<agent>`. The reply: envelope, how many went; it is called until that is 0.
T.calls.unlist = function(keys, a)
  local S, refused, G = T.at_halted(keys, a)
  if refused then return refused end
  local left = 1000
  for i = 3, math.min(#a, 66) do
    if not string.match(a[i], '^@take:') and not string.match(a[i], '^@held:') then
      return T.refuse('SCHEMA_VALIDATION_FAILED', 'index=' .. a[i])
    end
  end
  for i = 3, math.min(#a, 66) do
    local key = S.base .. a[i]
    local found = left > 0 and T.try('ZRANGEBYLEX', key, '[' .. G.name .. ' ', '(' .. G.name .. '!', 'LIMIT', 0, left) or {}
    left = left - #found
    T.many('ZREM', key, found)
  end
  return { T.envelope(S), T.int(1000 - left) }
end
