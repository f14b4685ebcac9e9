-- Accepting an offer: a new Ownership Epoch, a start-by deadline, and what its owner is told.

-- Who was asked besides the winner has lost the race, and is rung; what was preferred is from now on everybody's.
local function settle(S, G, it, seq)
  for _, agent in ipairs(T.candidates(it.to)) do
    if agent ~= S.agent then T.concern(S, G, agent, seq) end
  end
  if it.basis == 'preferred' then T.direct(it, '- 0') end
end

-- The caller accepts an item; the sequence of that Event. Its `basis`, why it came to this Worker (R26), is not stored.
function T.accept(S, G, it)
  T.put(it, 'oe', T.int(tonumber(it.oe or '0') + 1))
  T.put(it, 'own', S.agent)
  T.put(it, 'ses', S.epoch)
  T.put(it, 'sby', it.sb and T.int(S.now + 1000 * it.sb) or S.start_by)
  T.put(it, 'st', 'queued')
  if it.to or it.ox then T.retract(G, it) else T.index(G, it, false) end
  G.held[S.agent] = G.held[S.agent] or {}
  G.held[S.agent][it.id] = true
  it.basis = it.to and string.match(it.to, '^%a+') or 'all'
  local seq = T.emit(S, G, 'work.offer.accepted', it.id, S.by, it.oe .. ' ' .. it.sby .. ' ' .. it.basis)
  if it.to then settle(S, G, it, seq) end
  return seq
end

-- A grant's line: "+ group item capability epoch start_by seq lease expires number width checkpoint after basis
-- digest before resolution"; '-' where there is none. `digest` is that of the Checkpoint, `before` that of the one before it.
-- Where the line could not be read again, its Group is damaged.
function T.granted(S, G, it, seq)
  if not T.is_listed(it) then G.bad = 'LOG_FOREIGN' end
  local live = it.st == 'active'
  return table.concat({ '+', G.name, it.id, it.cap, it.oe, it.sby, T.int(seq), live and it.lid or '-', live and it.lex or '-',
    it.ln or '0', T.fills(it), it.ckn or '0', it.after and string.gsub(it.after, ' ', ',') or '-', it.basis or 'all',
    it.ckd or '-', it.ckp or '-', (it.rv or it.rvx) and '1' or '-' }, ' ')
end
