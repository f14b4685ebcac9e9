-- How many items of an account have not ended in this partition, and how many may come.

-- Of a Mission, by its counters.
function T.unfinished(count)
  return count.total - count.verified - count.failed - count.cancelled
end

-- Notes what a commit made of a Mission's number; `G.unfinished` is what it was.
function T.count_queued(S, G)
  local by = T.unfinished(G.count) - (G.unfinished or 0)
  if by == 0 then return end
  local node = 'q:' .. G.account
  S.queued = S.queued or {}
  S.queued[node] = (S.queued[node] or 0) + by
end

function T.write_queued(S)
  for node, by in pairs(S.queued or {}) do
    if by ~= 0 and redis.call('HINCRBY', S.base .. '@tally', node, by) <= 0 then redis.call('HDEL', S.base .. '@tally', node) end
  end
end

local function over(what, has, coming, most)
  return T.refuse('QUOTA_EXCEEDED', what .. ' unfinished=' .. T.int(has) .. ' coming=' .. T.int(coming) .. ' bound=' .. T.int(most)
    .. ' (submit them once enough have ended, or have the policy grant a larger `queued`)')
end

-- A refusal where bounds are of an older policy than the one that was noted here: their author reads that first.
function T.is_outdated(S, bounds)
  local of = string.match(bounds, '^%S+ %S+ %d+ (%d+)$')
  if of and tonumber(of) < tonumber(S.policy) then
    return T.refuse('REVISION_CONFLICT', 'policy=' .. S.policy .. ' known=' .. of)
  end
end

-- A refusal where `coming` items more are too many. `bounds`: "account group elsewhere": how many items that have not ended an
-- account and a Mission may have ('-': any number), how many the account has in other partitions, and where it matters of which
-- policy that is (`T.is_outdated`).
function T.too_many(S, G, bounds, coming)
  local account, group, elsewhere = string.match(bounds, '^(%S+) (%S+) (%d+) ?%d*$')
  if not elsewhere then return T.refuse('SCHEMA_VALIDATION_FAILED', 'queued=' .. bounds) end
  local has = G.count and T.unfinished(G.count) or 0
  if group ~= '-' and coming > 0 and has + coming > tonumber(group) then
    return over('mission=' .. G.name, has, coming, tonumber(group))
  end
  if account == '-' or coming == 0 then return nil end
  has = tonumber(redis.call('HGET', S.base .. '@tally', 'q:' .. G.account) or '0') + tonumber(elsewhere)
  if has + coming > tonumber(account) then return over('account=' .. G.account, has, coming, tonumber(account)) end
end
