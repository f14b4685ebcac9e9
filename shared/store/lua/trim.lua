-- trim: Removes the oldest Events of a log, below its current Snapshot. Idempotent.
-- keys: the partition's @meta
-- args: replid group first
-- bound: 1,000 Events; "more" asks for another
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN SCHEMA_VALIDATION_FAILED
-- events: none
--
-- `first` is the first sequence to stay, at most the one behind the Snapshot. Where the log begins is noted, so that one that
-- somebody else trimmed is told apart (LOG_FOREIGN). The reply: envelope, "done" or "more", the first sequence that is there.
local TRIM_MAX = 1000

T.calls.trim = function(keys, a)
  local S, refused, G = T.command(keys, a)
  if refused then return refused end
  if not string.match(a[3], '^%d+$') or #a[3] > 14 then
    return T.refuse('SCHEMA_VALIDATION_FAILED', 'group=' .. a[2] .. ' first=' .. a[3])
  end
  local has, key = T.snapshot_of(S, G), S.base .. G.name .. ':log'
  local wanted = math.min(tonumber(a[3]), has.through + 1)
  if wanted <= has.first then return { T.envelope(S), 'done', T.int(has.first) } end
  local there = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  if not there then return T.refuse('LOG_REBORN', 'group=' .. a[2] .. ' has no log') end
  if there[1] ~= T.int(has.first) .. '-0' then
    return T.refuse('LOG_FOREIGN', 'group=' .. a[2] .. ' begins=' .. there[1] .. ' expected=' .. T.int(has.first) .. '-0')
  end
  local first = math.min(wanted, has.first + TRIM_MAX)
  redis.call('HSET', S.base .. G.name .. ':mission', 'first', T.int(first))
  redis.call('XTRIM', key, 'MINID', '=', T.int(first) .. '-0')
  return { T.envelope(S), first < wanted and 'more' or 'done', T.int(first) }
end
