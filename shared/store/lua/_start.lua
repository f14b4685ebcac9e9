-- Starting: an Execution Lease with a sequence of its own, and the run that is charged from here on.

-- Starts an item its owner may start: the Execution Lease is bound to Agent, session, item and Ownership Epoch.
function T.start(S, G, it)
  S.leases = S.leases + 1
  T.put(it, 'lid', S.lease_key .. T.int(S.leases))
  T.put(it, 'ln', it.ln and T.int(it.ln + 1) or '1')
  T.put(it, 'lex', S.lease_end)
  T.put(it, 'st', 'active')
  T.begin_run(S, G, it)
  G.due['l ' .. G.name .. ' ' .. it.id] = S.now + S.ttl
  return T.emit(S, G, 'work.started', it.id, S.by, table.concat({ it.oe, it.lid, it.lex, it.ln }, ' '))
end
