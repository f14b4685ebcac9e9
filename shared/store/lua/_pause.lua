-- Pauses: flags of a partition in its hash `@pause`, a field each: all, a:<account>, c:<capability>, g:<group>; a value says
-- who set it and when. `@meta` counts them, so that a call reads flags only where there are some.

-- Whether nothing of this Group's work of a capability may be accepted or started now. What runs goes on.
function T.paused(S, G, cap)
  if S.flags == 0 then return false end
  cap = string.match(cap, '^[^~]+')
  local name = G.name .. ' ' .. cap
  if S.pauses[name] == nil then
    local set = redis.call('HMGET', S.base .. '@pause', 'all', 'a:' .. G.account, 'c:' .. cap, 'g:' .. G.name)
    S.pauses[name] = (set[1] or set[2] or set[3] or set[4]) and true or false
  end
  return S.pauses[name]
end

-- Plans a token for what a Group has to take of a capability: nobody is woken for what may not be taken. Who is asked by name
-- is rung by the Event.
function T.call_for(S, G, cap)
  if string.byte(cap) ~= 62 and not T.barred(S, G, cap) then S.rings[cap] = G.name end
end
