-- What ends an ownership by time alone: a lease, a start-by deadline, a blocked lease.

-- By kind of due entry: the state it is about, and the field with its time. By state: what its Event says.
local KINDS = { l = { 'active', 'lex' }, s = { 'queued', 'sby' }, b = { 'blocked', 'bex' } }
local WHATS = { active = 'lease', queued = 'start_by', blocked = 'blocked' }

function T.is_lapse(kind)
  return KINDS[kind] ~= nil
end

-- l, s, b: that time of an item passed: its ownership ends. It is offered again at once; one that is blocked stays so.
function T.lapse(S, G, it, kind, member)
  local state, field = KINDS[kind][1], KINDS[kind][2]
  if not it or it.st ~= state or not it[field] or G.state == 'cancelled' then
    G.due[member] = false
    return
  end
  local agent, at = it.own, kind == 's' and T.start_by(S, it) or tonumber(it[field])
  if at > S.now then
    G.due[member] = at
  else
    local seq = T.end_lapsed(S, G, it, at)
    -- A lease that was over before this server was adopted was lost with the store, not with its Worker.
    if kind == 'l' and at > S.adopted then T.after_loss(S, G, it)
    elseif kind ~= 'b' then T.offer_to_all(S, G, it, 'lapsed') end
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
  local seq = T.emit(S, G, 'work.lease_lapsed', it.id, 'timer', { it.oe, it.own, WHATS[it.st], T.int(at) })
  if it.st == 'blocked' then T.loosen(S, G, it) else T.disown(S, G, it, at) end
  return seq
end
