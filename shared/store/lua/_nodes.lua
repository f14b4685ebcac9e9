-- Accounts and classes: their service in this partition, the sum over their Groups, and who is told of it.

-- The names of a Group's account and class among the nodes of `@usage`.
function T.above(G)
  if not G.above then G.above = { 'a:' .. G.class .. ':' .. G.account, 'c:' .. G.class } end
  return G.above
end

-- Reads the service of nodes that this call has not read yet, in one command; `S.nodes` is what the store has.
local function read(S, nodes)
  local new = {}
  for _, node in ipairs(nodes) do
    if not S.nodes[node] then new[#new + 1] = node end
  end
  if #new == 0 then return end
  local packed = redis.call('HMGET', S.base .. '@usage', unpack(new))
  for i, node in ipairs(new) do S.nodes[node] = packed[i] or T.pack_usage(T.usage()) end
end

-- The service of a Group's account (1) or class (2) as far as it is planned.
function T.service(S, G, which)
  local node = T.above(G)[which]
  S.planned = S.planned or {}
  local u = S.planned[node]
  if u then return u end
  read(S, T.above(G))
  u = T.usage(S.nodes[node])
  for _, other in ipairs(S.order) do
    if #other.runs > 0 and T.above(other)[which] == node then
      for _, change in ipairs(other.runs) do T.apply(u, change) end
    end
  end
  S.planned[node] = u
  return u
end

-- A change of a Group's service is one of its account and class, where a limit asks for theirs.
function T.charge_above(S, G, change)
  if not S.planned then return end
  for _, node in ipairs(T.above(G)) do
    if S.planned[node] then T.apply(S.planned[node], change) end
  end
end

-- Writes the service of Groups, and of the accounts and classes above them.
function T.write_usage(S, W)
  for node in pairs(W.runs) do W.nodes[#W.nodes + 1] = node end
  table.sort(W.nodes)
  read(S, W.nodes)
  for _, node in ipairs(W.nodes) do
    local usage = T.usage(S.nodes[node])
    for _, change in ipairs(W.runs[node]) do T.apply(usage, change) end
    S.nodes[node] = T.pack_usage(usage)
    W.usage[#W.usage + 1] = node
    W.usage[#W.usage + 1] = S.nodes[node]
  end
  T.many('HSET', S.base .. '@usage', W.usage)
end

-- Nodes stand under the version of the directory with which their service changed.
function T.list_nodes(S, nodes, version)
  local list = {}
  for _, node in ipairs(nodes) do
    list[#list + 1] = version
    list[#list + 1] = node
  end
  T.many('ZADD', S.base .. '@nodes', list)
end

-- The lines of nodes: "% node", and their nine numbers.
function T.node_lines(S, nodes, lines)
  read(S, nodes)
  for _, node in ipairs(nodes) do lines[#lines + 1] = '% ' .. node .. ' ' .. S.nodes[node] end
end

-- The nodes whose service a turn read or changed; of one that is repeated, those of all its Groups.
function T.told_nodes(S, is_repeated)
  local nodes, seen = {}, {}
  for node in pairs(S.nodes) do nodes[#nodes + 1] = node end
  for _, G in ipairs(is_repeated and S.order or {}) do
    for _, node in ipairs(T.above(G)) do
      if not seen[node] then nodes[#nodes + 1] = node end
      seen[node] = true
    end
  end
  table.sort(nodes)
  return nodes
end
