"""Effects over HTTP: two headers say which effect and which run, and a service that keeps a `Ledger` does each once.

A service without one does it at least once: at most as often as a run began it and nobody recorded what came of it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike

from treadle.shared.errors import Misuse

from .sqlite import SqliteGate
from .token import Token

KEY_HEADER = "Idempotency-Key"
TOKEN_HEADER = "Treadle-Fencing-Token"
KEY_MAX = 255
"""Characters of an idempotency key that services take; a longer one is sent as its digest."""


def headers_of(key: str, token: Token) -> dict[str, str]:
    """The headers of a request that does this effect."""
    if len(key) > KEY_MAX:
        key = f"sha256-{hashlib.sha256(key.encode()).hexdigest()}"
    return {KEY_HEADER: key, TOKEN_HEADER: token.wire()}


@dataclass(frozen=True, slots=True)
class Done:
    """What a service answers: the result, and whether this very request did it."""

    result: bytes
    is_new: bool


class Ledger:
    """A service's own record of what it did, over SQLite; for any framework."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._gate = SqliteGate(path)

    def carry_out(self, headers: Mapping[str, str], do: Callable[[sqlite3.Connection], bytes]) -> Done:
        """What `do` gives, or gave when this effect was done before; it writes with the connection it is given, or not at all.

        Misuse where a header is missing or is none (answer 400), Stale where a later run was here (409), Unavailable where the
        database is locked for long (503).
        """
        named = {name.lower(): value for name, value in headers.items()}
        key, token = named.get(KEY_HEADER.lower()), named.get(TOKEN_HEADER.lower())
        if not key or not token:
            raise Misuse(f"headers: {KEY_HEADER} and {TOKEN_HEADER} must both be there")
        if len(key) > KEY_MAX or not key.isascii() or not key.isprintable():
            raise Misuse(f"{KEY_HEADER}: {key[:80]!r} is none, must be 1 to {KEY_MAX} printable characters of ASCII")
        passage = self._gate.enter(key, Token.parse(token))
        try:
            if passage.stored is not None:
                return Done(passage.stored, is_new=False)
            result = do(passage.place)
            if not isinstance(result, bytes):  # None would be no result, and the next repetition do it again
                raise Misuse(f"do: gave a {type(result).__name__}, must be bytes; nothing was done")
            passage.commit(result)
            return Done(result, is_new=True)
        finally:
            passage.close()
