-- The partition's share of a commit: what all Groups of the call change in shared keys, in few commands.

function T.into(lists, name)
  lists[name] = lists[name] or {}
  return lists[name]
end

local function leave_directories(S, G, W)
  local caps = T.try('HGET', S.base .. G.name .. ':mission', 'caps')
  for _, cap in ipairs(T.words(caps)) do W.dead[cap .. ' ' .. G.name] = { cap, G.name } end
end

-- A halted Group leaves every directory; its record says so. Its due entries move as ticks meet them.
function T.halt(S, G, W)
  W.groups[#W.groups + 1] = G.name
  W.groups[#W.groups + 1] = T.record(G)
  leave_directories(S, G, W)
end

-- What enters and leaves a list of items that wait for a person, by since when.
local function collect_listed(S, G, listed, add, del)
  for id, holds in pairs(listed) do
    if holds then
      add[#add + 1] = T.int(S.now)
      add[#add + 1] = G.name .. ' ' .. id
    else
      del[#del + 1] = G.name .. ' ' .. id
    end
  end
end

-- Gathers one Group's changes into the lists that `flush` writes.
function T.collect(S, G, W)
  T.collect_index(S, G, W)
  T.collect_members(S, G, W)
  if #G.events > 0 then
    W.seqs[#W.seqs + 1] = G.name
    W.seqs[#W.seqs + 1] = T.int(G.seq + #G.events)
  end
  if G.state == 'cancelled' and G.ended then leave_directories(S, G, W) end
  if #G.events > 0 then T.want_snapshot(S, G) end
  if G.fresh or G.ended or G.changed then
    W.groups[#W.groups + 1] = G.name
    W.groups[#W.groups + 1] = T.record(G)
  end
  for member, score in pairs(G.due) do
    if score then
      W.due[#W.due + 1] = T.int(score)
      W.due[#W.due + 1] = member
    else
      W.undue[#W.undue + 1] = member
    end
  end
  collect_listed(S, G, G.parked, W.park, W.unpark)
  collect_listed(S, G, G.blocked, W.block, W.unblock)
  for agent, items in pairs(G.held) do
    local changes = T.into(W.held, agent)
    for id, holds in pairs(items) do changes[G.name .. ' ' .. id] = holds end
  end
  -- `settled`: a repair wrote what its account and class have now.
  if #G.runs > 0 or G.settled then
    local account, class = T.into(W.runs, T.above(G)[1]), T.into(W.runs, T.above(G)[2])
    for _, change in ipairs(G.runs) do account[#account + 1], class[#class + 1] = change, change end
  end
  if #G.runs > 0 or G.touched then
    W.usage[#W.usage + 1] = 'g:' .. G.name
    W.usage[#W.usage + 1] = T.pack_usage(G.usage)
  end
end
