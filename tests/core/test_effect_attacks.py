"""What is done to the places of effects from outside, and by many at once: each effect once, or it is said that it was not."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import fakeredis
import pytest
import redis
from treadle.shared.errors import Corrupt, Stale, Unavailable
from treadle.worker.effects import FileGate, Ledger, SqliteGate, Token, headers_of
from treadle.worker.effects.redis import RedisGate

FIRST, SECOND = Token(1, 1, 1, "w-1.1.0"), Token(1, 1, 2, "w-2.1.0")
KEY = "m/a/send"

# --- files that others meddle with ---


def a_line(path: Path, token: Token, *, key: str = KEY, meddle: Callable[[Path], object] = lambda _: None) -> bytes:
    """Adds a line through the gate, while somebody meddles; the result that stands."""
    passage = FileGate(path, busy_s=0.5).enter(key, token)
    try:
        if passage.stored is None:
            with passage.place.open("a") as file:
                file.write(f"{token.lease}\n")
            meddle(path)
            passage.commit(token.lease.encode())
        return passage.stored or token.lease.encode()
    finally:
        passage.close()


def lock_taken_away(path: Path) -> None:
    path.with_name(path.name + ".effects").joinpath("lock").unlink()


def lock_made_anew(path: Path) -> None:
    lock_taken_away(path)
    path.with_name(path.name + ".effects").joinpath("lock").touch()


def another_came(path: Path) -> None:
    """By a lock that was made anew, to the same effect, and is through."""
    lock_taken_away(path)
    assert a_line(path, SECOND) == b"w-2.1.0"


def another_key_came(path: Path) -> None:
    lock_taken_away(path)
    assert a_line(path, SECOND, key="m/b/send") == b"w-2.1.0"


def copy_taken_away(path: Path) -> None:
    (part,) = path.with_name(path.name + ".effects").glob("part.*")
    part.unlink()


def file_taken_away(path: Path) -> None:
    path.unlink()


def file_appended(path: Path) -> None:
    with path.open("a") as file:
        file.write("by hand\n")


def file_replaced(path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_text("by hand\n")
    new.replace(path)


def records_taken_away(path: Path) -> None:
    for record in path.with_name(path.name + ".effects").joinpath("done").iterdir():
        record.unlink()


@pytest.mark.parametrize(
    ("meddle", "said", "left"),
    [
        (lock_taken_away, "lock was taken away, others may be at it", ["before"]),
        (lock_made_anew, "lock was taken away, others may be at it", ["before"]),
        (another_came, "lock was taken away, others may be at it", ["before", "w-2.1.0"]),
        (another_key_came, "lock was taken away, others may be at it", ["before", "w-2.1.0"]),
        (copy_taken_away, "the copy of the file, was taken away", ["before"]),
        (file_taken_away, "was changed by somebody who does not come through this gate", []),
        (file_appended, "was changed by somebody who does not come through this gate", ["before", "by", "hand"]),
        (file_replaced, "was changed by somebody who does not come through this gate", ["by", "hand"]),
        (records_taken_away, "was taken away or written by somebody else", ["before"]),
    ],
)
def test_s6_nothing_is_committed_to_a_file_that_somebody_meddled_with_and_the_next_run_does_it_once(
    meddle: Callable[[Path], object], said: str, left: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "book.txt"
    path.write_text("before\n")
    with pytest.raises(Unavailable, match=f"{said}; nothing was done, it may be tried again"):
        a_line(path, FIRST, meddle=meddle)
    assert (path.read_text().split() if path.exists() else []) == left
    third = Token(1, 1, 3, "w-3.1.0")
    is_done = meddle is another_came
    assert a_line(path, third) == (b"w-2.1.0" if is_done else b"w-3.1.0")
    assert path.read_text().split() == [*left, *([] if is_done else ["w-3.1.0"])]
    assert a_line(path, Token(1, 1, 4, "w-4.1.0")) == (b"w-2.1.0" if is_done else b"w-3.1.0")


def test_s6_a_copy_that_is_written_after_another_run_was_through_never_takes_the_files_place(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    passage = FileGate(path).enter(KEY, FIRST)
    passage.place.write_text("first\n")
    another_came(path)
    passage.place.write_text("late\n")
    with pytest.raises(Unavailable, match="lock was taken away"):
        passage.commit(b"late")
    passage.close()
    assert path.read_text() == "w-2.1.0\n"
    assert a_line(path, Token(1, 1, 3, "w-3.1.0"), key="m/b/send") == b"w-3.1.0"
    assert path.read_text() == "w-2.1.0\nw-3.1.0\n"


def test_s6_who_waits_for_a_lock_whose_file_is_taken_away_waits_for_the_new_one(tmp_path: Path) -> None:
    """It would hold a lock that nobody else sees."""
    path = tmp_path / "book.txt"
    gate = FileGate(path, busy_s=0.05)
    held = gate.enter(KEY, FIRST)
    stale = os.open(tmp_path / "book.txt.effects" / "lock", os.O_RDWR)
    opened = os.open

    def opens_what_goes(name: Any, *flags: Any) -> int:
        if Path(name).name != "lock":
            return opened(name, *flags)
        patched.stop()
        held.close()
        lock_taken_away(path)
        return os.dup(stale)

    patched = mock.patch.object(os, "open", opens_what_goes)
    patched.start()
    passage = gate.enter("m/b/send", SECOND)
    with pytest.raises(Unavailable, match="is held by another one"):
        gate.enter("m/c/send", SECOND)
    passage.commit(b"")
    passage.close()
    os.close(stale)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As a full disk is: what is written behind that fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fill(path: Path, when: str) -> None:
    with no_file_larger_than(1_000 if when == "the copy" else 5_500):
        passage = FileGate(path).enter(KEY, FIRST)
    try:
        with no_file_larger_than(5_500):
            if when == "the body":
                passage.place.write_text("y" * 6_000)
            passage.commit(b"r" * 6_000)
    finally:
        passage.close()


@pytest.mark.parametrize("when", ["the copy", "the body", "the record"])
def test_s6_where_the_disk_of_a_file_is_full_nothing_of_it_is_there_and_it_is_done_once_there_is_room(
    when: str, tmp_path: Path
) -> None:
    path = tmp_path / "book.txt"
    before = "x" * 5_000 + "\n"
    path.write_text(before)
    with pytest.raises(OSError, match="File too large"):
        fill(path, when)
    assert path.read_text() == before
    assert [one.name for one in (tmp_path / "book.txt.effects").glob("part.*")] == []
    assert a_line(path, SECOND) == b"w-2.1.0"
    assert path.read_text() == before + "w-2.1.0\n"


# --- databases: locked, full, and come to by many ---


def a_database(path: Path, mode: str = "delete") -> Path:
    made = sqlite3.connect(path)
    assert made.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
    made.execute("CREATE TABLE sent (line TEXT)")
    made.close()
    return path


def lines(path: Path) -> list[str]:
    found = sqlite3.connect(path)
    try:
        return [line for (line,) in found.execute("SELECT line FROM sent ORDER BY rowid")]
    finally:
        found.close()


def send(path: Path, token: Token, line: str, *, busy_s: float = 0.05, before: str = "") -> bytes:
    passage = SqliteGate(path, busy_s=busy_s).enter(KEY, token)
    try:
        if passage.stored is None:
            if before:
                passage.place.execute(before)
            passage.place.execute("INSERT INTO sent VALUES (?)", (line,))
            passage.commit(b"r" * 50)
        return passage.stored or b""
    finally:
        passage.close()


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_database_that_another_writer_holds_for_too_long_is_unavailable_and_nothing_is_done(
    mode: str, tmp_path: Path
) -> None:
    path = a_database(tmp_path / "sent.db", mode)
    assert send(path, FIRST, "before") == b""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"m/b/send: .*sent\.db: database is locked"):
        SqliteGate(path, busy_s=0.05).enter("m/b/send", FIRST)
    with pytest.raises(Unavailable, match=r"sent\.db: database is locked; nothing was forgotten"):
        SqliteGate(path, busy_s=0.05).prune(older_s=0)
    writer.close()
    assert lines(path) == ["before"]


def test_s6_a_reader_that_keeps_a_commit_waiting_for_too_long_leaves_nothing_done(tmp_path: Path) -> None:
    """Without a write-ahead log the last step waits for all who read."""
    path = a_database(tmp_path / "sent.db")
    passage = SqliteGate(path, busy_s=0.05).enter(KEY, FIRST)
    passage.place.execute("INSERT INTO sent VALUES ('once')")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM sent").fetchall()
    with pytest.raises(Unavailable, match=r"m/a/send: cannot be committed \(database is locked\); nothing was done"):
        passage.commit(b"")
    passage.close()
    reader.close()
    assert lines(path) == []
    send(path, SECOND, "once")
    assert lines(path) == ["once"]


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_s6_where_the_disk_of_a_database_is_full_nothing_is_done(mode: str, tmp_path: Path) -> None:
    path = a_database(tmp_path / "sent.db", mode)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        send(path, FIRST, "x" * 100_000, before="PRAGMA max_page_count = 5")
    passage = SqliteGate(path).enter(KEY, FIRST)
    passage.place.execute("PRAGMA max_page_count = 5")
    passage.place.execute("INSERT INTO sent VALUES ('small')")
    with pytest.raises(Unavailable, match=r"cannot be committed \(database or disk is full\); nothing was done"):
        passage.commit(b"r" * 60_000)
    passage.close()
    assert lines(path) == []
    send(path, SECOND, "once")
    assert lines(path) == ["once"]


def test_a_row_that_somebody_else_wrote_is_named_and_nothing_is_done(tmp_path: Path) -> None:
    path = a_database(tmp_path / "sent.db")
    send(path, FIRST, "once")
    other = sqlite3.connect(path)
    with other:
        other.execute("UPDATE treadle_effects SET token = 'mine', result = NULL")
    other.close()
    with pytest.raises(Corrupt, match="table treadle_effects, key m/a/send: is no record of an effect"):
        send(path, SECOND, "twice")
    assert lines(path) == ["once"]


MANY = 8
_ONE = """
import sys
from treadle.shared.errors import Stale
from treadle.worker.effects import FileGate, Ledger, SqliteGate, Token, headers_of

what, path, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
token = Token(1, 1, number, f"w-{number}")
print("here", flush=True)
sys.stdin.readline()


def do(place):
    place.execute("INSERT INTO sent VALUES (?)", (f"w-{number}",))
    return str(number).encode()


try:
    if what == "ledger":
        ledger = Ledger(path)
        ledger._gate._busy_s = 60
        done = ledger.carry_out(headers_of("m/a/send", token), do)
        print("new" if done.is_new else "stored", done.result.decode())
    else:
        passage = SqliteGate(path, busy_s=60).enter("m/a/send", token)
        if passage.stored is None:
            result = do(passage.place)
            passage.commit(result)
            print("new", result.decode())
        else:
            print("stored", passage.stored.decode())
        passage.close()
except Stale:
    print("stale")
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("what", ["ledger", "gate"])
def test_s6_of_many_processes_that_come_with_one_key_at_once_one_does_it_and_all_know_its_result(
    what: str, mode: str, tmp_path: Path
) -> None:
    path = a_database(tmp_path / "sent.db", mode)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _ONE, what, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(1, MANY + 1)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=100)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * MANY
    (new,) = [result for code, *result in said if code == "new"]
    assert all(result == new for code, *result in said if code == "stored")
    assert {code for code, *_ in said} <= {"new", "stored", "stale"}
    assert lines(path) == [f"w-{new[0]}"]
    later = Ledger(path).carry_out(headers_of(KEY, Token(1, 1, MANY + 1, "w-last")), lambda _: b"again")
    assert (later.is_new, later.result.decode()) == (False, new[0])


# --- Redis ---


@pytest.fixture
def client() -> Iterator[Any]:
    made = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    yield made
    made.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_key_at_redis_that_holds_something_else_is_named_and_nothing_is_done(when: str, client: Any) -> None:
    gate, key = RedisGate(client), f"treadle:effects:{KEY}"
    said = f"effect {KEY}: the key {key} holds something else than its record"
    if when == "before":
        client.set(key, "mine")
        with pytest.raises(Corrupt, match=said):
            gate.enter(KEY, FIRST)
    else:
        passage = gate.enter(KEY, FIRST)
        passage.place.queue("INCR", "sent")
        client.delete(key)
        client.set(key, "mine")
        with pytest.raises(Corrupt, match=said):
            passage.commit(b"")
    assert client.get("sent") is None
    assert client.get(key) == b"mine", "it is not ours to take away"
    client.delete(key)
    passage = gate.enter(KEY, SECOND)
    passage.place.queue("INCR", "sent")
    passage.commit(b"")
    assert client.get("sent") == b"1"


def test_a_record_at_redis_with_a_token_that_is_none_is_named_and_nothing_is_done(client: Any) -> None:
    client.hset(f"treadle:effects:{KEY}", "token", b"\xff mine")
    with pytest.raises(Corrupt, match=f"treadle:effects:{KEY}: is no record of an effect"):
        RedisGate(client).enter(KEY, FIRST)


@pytest.mark.parametrize(
    "error", [redis.exceptions.OutOfMemoryError("OOM command not allowed"), redis.ReadOnlyError("You can't write")]
)
def test_a_redis_that_takes_no_writes_is_unavailable_and_nothing_is_done(
    error: Exception, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = RedisGate(client)
    passage = gate.enter(KEY, FIRST)

    def refuses(*_: object) -> None:
        raise error

    monkeypatch.setattr(client, "eval", refuses)
    for asked in (lambda: passage.commit(b""), lambda: gate.enter(KEY, SECOND)):
        with pytest.raises(Unavailable, match=f"effect {KEY}: .*; nothing was done"):
            asked()
    monkeypatch.undo()
    later = gate.enter(KEY, SECOND)
    with pytest.raises(Stale):
        passage.commit(b"")
    later.commit(b"")
