-- renew: Extends the caller's live leases in one partition and keeps its session alive. Idempotent by Lease ID.
-- keys: the partition's @meta
-- args: replid agent session ttl_ms group item epoch lease ...
-- bound: 256 leases
-- flags: allow-oom
-- refusals: STORE_CHANGED AUTH_STALE_SESSION
-- events: none
--
-- A renewal appends no Event (design.md 4, a stated deviation). The reply: envelope, a code a lease (OK, GROUP_NOT_FOUND,
-- LOG_FOREIGN, MEMBERSHIP_STALE, INVALID_COMMAND, WORK_STALE_OWNERSHIP, AUTH_STALE_SESSION, WORK_LEASE_EXPIRED, INVALID_STATE_TRANSITION).
T.calls.renew = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or T.session(S, a[2], a[3])
  if refused then return refused end
  local ttl, codes, names, due = tonumber(a[4]), {}, {}, {}
  for i = 5, math.min(#a, 4 + 4 * 256), 4 do names[#names + 1] = a[i] end
  T.load(S, names)
  local expiry = S.now + ttl
  for i = 5, math.min(#a, 4 + 4 * 256), 4 do
    local G = S.groups[a[i]]
    local it, code = nil, T.shut(G)
    if not code then
      it = T.item(S, G, a[i + 1])
      code = G.bad or not it and 'INVALID_COMMAND' or T.stale_lease(S, it, a[i + 2], a[i + 3])
      code = code or (G.state == 'cancelled' and 'INVALID_STATE_TRANSITION') or nil
    end
    if not code then
      redis.call('HSET', S.base .. a[i] .. ':i:' .. a[i + 1], 'lex', T.int(math.max(expiry, tonumber(it.lex))))
      due[#due + 1] = T.int(expiry)
      due[#due + 1] = 'l ' .. a[i] .. ' ' .. a[i + 1]
    end
    codes[#codes + 1] = code or 'OK'
  end
  due[#due + 1] = T.int(S.now + T.SESSION_TTLS * ttl)
  due[#due + 1] = 'x ' .. S.agent .. ' ' .. S.epoch
  T.many('ZADD', S.base .. '@due', due)
  return { T.finish(S), table.concat(codes, ' ') }
end
