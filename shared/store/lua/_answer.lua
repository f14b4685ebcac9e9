-- What a turn's reply says besides its outcomes.

-- Notes the runs of Events that are about the caller's own items; what others get of this call lies between them.
function T.concern_caller(S, G)
  local runs = {}
  for i, event in ipairs(G.events) do
    if event[3] == S.by or event[1] == 'work.result.accepted' then
      local run = runs[#runs]
      if run and run[2] == G.seq + i - 1 then run[2] = G.seq + i else runs[#runs + 1] = { G.seq + i, G.seq + i } end
    end
  end
  if #runs > 0 then G.bells[S.agent], G.own = { runs[1][1], runs[#runs][2] }, runs end
end

-- A line a run: "@ group previous first last", an unbroken chain from what concerned the caller before.
function T.bell_lines(S, G, lines)
  if G.bad or not G.own then return end
  local previous = G.bells[S.agent][3]
  for _, run in ipairs(G.own) do
    lines[#lines + 1] = table.concat({ '@', G.name, previous, T.int(run[1]), T.int(run[2]) }, ' ')
    previous = T.int(run[2])
  end
end

-- The parts of a turn's reply that are not kept: they are read fresh, for a repeated call too.
function T.answer(S, short, asked)
  local entries = {}
  for i, ask in ipairs(asked) do entries[i] = T.entry(S, ask[1], ask[2], ask[3]) end
  local envelope = T.envelope(S)
  T.ring_timer(S, string.match(envelope, '^%S+ (%S+)'))
  local reply = { envelope, short, table.concat(entries, '\n') }
  for group, id in string.gmatch('\n' .. short, '\n%+ (%S+) (%S+)') do
    reply[#reply + 1] = T.body(S, group, id, 'in') or ''
    reply[#reply + 1] = redis.call('HGET', S.base .. group .. ':i:' .. id, 'ct') or ''
  end
  return reply
end
