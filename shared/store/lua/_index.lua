-- The index of what may be taken, and the directory of Groups that have some (design.md 3.6).

-- Whether nothing of a capability may be taken any more once the plan is written; nothing enters with it.
local function is_emptied(S, G, cap)
  local left = T.takeable(S, G.name, cap)
  for key in pairs(G.dels[cap] or {}) do
    if redis.call('ZSCORE', S.base .. '@take:' .. cap, G.name .. ' ' .. key) then left = left - 1 end
  end
  return left <= 0
end

-- Whether something is there to take of a Group that this call has not taken from: enough where nothing can be taken.
function T.is_waiting(S, G, cap)
  if G.dels[cap] or G.adds[cap] then return false end
  local first = redis.call('ZRANGEBYLEX', S.base .. '@take:' .. cap, '[' .. G.name .. ' ', '(' .. G.name .. '!', 'LIMIT', 0, 1)
  return first[1] ~= nil
end

-- Gathers what enters and leaves the index of takeable work, the directory and the list of who is to be rung.
function T.collect_index(S, G, W)
  for cap, keys in pairs(G.dels) do
    local list = T.into(W.del, cap)
    for key in pairs(keys) do list[#list + 1] = G.name .. ' ' .. key end
  end
  for cap, keys in pairs(G.adds) do
    local list = T.into(W.add, cap)
    local before = #list
    for key in pairs(keys) do
      list[#list + 1] = '0'
      list[#list + 1] = G.name .. ' ' .. key
    end
    if #list > before and G.state ~= 'loading' then
      G.dir[cap] = 'live'
      T.call_for(S, G, cap)
      if not redis.call('ZSCORE', S.base .. '@dir:' .. cap, G.name) then
        G.usage.entry_ms = S.now
        G.touched = true
      end
    end
  end
  for cap, how in pairs(G.dir) do
    if how == 'check' then G.dir[cap] = is_emptied(S, G, cap) and 'empty' or 'touch' end
    if how == 'check' and G.dir[cap] == 'empty' then T.leave(G) end
  end
  for cap in pairs(G.leftover) do T.call_for(S, G, cap) end
  for cap, how in pairs(G.dir) do
    if how == 'empty' then W.dead[cap .. ' ' .. G.name] = { cap, G.name }
    else table.insert(T.into(how == 'live' and W.live or W.touch, cap), G.name) end
  end
end
