-- Snapshots: when a Group wants one, and what its Mission's record says of the one it has: `snap` "through digest size",
-- `first` the first sequence that its log was trimmed to (design.md 3.9). The Snapshot itself stands in `<group>:snapshot`:
-- its chunks by number, and through, digest, size, chunks.
T.SNAPSHOT_EVERY, T.CHUNKS_MAX = 4096, 256
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

-- Chunks of one that is not installed yet stand under a key of their own, which goes where nothing comes of them.
local GATHER_MS = 600000
function T.gather(key, number, chunk)
  redis.call('HSET', key, number, chunk)
  redis.call('PEXPIRE', key, GATHER_MS)
end

-- What is missing of the chunks that were gathered, or nil.
function T.missing_chunks(key, expected, chunks)
  local size = 0
  for number = 1, tonumber(chunks) do
    local bytes = redis.call('HSTRLEN', key, T.int(number))
    if bytes == 0 then return 'chunk=' .. T.int(number) .. ' is not there' end
    size = size + bytes
  end
  if size ~= tonumber(expected) then return 'size=' .. T.int(size) .. ' expected=' .. expected end
end

-- Makes what was gathered the current one.
function T.install_snapshot(S, G, gathered, through, digest, size, chunks)
  redis.call('HSET', gathered, 'through', through, 'digest', digest, 'size', size, 'chunks', chunks)
  redis.call('RENAME', gathered, S.base .. G.name .. ':snapshot')
  redis.call('PERSIST', S.base .. G.name .. ':snapshot')
  redis.call('HSET', S.base .. G.name .. ':mission', 'snap', table.concat({ through, digest, size }, ' '))
end
