-- tail: Reads a Group's log as one of its members may: from a sequence on, but nothing before its Membership (R6, R8).
-- keys: the partition's @meta
-- args: replid agent session group after most
-- bound: 1,000 Events
-- flags: no-writes
-- refusals: STORE_CHANGED AUTH_STALE_SESSION GROUP_NOT_FOUND LOG_FOREIGN MEMBERSHIP_REQUIRED MEMBERSHIP_STALE CURSOR_TOO_OLD
-- events: none
--
-- The reply: envelope; the first sequence that this member may see, the log's incarnation and its recorded end; then the entries
-- as XRANGE gives them. CURSOR_TOO_OLD where what is asked for was trimmed, with the first sequence
-- that is there and that of the Snapshot to go on from.
T.TAIL_MAX = 1000

T.calls.tail = function(keys, a)
  local S, refused = T.begin(keys, a[1])
  refused = refused or T.session(S, a[2], a[3])
  if refused then return refused end
  T.load(S, { a[4] })
  local G, who = S.groups[a[4]], 'group=' .. a[4] .. ' agent=' .. S.agent
  if not G then return T.refuse('GROUP_NOT_FOUND', who) end
  if G.kept_out then return T.refuse('MEMBERSHIP_STALE', who .. ' ended=' .. G.kept_out) end
  local epoch = string.match(G.members[S.agent], '^%d+')
  if not epoch then return T.refuse('MEMBERSHIP_REQUIRED', who) end
  local key = G.key .. ':log'
  local kind = redis.call('TYPE', key).ok
  if G.bad or (kind ~= 'stream' and kind ~= 'none') then return T.refuse('LOG_FOREIGN', who .. ' log=' .. kind) end
  local from = math.max(tonumber(a[5]) + 1, tonumber(epoch))
  local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  local begins = first and tonumber(string.match(first[1], '^%d+'))
  if begins and begins > from and from <= G.seq and first[2][4] ~= 'group.repaired' then
    -- A log that begins elsewhere was cut by somebody else: its reader finds the hole.
    local kept = redis.call('HMGET', G.key .. ':mission', 'first', 'snap')
    if tonumber(kept[1] or '1') == begins then
      return T.refuse('CURSOR_TOO_OLD', who .. ' after=' .. T.int(from - 1) .. ' first=' .. T.int(begins)
        .. ' snapshot=' .. (string.match(kept[2] or '0', '^%d+') or '0'))
    end
  end
  local most = math.min(tonumber(a[6]), T.TAIL_MAX)
  local known = epoch .. ' ' .. G.incarnation .. ' ' .. T.int(G.seq)
  return { T.envelope(S), known, redis.call('XRANGE', key, T.int(from), '+', 'COUNT', most) }
end
