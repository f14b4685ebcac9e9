-- Bodies of items: with the item where they are short, else in a key of their own.

-- Stores a body with its item, or beside it where it is long.
function T.put_body(S, G, it, name, bytes)
  if #bytes <= T.INLINE_MAX then
    T.drop_body(S, G, it, name)
    T.put(it, name, bytes)
  else
    G.bodies[S.base .. G.name .. ':' .. name .. ':' .. it.id] = bytes
    T.put(it, name, nil)
    T.put(it, name .. 'x', T.int(#bytes))
  end
end

function T.drop_body(S, G, it, name)
  if it[name .. 'x'] then G.bodies[S.base .. G.name .. ':' .. name .. ':' .. it.id] = false end
  T.put(it, name, nil)
  T.put(it, name .. 'x', nil)
end

function T.body_size(it, name)
  return it[name] and #it[name] or tonumber(it[name .. 'x'] or '0')
end

-- The body as the store has it, nil where there is none or its key is of another type by now. Reads only: for replies, after
-- the commit.
function T.body(S, group, id, name)
  local key = S.base .. group
  local short = T.try('HGET', key .. ':i:' .. id, name)
  return short or T.try('GET', key .. ':' .. name .. ':' .. id) or nil
end

-- Where Checkpoint `number` stands: the newest two are kept, by parity, so that no bytes are copied.
function T.checkpoint_name(number)
  return tonumber(number) % 2 == 0 and 'ck0' or 'ck1'
end
