-- Snapshots: when a Group wants one, and what its Mission's record says of the one it has: `snap` "through digest size",
-- `first` the first sequence that its log was trimmed to (design.md 3.9). The Snapshot itself stands in `<group>:snapshot`:
-- its chunks by number, and through, digest, size, chunks.
T.SNAPSHOT_EVERY = 4096
-- Whoever was asked for a Snapshot has so long; then the next one that ticks is asked.
T.SNAPSHOT_MS = 30000
-- The size of an Event in the log, about: a Snapshot is wanted again once as much was appended as it holds itself.
local EVENT_BYTES = 64

function T.snapshot_of(S, G)
  local record = redis.call('HMGET', S.base .. G.name .. ':mission', 'snap', 'first')
  local through, digest, size = string.match(record[1] or '', '^(%d+) (%S+) (%d+)$')
  return { through = tonumber(through or '0'), digest = digest, size = tonumber(size or '0'),
    first = tonumber(record[2] or '1') }
end

-- A Group whose sequence goes past a multiple of SNAPSHOT_EVERY with this call is due for one.
function T.want_snapshot(S, G)
  local last = G.seq + #G.events
  if math.floor(G.seq / T.SNAPSHOT_EVERY) < math.floor(last / T.SNAPSHOT_EVERY) then
    G.due['k ' .. G.name .. ' 0'] = S.now
  end
end

-- k: the caller is asked to fold the log and to install what comes out; what a Snapshot costs is bounded by what is appended.
function T.ask_for_snapshot(S, G, member)
  local has = T.snapshot_of(S, G)
  if G.state ~= 'active' or G.seq - has.through < math.max(T.SNAPSHOT_EVERY, has.size / EVENT_BYTES) then
    G.due[member] = false
  else
    G.due[member] = S.now + T.SNAPSHOT_MS
    S.chores[#S.chores + 1] = 'k ' .. G.name .. ' ' .. T.int(G.seq)
  end
end
