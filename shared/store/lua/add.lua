-- add: Adds WorkItems to a Mission: the next chunk of one that is being loaded, or to one that is open. Idempotent.
-- keys: the partition's @meta
-- args: replid group chunk actor queued item capability width urgency impact deadline start_by_s not_before retry digest
--   after inputs contract offer timeout_ms gates resources ...
-- bound: 256 items in topological order, 16 MiB of inputs, 1,024 dependencies; 512 capabilities a Mission, 16,384
--   dependents an item
-- flags: none
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN ACTION_ID_COLLISION INVALID_STATE_TRANSITION
--   REVISION_CONFLICT SCHEMA_VALIDATION_FAILED QUOTA_EXCEEDED
-- events: work.authorized work.offer.created work.parked
--
-- `chunk`: which one of a load, from 1; 0 for an open Mission, where an item that is there already with the same digest counts
-- as repeated. `queued` as `T.too_many` has it; a load was judged when it began. The reply: envelope, "created repeated", then what
-- `T.unoffered` says.
local function known(S, G, a, first)
  local repeated = {}
  for i = first, #a, T.ITEM_FIELDS do
    local it = T.item(S, G, a[i])
    if it and it.cd ~= a[i + 9] then return nil, 'item=' .. a[i] .. ' is in mission=' .. G.name .. ' with other content' end
    if it then repeated[#repeated + 1] = i end
    repeated[a[i]] = it and true
  end
  return repeated
end

-- What is to be planned, a refusal, or neither where this very chunk was added before.
local function check(S, G, a, first)
  if a[3] == '0' then
    if G.state ~= 'active' or G.form ~= 'open' then
      return nil, T.not_in(G)
    end
    local repeated, other = known(S, G, a, first)
    if other then return nil, T.refuse('ACTION_ID_COLLISION', other) end
    return repeated
  end
  local last = tonumber(redis.call('HGET', S.base .. G.name .. ':mission', 'chunk') or '0')
  if tonumber(a[3]) <= last then return end
  if G.state ~= 'loading' then
    return nil, T.not_in(G)
  end
  if tonumber(a[3]) > last + 1 then return nil, T.refuse('REVISION_CONFLICT', 'chunk=' .. a[3] .. ' last=' .. T.int(last)) end
  return {}
end

T.calls.add = function(keys, a)
  local S, refused, G = T.command(keys, a, true)
  if refused then return refused end
  local first = 6
  local fault = not tonumber(a[3]) and 'chunk=' .. a[3] or T.wrong_items(S, G, a, first, 1)
  if fault then return T.refuse('SCHEMA_VALIDATION_FAILED', fault) end
  local repeated
  repeated, refused = check(S, G, a, first)
  if refused then return refused end
  if not repeated then
    return { T.envelope(S), '0 ' .. T.int((#a - first + 1) / T.ITEM_FIELDS), T.unoffered(S, a, first) }
  end
  refused = T.is_outdated(S, a[5]) or T.too_many(S, G, a[5], (#a - first + 1) / T.ITEM_FIELDS - #repeated)
  if refused then return refused end
  local caps = T.merged_capabilities(redis.call('HGET', S.base .. G.name .. ':mission', 'caps'), a, first)
  if not caps then return T.refuse('SCHEMA_VALIDATION_FAILED', 'mission=' .. G.name .. ' capabilities (' .. T.CAPS_MAX .. ' at most)') end
  G.actor, G.ids, G.mission = a[4], {}, { 'caps', caps }
  if a[3] ~= '0' then
    G.mission[#G.mission + 1], G.mission[#G.mission + 2] = 'chunk', a[3]
    G.due['u ' .. G.name .. ' 0'] = S.now + T.LOAD_MS
  end
  for i = first, #a, T.ITEM_FIELDS do
    if not repeated[a[i]] then T.add_item(S, G, a, i) end
  end
  return T.answered(S, G, T.int(#G.ids) .. ' ' .. T.int(#repeated), T.unoffered(S, a, first))
end
