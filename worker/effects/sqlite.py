"""Effects on a SQLite database: the row that says they happened is in the same transaction as what they write.

    gate = SqliteGate("invoices.db")
    async with context.effect("book", at=gate) as effect:
        if effect.is_new:
            effect.at.execute("INSERT INTO invoices VALUES (?)", (17,))

While the body runs, the database is locked for other writers: what is slow comes before it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import NoReturn

from treadle.shared.errors import Misuse, Unavailable

from .token import Token, judge

BUSY_S = 10.0
_TABLE = """
    CREATE TABLE IF NOT EXISTS treadle_effects (
        key TEXT PRIMARY KEY, token TEXT NOT NULL, result BLOB,
        noted INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER))
    ) WITHOUT ROWID
"""
_NOTE = """
    INSERT INTO treadle_effects (key, token) VALUES (?, ?)
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, noted = excluded.noted
"""

_RESULT = """
    INSERT INTO treadle_effects (key, token, result) VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET result = excluded.result
"""
_LEAVE = "leave COMMIT and ROLLBACK to the gate, and give it one statement at a time, with `execute` or `executemany`"


class SqliteGate:
    """A database file that checks tokens, in a table of its own, `treadle_effects`."""

    def __init__(self, path: str | PathLike[str], *, busy_s: float = BUSY_S) -> None:
        """`busy_s`: how long it waits for another writer before it gives up (Unavailable)."""
        if os.fsdecode(path) in ("", ":memory:"):
            raise Misuse(f"path: {os.fsdecode(path)!r} is gone with its connection, must be a file")
        self.path = Path(os.path.realpath(os.fsdecode(path)))  # from where the gate is made, not from where it is used
        self._busy_s = busy_s

    def enter(self, key: str, token: Token) -> SqlitePassage:
        """A transaction of its own, begun; the token is noted before it, so that it stands whatever the body comes to."""
        connection = _connected(self.path, self._busy_s)
        try:
            stored = _note(connection, key, token)
            if stored is None:
                connection.execute("BEGIN IMMEDIATE")
                stored = _look(connection, key, token)
                connection.bind()
            return SqlitePassage(connection, key, token, stored)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise Unavailable(f"effect {key}: {self.path}: {error}") from error
            raise

    def prune(self, *, older_s: int) -> int:
        """Forgets effects noted longer ago than that; how many. An effect that its store has recorded is not needed here."""
        connection = _connected(self.path, self._busy_s)
        try:
            gone = connection.execute("DELETE FROM treadle_effects WHERE noted < strftime('%s', 'now') - ?", (older_s,))
            return gone.rowcount
        except sqlite3.OperationalError as error:
            raise Unavailable(f"{self.path}: {error}; nothing was forgotten") from error
        finally:
            connection.close()


class Bound(sqlite3.Connection):
    """A connection whose transaction is the gate's: what would end it, or write outside of it, is refused.

    Python ends one where nobody says so, at the end of `with connection` and before a script, and SQLite where a statement is
    OR ROLLBACK: what was written would be there without its record, and be written again.
    """

    has_refused = False

    def bind(self) -> None:
        """From here on."""
        self.set_authorizer(self._judge)

    def release(self) -> None:
        """To here."""
        self.set_authorizer(None)

    def _judge(self, action: int, *_: object) -> int:
        if action != sqlite3.SQLITE_TRANSACTION and self.in_transaction:
            return sqlite3.SQLITE_OK
        self.has_refused = True
        return sqlite3.SQLITE_DENY

    def __enter__(self) -> NoReturn:
        self._refuse("with")

    def commit(self) -> NoReturn:
        self._refuse("commit()")

    def rollback(self) -> NoReturn:
        self._refuse("rollback()")

    def executescript(self, _: object) -> NoReturn:
        self._refuse("executescript()")

    def _refuse(self, what: str) -> NoReturn:
        self.has_refused = True
        raise Misuse(f"{what}: would end the transaction of an effect; {_LEAVE}")


class SqlitePassage:
    """One transaction; `place` is its connection."""

    def __init__(self, connection: Bound, key: str, token: Token, stored: bytes | None) -> None:
        self.place: sqlite3.Connection = connection
        self._connection = connection
        self.stored = stored
        self._key = key
        self._token = token

    def commit(self, result: bytes) -> None:
        """Commits what the body wrote, with its result."""
        connection = self._connection
        if connection.has_refused or not connection.in_transaction:
            raise Misuse(f"effect {self._key}: its body ended the transaction, or tried to; {_LEAVE}")
        connection.release()
        try:
            # The lock was held since the token was looked at: nobody can have come between.
            connection.execute(_RESULT, (self._key, self._token.wire(), result))
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:  # full, or without a write-ahead log another one reads for too long
            raise Unavailable(f"effect {self._key}: cannot be committed ({error}); nothing was done") from error

    def close(self) -> None:
        """Rolls back what was not committed."""
        connection = self._connection
        with suppress(sqlite3.ProgrammingError):  # it is closed
            connection.release()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.close()


def _connected(path: str | PathLike[str], busy_s: float) -> Bound:
    # No implicit transactions; and it is opened in a thread, and written to by the handler in its own.
    connection = None
    try:
        # No statement is kept: one that was judged before would not be judged again.
        connection = sqlite3.connect(
            path, timeout=busy_s, isolation_level=None, check_same_thread=False, cached_statements=0, factory=Bound
        )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_TABLE)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise Unavailable(f"{os.fspath(path)}: {error}") from error
        raise
    return connection


def _note(connection: sqlite3.Connection, key: str, token: Token) -> bytes | None:
    """Notes the token in a transaction of its own, so that no earlier one is accepted after it; the result if there is one."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        stored = _look(connection, key, token)
        if stored is None:
            connection.execute(_NOTE, (key, token.wire()))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends it by itself where its disk is full
            connection.execute("ROLLBACK")
        raise
    return stored


def _look(connection: sqlite3.Connection, key: str, token: Token) -> bytes | None:
    row = connection.execute("SELECT token, result FROM treadle_effects WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    highest, result = row
    if result is None:
        judge(token, Token.noted(highest, place=f"table treadle_effects, key {key}"), key=key)
        return None
    return bytes(result)
