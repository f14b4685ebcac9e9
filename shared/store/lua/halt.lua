-- halt: Halts a Group whose log a reader found damaged, as a writer that meets the damage does. Idempotent.
-- keys: the partition's @meta
-- args: replid group
-- bound: as many entries as the Mission has capabilities
-- flags: allow-oom
-- refusals: STORE_CHANGED GROUP_NOT_FOUND
-- events: none
--
-- The reply: envelope, why it is halted.
T.calls.halt = function(keys, a)
  local S, refused, G = T.at_group(keys, a)
  if refused then return refused end
  local why = string.match(G.state, '^halted:(.*)$')
  if why then return { T.envelope(S), why } end
  G.bad = G.bad or 'LOG_FOREIGN'
  T.commit(S)
  return { T.finish(S), G.bad }
end
