-- Session Epochs: minted from one counter per partition, in each Agent's home partition, so that none is given twice although
-- nothing is kept of an Agent that does not come back. A record of `@epochs` is "epoch nonce epoch nonce ...", newest first.

-- Of an Agent that has no session, a record stands this long: what comes later than that from an older runtime comes to nobody.
T.MINT_KEPT_MS = 3600000
T.MINTS_KEPT = 4

-- The newest Session Epoch known of an Agent, 0 for none.
function T.minted(S, agent)
  return tonumber(string.match(redis.call('HGET', S.base .. '@epochs', agent) or '0', '^%d+'))
end

-- Mints the next epoch for an Agent whose mints so far are given as words; it goes unless it is installed in time.
function T.mint(S, agent, nonce, before)
  local epoch = T.int(redis.call('HINCRBY', S.base .. '@meta', 'mint', 1))
  local kept = { epoch, nonce }
  for i = 1, math.min(#before, 2 * (T.MINTS_KEPT - 1)) do kept[#kept + 1] = before[i] end
  redis.call('HSET', S.base .. '@epochs', agent, table.concat(kept, ' '))
  if before[1] then T.keep_mint(S, agent, before[1]) end
  redis.call('ZADD', S.base .. '@due', T.int(S.now + T.MINT_KEPT_MS), 'y ' .. agent .. ' ' .. epoch)
  return epoch
end

-- The session was installed: its record stands as long as it lives.
function T.keep_mint(S, agent, epoch)
  redis.call('ZREM', S.base .. '@due', 'y ' .. agent .. ' ' .. epoch)
end

-- The session is over: its record goes in a while. Only the home partition has one.
function T.unmint_later(S, agent, epoch)
  if T.minted(S, agent) ~= tonumber(epoch) then return end
  redis.call('ZADD', S.base .. '@due', T.int(S.now + T.MINT_KEPT_MS), 'y ' .. agent .. ' ' .. epoch)
end

-- y: the while is over.
function T.unmint(S, agent, epoch)
  T.keep_mint(S, agent, epoch)
  if T.minted(S, agent) == tonumber(epoch) then redis.call('HDEL', S.base .. '@epochs', agent) end
end
