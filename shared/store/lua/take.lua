-- take: Accepts items of one Group and capability in the fixed order, and starts them while the call has free slots.
-- keys: as turn
-- args: group capability most offset limits
-- bound: `most` items, the call's slots and ahead, 1 MiB of inputs (or one item); 64 items passed over
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE QUARANTINE PAUSED EMPTY AUTH_FORBIDDEN
--   SCHEMA_VALIDATION_FAILED PASSED SHARE QUOTA BUDGET_EXCEEDED
-- events: work.offer.accepted work.started
--
-- `capability` may be ">" and the caller's own name: what was offered to it by name. Passed over is what is too wide for the
-- free slots, what needs resources that are not free, what is not this Worker's to do, and an offer that is over; PASSED: all
-- that was looked at was. SHARE, QUOTA: a limit (`_limits.lua`) stopped it before it gave anything; a QUOTA by rate says when
-- its window ends. After a SHARE the call gives nothing more: what stands behind was put there by counters that have moved.
T.arity.take = 5
T.SKIP_MAX = 64

local function candidates(S, G, cap, most)
  local gone = G.dels[cap] or {}
  local extra = 0
  for _ in pairs(gone) do extra = extra + 1 end
  local found, keys = redis.call('ZRANGEBYLEX', S.base .. '@take:' .. cap, '[' .. G.name .. ' ', '(' .. G.name .. '!',
    'LIMIT', 0, most + extra + 1), {}
  for _, member in ipairs(found) do
    local key = string.sub(member, #G.name + 2)
    if not gone[key] then keys[#keys + 1] = key end
  end
  local new = G.adds[cap]
  if new and next(new) then
    for key in pairs(new) do keys[#keys + 1] = key end
    table.sort(keys)
  end
  return keys
end

-- Whether this item is passed over although it stands in the index: another keeps slots free for it, its offer is over, it
-- asks for a later version or for resources than this Worker has (free), or it was directed at it, and that does no such work now.
local function is_passed(S, G, it)
  return T.is_held(S, it) or T.is_offer_over(S, it) or not T.is_able(S, it) or not T.is_spare(S, it) or it.to and T.paused(S, G, it.cap)
end

-- Accepts an item, and starts it where it fits the free slots; its grant's line.
local function give(S, G, it, width)
  local seq = T.accept(S, G, it)
  if width <= S.slots then
    S.slots = S.slots - width
    T.fill(S, it)
    T.start(S, G, it)
  else
    S.ahead = S.ahead - 1
    G.due['s ' .. G.name .. ' ' .. it.id] = tonumber(it.sby)
  end
  return T.granted(S, G, it, seq)
end

T.ops.take = function(S, group, cap, most, offset, limited)
  local G, limits, detail = S.groups[group], T.limits(limited)
  local code = T.shut(G) or (G.state ~= 'active' and 'EMPTY') or T.barred(S, G, cap)
  code = code or (string.sub(cap, 1, 1) == '>' and cap ~= '>' .. S.agent and 'AUTH_FORBIDDEN')
  code = code or ((limits == false or not T.is_offset(offset) or not string.find(most, '^%d+$')) and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.bar(S, G, code) elseif S.is_shared then return T.outcome(S, G, 'SHARE') end
  if S.slots <= 0 and S.ahead <= 0 and T.is_waiting(S, G, cap) then return T.outcome(S, G, 'OK', nil, {}) end
  local limit = math.min(tonumber(most), 64)
  local keys, lines, i, skipped = candidates(S, G, cap, limit), {}, 1, 0
  local some = #keys > 0
  while keys[i] and #lines < limit and skipped <= T.SKIP_MAX and S.grants < 64 and (S.slots > 0 or S.ahead > 0) do
    local it = T.named(S, G, T.of_key(keys[i]))
    if not it or it.key ~= keys[i] then
      G.bad = 'LOG_FOREIGN'
      break
    end
    local width, size = tonumber(it.w or '1'), T.body_size(it, 'in')
    if S.bytes + size > T.BYTES_MAX and S.grants > 0 then break end
    if not T.has_room(S, limits, width) or (it.ox or it.to or it.rsv or it.need or it.cap ~= cap) and is_passed(S, G, it) then
      -- All before the first that is passed over were taken: it heads the longer list that is looked through now.
      if skipped == 0 then keys, i = candidates(S, G, cap, limit + T.SKIP_MAX), 1 end
      skipped = skipped + 1
    else
      code, detail = T.limited(S, G, limits, width)
      S.is_shared = code == 'SHARE'
      if code then break end
      T.serve(G, offset)
      lines[#lines + 1] = give(S, G, it, width)
      if limits then T.count_rates(S, G, limits) end
      S.bytes, S.grants = S.bytes + size, S.grants + 1
    end
    i = i + 1
  end
  if keys[i] or skipped > 0 then
    G.leftover[cap] = #lines > 0 or nil
    G.dir[cap] = #lines > 0 and 'live' or G.dir[cap]
  else
    G.dir[cap] = 'empty'
  end
  if #lines > 0 then
    if G.dir[cap] == 'empty' or T.is_at_cap(S, G, limits) then T.leave(G) end
    return T.outcome(S, G, 'OK', nil, lines)
  end
  code = code or not some and 'EMPTY' or skipped > 0 and 'PASSED' or 'OK'
  T.outcome(S, G, code, detail, code == 'OK' and lines or nil)
end
