-- The fences: Session Epoch of the call, ownership and lease of an item. They come first in everything that writes.

-- Checks the caller's Session Epoch (FND-016) and remembers who is calling; a refusal where it is not the current one.
function T.session(S, agent, epoch)
  local record = redis.call('HGET', S.base .. '@sessions', agent)
  local current = record and string.match(record, '^%d+') or '0'
  if current ~= epoch then
    return T.refuse('AUTH_STALE_SESSION', 'agent=' .. agent .. ' session=' .. epoch .. ' current=' .. current)
  end
  S.agent, S.epoch, S.by, S.record = agent, epoch, agent .. '@' .. epoch, record
end

-- The code with which an operation on an item's ownership is refused, or nil.
function T.stale_owner(S, it, epoch)
  if it.oe ~= epoch or it.own ~= S.agent then return 'WORK_STALE_OWNERSHIP' end
  if it.ses ~= S.epoch then return 'AUTH_STALE_SESSION' end
end

-- Likewise for an operation that must cite the current Lease ID (WRK-013). A lapsed lease is refused even where no
-- tick has seen it yet: Redis' time alone decides.
function T.stale_lease(S, it, epoch, lease)
  local code = T.stale_owner(S, it, epoch)
  if code then return code end
  if it.st ~= 'active' then return it.lid == lease and 'WORK_LEASE_EXPIRED' or 'INVALID_STATE_TRANSITION' end
  if it.lid ~= lease or tonumber(it.lex) <= S.now then return 'WORK_LEASE_EXPIRED' end
end

-- The answer to a lane's call number n: nil (run it), a stored reply (the same call again), or a refusal (design.md 3.5).
function T.repeated(S, lane, n, digest)
  if not string.match(lane, '^%d$') or tonumber(lane) >= T.LANES then
    return nil, T.refuse('SCHEMA_VALIDATION_FAILED', 'lane=' .. lane .. ' (0 to ' .. T.int(T.LANES - 1) .. ')')
  end
  S.lane = S.agent .. ' ' .. lane
  local record = redis.call('HGET', S.base .. '@lanes', S.lane)
  local session, last, stored, reply = nil, 0, nil, nil
  if record then
    session, last, stored, reply = string.match(record, '^(%d+) (%d+) (%S+)\n(.*)$')
    last = session == S.epoch and tonumber(last) or 0
  end
  local number = tonumber(n)
  if number == last + 1 then
    S.lane_head = S.epoch .. ' ' .. n .. ' ' .. digest .. '\n'
  elseif number == last and number > 0 then
    if stored == digest then return reply end
    return nil, T.refuse('ACTION_ID_COLLISION', 'lane=' .. S.lane .. ' n=' .. n .. ' was used for another call')
  elseif number < last then
    return nil, T.refuse('ACTION_SUPERSEDED', 'lane=' .. S.lane .. ' n=' .. n .. ' last=' .. T.int(last))
  else
    return nil, T.refuse('LANE_REGRESSED', 'lane=' .. S.lane .. ' n=' .. n .. ' last=' .. T.int(last)
      .. ': the store lost a tail, open a new session')
  end
end
