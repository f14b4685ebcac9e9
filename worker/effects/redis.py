"""Effects on a Redis server of the user's own: one script checks the token and runs what the body asked for.

    gate = RedisGate(redis.Redis(host="shop"))
    async with context.effect("reserve", at=gate) as effect:
        if effect.is_new:
            effect.at.queue("DECR", "stock:17")

The record of an effect and all keys its commands touch must be on one server; on a Cluster give a `prefix` with the hash tag
of those keys. A script is not rolled back: where a command fails after others were run, the effect is torn, and whoever
comes to it again is told so and does nothing (Refused, EFFECT_TORN): a person looks.
"""

from __future__ import annotations

from typing import Any, cast

import redis
from redis.exceptions import OutOfMemoryError
from treadle.shared.errors import Corrupt, Misuse, Refused, Unavailable

from .token import Token, judge

KEEP_S = 30 * 86_400
"""How long a record stays: needed only until the store has recorded the effect too."""
ARGUMENTS_MAX = 4_096
"""Words of one command: of some 8,000 a script of Lua ends."""
_Argument = str | bytes | int | float

_NOTE = """
local found = redis.call('HMGET', KEYS[1], 'token', 'result', 'torn')
if (found[1] or '') ~= ARGV[1] or found[2] or found[3] then return found end
redis.call('HSET', KEYS[1], 'token', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return { ARGV[2], false, false }
"""
"""Notes a token where the one that was seen is still there; what stands then."""
_COMMIT = """
local found = redis.call('HMGET', KEYS[1], 'token', 'result', 'torn')
if found[1] ~= ARGV[1] or found[2] or found[3] then return found end
local at, done = 4, 0
while at <= #ARGV do
  local size = tonumber(ARGV[at])
  local answer = redis.pcall(unpack(ARGV, at + 1, at + size))
  if type(answer) == 'table' and answer.err then
    if done > 0 then redis.call('HSET', KEYS[1], 'torn', done .. ' ' .. tostring(answer.err)) end
    return { false, false, done .. ' ' .. tostring(answer.err) }
  end
  at, done = at + size + 1, done + 1
end
redis.call('HSET', KEYS[1], 'result', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return { ARGV[1], ARGV[2], false }
"""
"""Runs commands, each after its length, where the token is the newest that was noted; what stands then."""
_ATTEMPTS = 10
_Stands = tuple[bytes | None, bytes | None, bytes | None]
"""Token, result, and what tore it."""


class Queue:
    """Commands to be run when the effect is committed, in this order, all in one script."""

    def __init__(self) -> None:
        self.queued: list[tuple[_Argument, ...]] = []

    def queue(self, command: str | bytes, *arguments: _Argument) -> None:
        """One command more; it gives no answer. Misuse for one that would end the script, or lead its record astray."""
        words = 1 + len(arguments)
        name = command.decode(errors="replace") if isinstance(command, bytes) else command
        if words > ARGUMENTS_MAX:
            raise Misuse(f"{name[:80]}: {words:,} words, at most {ARGUMENTS_MAX:,}; queue several commands")
        if name.upper() == "SELECT":
            raise Misuse(
                "SELECT: cannot be queued, its record would be in another database; give the gate a client of that one"
            )
        self.queued.append((command, *arguments))


class RedisGate:
    """A server that checks tokens, in a hash for each effect."""

    def __init__(self, client: redis.Redis, *, prefix: str = "treadle:effects:", keep_s: int = KEEP_S) -> None:
        if not isinstance(client, redis.Redis):
            raise Misuse(
                f"client: of type {type(client).__name__}, must be a redis.Redis, for an async handler too: the gate calls it "
                "in a thread"
            )
        if client.connection_pool.connection_kwargs.get("decode_responses"):
            raise Misuse("client: it decodes responses, and results are bytes; give one with decode_responses=False")
        if isinstance(keep_s, bool) or not isinstance(keep_s, int) or keep_s < 1:
            raise Misuse(f"keep_s: {keep_s!r}, must be whole seconds, at least 1")
        self._client = cast("Any", client)
        self._prefix = prefix
        self._keep_s = keep_s

    def enter(self, key: str, token: Token) -> RedisPassage:
        """The token is noted; nothing is locked."""
        seen = b""
        for _ in range(_ATTEMPTS):
            stands = self._run(_NOTE, key, seen, token.wire(), self._keep_s)
            stored = _result(stands, key)
            if stored is not None or stands[0] == token.wire().encode():
                return RedisPassage(self, key, token, stored)
            seen = stands[0] or b""
            if seen:
                judge(token, Token.noted(seen, place=self._prefix + key), key=key)
        raise Unavailable(f"effect {key}: others come to it all the time; it was not begun")

    def commit(self, key: str, token: Token, result: bytes, queue: Queue) -> None:
        """Runs the commands and keeps the result, where no later run was here."""
        flat = [part for command in queue.queued for part in (len(command), *command)]
        stands = self._run(_COMMIT, key, token.wire(), result, self._keep_s, *flat)
        if _result(stands, key) is None or stands[0] != token.wire().encode():
            judge(token, Token.noted(stands[0], place=self._prefix + key) if stands[0] else None, key=key)
            raise Unavailable(f"effect {key}: its record is gone; nothing was done")

    def _run(self, script: str, key: str, *arguments: _Argument) -> _Stands:
        """What stands after a script; Unavailable where the server does not say, Corrupt where its record is something else."""
        try:
            token, result, torn = self._client.eval(script, 1, self._prefix + key, *arguments)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise Unavailable(f"effect {key}: {error}") from error
        except (OutOfMemoryError, redis.ReadOnlyError) as error:  # said before a script begins
            raise Unavailable(f"effect {key}: {error}; nothing was done") from error
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise Corrupt(
                f"effect {key}: the key {self._prefix + key} holds something else than its record; see whether the effect was "
                "done, and delete the key where it may be"
            ) from None
        return token, result, torn


class RedisPassage:
    """One run; `place` queues its commands."""

    def __init__(self, gate: RedisGate, key: str, token: Token, stored: bytes | None) -> None:
        self.place = Queue()
        self.stored = stored
        self._gate = gate
        self._key = key
        self._token = token

    def commit(self, result: bytes) -> None:
        """Runs what was queued."""
        self._gate.commit(self._key, self._token, result, self.place)

    def close(self) -> None:
        """Nothing of it is anywhere yet."""


def _result(stands: _Stands, key: str) -> bytes | None:
    """The result, if there is one; Refused where it was torn."""
    if stands[2] is None:
        return stands[1]
    done, _, why = stands[2].decode(errors="replace").partition(" ")
    if done == "0":
        raise Misuse(f"effect {key}: its first command failed, nothing was done: {why}")
    raise Refused(
        f"effect {key}: {done} commands of it were run, and then one failed: {why}; it is not run again: look at what "
        "they did, and delete its record where it may be",
        code="EFFECT_TORN",
    )
