-- Effects of an item: what its runs did outside the store, each under a name. They stand in a hash beside the item, `-` where
-- one was begun, `+` and its result where it was recorded; `ef` of the item says how many there are.

-- How many an item may have, and how long a result may be (codec.EFFECT_MAX).
T.EFFECTS_MAX, T.EFFECT_BYTES_MAX = 256, 65536

-- Whether a text is a name of an effect: a token, behind it the Ownership Epoch where the name includes it.
function T.is_effect(name)
  return #name <= T.TOKEN_MAX and string.find(name, '^[%w_.~%%-]+/?%d*$') ~= nil
end

-- What stands of an effect, nil where it was never begun. Where there are not as many as the item says, something was lost, and
-- what was done could be done again: the Group is halted.
function T.effect_of(S, G, it, name)
  local key = G.key .. ':ef:' .. it.id
  if not it.effects then
    if T.try('HLEN', key) ~= tonumber(it.ef or '0') then
      G.bad = 'LOG_FOREIGN'
      return nil
    end
    it.effects = {}
  end
  local stands = it.effects[name] or redis.call('HGET', key, name)
  if stands and not string.find(stands, '^[-+]') then G.bad = 'LOG_FOREIGN' end
  return stands or nil
end

-- An item with all that is its own; nil where it is not there, or (`G.bad`) not what the store wrote.
function T.inspected(S, G, id)
  G.bad = nil
  local it = T.item(S, G, id)
  if it then T.effect_of(S, G, it, '') end
  if it and not T.is_listed(it) then G.bad = 'LOG_FOREIGN' end
  return not G.bad and it or nil
end

-- Plans what is to stand of it.
function T.put_effect(it, name, value)
  it.effects[name] = value
  it.news = it.news or {}
  it.news[#it.news + 1], it.news[#it.news + 2] = name, value
end

-- The outcome of an effect that was recorded before; its result is read when the reply is made (`T.answer`).
function T.stored_effect(S, G, it, name)
  T.outcome(S, G, 'STORED', nil, { '* ' .. G.name .. ' ' .. it.id .. ' ' .. name })
end
