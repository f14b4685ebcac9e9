-- release: Gives an item back at its last Checkpoint: one accepted and not started, or an active one with its lease.
-- keys: as turn
-- args: group item epoch reason found
-- bound: one item
-- flags: allow-oom
-- refusals: GROUP_NOT_FOUND LOG_FOREIGN LOG_REBORN MEMBERSHIP_STALE INVALID_COMMAND WORK_STALE_OWNERSHIP AUTH_STALE_SESSION
--   INVALID_STATE_TRANSITION SCHEMA_VALIDATION_FAILED
-- events: work.released work.offer.created work.parked
--
-- The reason CHECKPOINT says that no Checkpoint of it can be trusted, POISON that its inputs or its contract cannot be read:
-- it is parked for a person instead of offered. `found`, then: "bytes digest what", of what stands there instead. It stays
-- with the item until that is let go, and is the payload of the Event; '' where there is nothing to say.
T.arity.release = 5
T.FOUND_MAX = 1024

T.ops.release = function(S, group, id, epoch, reason, found)
  local G, it, code = T.target(S, group, id)
  code = code or T.stale_owner(S, it, epoch)
  code = code or (it.st ~= 'queued' and it.st ~= 'active' and 'INVALID_STATE_TRANSITION')
  local said = found == '' or (#found <= T.FOUND_MAX and string.find(found, '^%d+ %S+ %C+$'))
  code = code or (not said and 'SCHEMA_VALIDATION_FAILED')
  if code then return T.outcome(S, G, code) end
  local ended = it.st == 'active' and math.min(S.now, tonumber(it.lex)) or S.now
  local seq = T.emit(S, G, 'work.released', id, S.by, { epoch, reason })
  if reason == 'CHECKPOINT' or reason == 'POISON' then
    T.disown(S, G, it, ended)
    T.put(it, 'own', nil)
    T.put(it, 'st', 'open')
    T.park(S, G, it, reason, found)
    T.touch(G, it)
  else
    T.give_back(S, G, it, ended, 'released')
  end
  T.outcome(S, G, 'OK', T.int(seq))
end
