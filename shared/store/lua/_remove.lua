-- What goes for good: items whose time is over, Groups that were never sealed.

-- Removes items whose time is over, with everything that is theirs.
function T.remove_items(S, G)
  local key = S.base .. G.name
  for _, id in ipairs(G.doomed) do
    redis.call('UNLINK', key .. ':i:' .. id, key .. ':in:' .. id, key .. ':ck:' .. id, key .. ':rs:' .. id,
      key .. ':fl:' .. id, key .. ':w:' .. id)
  end
  if #G.doomed > 0 and G.grown then redis.call('ZREM', key .. ':jobs', unpack(G.doomed))
  elseif #G.doomed > 0 then redis.call('LTRIM', key .. ':items', #G.doomed, -1) end
  if G.expired then redis.call('HSET', key .. ':mission', 'expired', '1') end
end

-- Removes a Group that was never sealed.
function T.remove_group(S, G)
  local key = S.base .. G.name
  redis.call('UNLINK', key .. ':log', key .. ':mission', key .. ':items')
  redis.call('HDEL', S.base .. '@groups', G.name)
  redis.call('HDEL', S.base .. '@seqs', G.name)
  redis.call('HDEL', S.base .. '@usage', 'g:' .. G.name)
end
