-- What ends an ownership by time alone: a lease, a start-by deadline.

-- l, s: the lease or the start-by deadline of an item passed: its ownership ends, it is offered again at once.
function T.lapse(S, G, it, kind, member)
  local wanted = kind == 'l' and 'active' or 'queued'
  if not it or it.st ~= wanted or G.state == 'cancelled' then
    G.due[member] = false
    return
  end
  local agent, at = it.own, kind == 'l' and tonumber(it.lex) or T.start_by(S, it)
  if at > S.now then
    G.due[member] = at
  else
    local seq = T.end_lapsed(S, G, it, at)
    -- A lease that was over before this server was adopted was lost with the store, not with its Worker.
    if kind == 'l' and at > S.adopted then T.after_loss(S, G, it) else T.offer_to_all(S, G, it, 'lapsed') end
    T.concern(S, G, agent, seq)
    T.touch(G, it)
  end
end

-- Until when the owner of an item holds it, by its lease or its start-by deadline; nil where nobody does.
function T.held_until(S, it)
  return it.st == 'active' and tonumber(it.lex) or it.st == 'queued' and T.start_by(S, it) or nil
end

-- The Event of an ownership that lapsed at `at`, and its end; the Event's sequence.
function T.end_lapsed(S, G, it, at)
  local what = it.st == 'active' and 'lease' or 'start_by'
  local seq = T.emit(S, G, 'work.lease_lapsed', it.id, 'timer', { it.oe, it.own, what, T.int(at) })
  T.disown(S, G, it, at)
  return seq
end
