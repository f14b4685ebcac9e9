-- look: Reads a partition's earliest due time and what changed in its directory since a version.
-- keys: the partition's @meta
-- args: replid since paging capability ...
-- bound: 512 entries and 512 tombstones a capability, 1,024 accounts and classes; "more" asks again from the version returned
-- flags: no-writes
-- refusals: STORE_CHANGED
-- events: none
--
-- The reply: envelope, "full" (the reader's version is below the floor or 0: forget what you knew) or "changes", whether
-- there is "more" (ask again with paging 1) or it is "done", the version to ask from next; then the entries, and the service
-- of accounts and classes that changed ("% node usage"). One version has at most 256 entries, so a page always gets on.
T.calls.look = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  if refused then return refused end
  local since = tonumber(a[2])
  -- Each change has a version of its own, so a reader of this one has missed nothing.
  if since == S.version then return { T.envelope(S), (since == 0 and 'full' or 'changes') .. ' done ' .. T.int(since), '' } end
  local floor = tonumber(redis.call('HGET', keys[1], 'floor') or '0')
  local full = a[3] == '0' and (since == 0 or since < floor)
  local from = full and '-inf' or '(' .. T.int(since)
  local found, names, reached, more = {}, {}, S.version, false
  for i = 4, #a do
    local rows = {}
    for _, kind in ipairs({ '@dir:', '@tomb:' }) do
      if kind == '@dir:' or not full then
        local flat = redis.call('ZRANGEBYSCORE', S.base .. kind .. a[i], from, '+inf', 'WITHSCORES', 'LIMIT', 0, 512)
        for j = 1, #flat, 2 do rows[#rows + 1] = { flat[j], tonumber(flat[j + 1]) } end
        if #flat == 1024 then
          more = true
          reached = math.min(reached, tonumber(flat[#flat]) - 1)
        end
      end
    end
    for _, row in ipairs(rows) do
      found[#found + 1] = { row[1], a[i] }
      names[#names + 1] = row[1]
    end
  end
  local flat, nodes = redis.call('ZRANGEBYSCORE', S.base .. '@nodes', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1024), {}
  for j = 1, #flat, 2 do nodes[#nodes + 1] = flat[j] end
  if #nodes == 1024 then
    more = true
    reached = math.min(reached, tonumber(flat[#flat]) - 1)
  end
  T.load(S, names)
  local entries = {}
  for i, row in ipairs(found) do entries[i] = T.entry(S, row[1], row[2]) end
  T.node_lines(S, nodes, entries)
  return { T.envelope(S), (full and 'full ' or 'changes ') .. (more and 'more ' or 'done ') .. T.int(reached),
    table.concat(entries, '\n') }
end
