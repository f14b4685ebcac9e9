"""The places that check tokens: what happens there happens once, and never for a run that was followed by a later one."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse, Refused, Stale, Unavailable
from treadle.worker.effects import FileGate, Gate, Ledger, SqliteGate, Token, headers_of
from treadle.worker.effects.redis import ARGUMENTS_MAX, Queue, RedisGate
from treadle.worker.effects.token import effect_key, effect_name, judge

FIRST, SECOND = Token(1, 1, 1, "w-1.1.0"), Token(1, 1, 2, "w-2.1.0")
RIVAL = Token(1, 1, 1, "w-9.1.0")
KEY = "acme%2Forders/send/send-invoice"

Write = Callable[[Any, str], None]


class Place:
    """One gate over something that lists what happened in it."""

    def __init__(self, kind: str, folder: Path, busy_s: float = 0.0) -> None:
        self.kind = kind
        self.folder = folder
        self.client: Any = fakeredis.FakeRedis(server=fakeredis.FakeServer())
        gates: dict[str, Callable[[], Gate[Any]]] = {
            "sqlite": lambda: SqliteGate(folder / "book.db", busy_s=busy_s),
            "file": lambda: FileGate(folder / "book.txt", busy_s=busy_s),
            "redis": lambda: RedisGate(self.client),
        }
        self.gate = gates[kind]()
        if kind == "sqlite":
            with sqlite3.connect(folder / "book.db") as made:
                made.execute("CREATE TABLE book (line TEXT)")
            made.close()

    def write(self, place: Any, line: str) -> None:
        if self.kind == "sqlite":
            place.execute("INSERT INTO book VALUES (?)", (line,))
        elif self.kind == "file":
            with place.open("a") as file:
                file.write(line + "\n")
        else:
            place.queue("RPUSH", "book", line)

    @property
    def lines(self) -> list[str]:
        if self.kind == "sqlite":
            found = sqlite3.connect(self.folder / "book.db")
            try:
                return [line for (line,) in found.execute("SELECT line FROM book ORDER BY rowid")]
            finally:
                found.close()
        if self.kind == "file":
            path = self.folder / "book.txt"
            return path.read_text().split() if path.exists() else []
        return [line.decode() for line in self.client.lrange("book", 0, -1)]

    def happen(self, token: Token, *, key: str = KEY, line: str = "", commits: bool = True) -> bytes:
        """One whole passage; the result that stands."""
        passage = self.gate.enter(key, token)
        try:
            if passage.stored is not None:
                return passage.stored
            self.write(passage.place, line or token.lease)
            if commits:
                passage.commit(token.lease.encode())
            return token.lease.encode()
        finally:
            passage.close()


KINDS = ("sqlite", "file", "redis")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, tmp_path)
    yield made
    made.client.close()


def test_s6_an_effect_happens_once_and_its_result_is_given_to_every_later_run(place: Place) -> None:
    assert place.happen(FIRST) == b"w-1.1.0"
    assert [place.happen(token) for token in (FIRST, SECOND, RIVAL, Token(1, 2, 1, "w-3"))] == [b"w-1.1.0"] * 4
    assert place.lines == ["w-1.1.0"]


def test_nothing_of_a_body_that_did_not_come_to_its_end_is_there(place: Place) -> None:
    place.happen(FIRST, commits=False)
    assert place.lines == []
    assert place.happen(SECOND) == b"w-2.1.0"
    assert place.lines == ["w-2.1.0"]


def test_s3_a_run_that_was_followed_by_a_later_one_does_nothing(place: Place) -> None:
    place.happen(SECOND, commits=False)
    with pytest.raises(Stale, match="a later run was there") as caught:
        place.happen(FIRST)
    assert caught.value.code == "TOKEN_STALE"
    assert place.lines == []


def test_s3_the_same_order_with_another_lease_is_a_conflict(place: Place) -> None:
    place.happen(FIRST, commits=False)
    with pytest.raises(Stale, match="their stores are not one") as caught:
        place.happen(RIVAL)
    assert caught.value.code == "TOKEN_CONFLICT"
    assert place.happen(FIRST) == b"w-1.1.0"


def test_keys_are_apart_from_each_other(place: Place) -> None:
    place.happen(SECOND)
    assert place.happen(FIRST, key=f"{KEY}/2") == b"w-1.1.0"
    assert place.lines == ["w-2.1.0", "w-1.1.0"]


def test_a_passage_that_is_closed_twice_is_closed(place: Place) -> None:
    passage = place.gate.enter(KEY, FIRST)
    passage.close()
    passage.close()
    assert place.happen(FIRST) == b"w-1.1.0"


Step = tuple[str, int]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    orders=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2)), min_size=4, max_size=4),
    steps=st.lists(st.tuples(st.sampled_from(["enter", "commit", "close"]), st.integers(0, 3)), max_size=16),
)
def test_s3_s6_in_any_interleaving_of_runs_tokens_never_fall_and_one_commits(
    kind: str, orders: list[tuple[int, int, int]], steps: list[Step]
) -> None:
    with TemporaryDirectory() as folder:
        place = Place(kind, Path(folder))
        tokens = [Token(*order, f"w-{number}") for number, order in enumerate(orders)]
        open_: dict[int, Any] = {}
        accepted: list[Token] = []
        committed: list[int] = []
        refused: list[tuple[str, bool]] = []
        for what, run in steps:
            try:
                if what == "enter" and run not in open_:
                    passage = place.gate.enter(KEY, tokens[run])
                    open_[run] = passage
                    if passage.stored is None:
                        accepted.append(tokens[run])
                    else:
                        assert passage.stored == tokens[committed[0]].lease.encode()
                elif what == "commit" and run in open_ and open_[run].stored is None and run not in committed:
                    place.write(open_[run].place, tokens[run].lease)
                    open_[run].commit(tokens[run].lease.encode())
                    accepted.append(tokens[run])
                    committed.append(run)
                elif what == "close" and run in open_:
                    open_.pop(run).close()
            except Stale as stale:
                higher = [one for one in accepted if one.order > tokens[run].order]
                alike = [one for one in accepted if one.order == tokens[run].order and one != tokens[run]]
                refused.append((stale.code, bool(higher if stale.code == "TOKEN_STALE" else alike)))
            except Unavailable:
                assert open_, "only somebody else's body keeps it from coming in"
        for passage in open_.values():
            passage.close()
        assert [code for code, has_cause in refused if not has_cause] == []
        assert accepted == sorted(accepted, key=lambda token: token.order)
        assert all(one.lease == other.lease for one in accepted for other in accepted if one.order == other.order)
        assert len(committed) <= 1
        assert place.lines == [tokens[run].lease for run in committed]
        place.client.close()


@given(orders=st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1), lease=st.sampled_from("ab"))
def test_s3_a_later_order_goes_on_an_earlier_one_never(orders: list[tuple[int, int, int]], lease: str) -> None:
    highest: Token | None = None
    for order in orders:
        token = Token(*order, lease)
        assert Token.parse(token.wire()) == token
        try:
            judge(token, highest, key=KEY)
        except Stale:
            assert highest is not None
            assert token.order < highest.order
        else:
            assert highest is None or token.order >= highest.order
            highest = token


@pytest.mark.parametrize("text", ["", "1:2:3", "1:2:three:w", "1:2:3:two words", "-1:2:3:w", "1:2:3:w\n"])
def test_what_is_no_token_is_refused_and_shown(text: str) -> None:
    with pytest.raises(Misuse, match="fencing token"):
        Token.parse(text)


def test_a_key_is_of_tokens_so_that_no_name_reaches_into_another() -> None:
    assert effect_name("send/1") == "send%2F1"
    assert effect_name("send", epoch=1) == "send/1"
    assert effect_key("m", "i", effect_name("a:b")) == "m/i/a%3Ab"
    with pytest.raises(Misuse, match="effect: 0 bytes"):
        effect_name("")


# --- SQLite ---


def _with_it(connection: sqlite3.Connection) -> None:
    with connection:
        pass


@pytest.mark.parametrize(
    "ends",
    [
        lambda one: one.execute("COMMIT"),
        lambda one: one.execute("ROLLBACK"),
        lambda one: one.cursor().executescript("SELECT 1"),
        lambda one: one.executescript("SELECT 1"),
        lambda one: one.commit(),
        lambda one: one.rollback(),
        _with_it,
    ],
)
def test_s6_a_body_cannot_end_its_transaction_so_nothing_of_it_is_there_without_its_record(
    tmp_path: Path, ends: Callable[[sqlite3.Connection], object]
) -> None:
    """Python commits where nobody says so: at the end of `with connection`, and before each script."""
    place = Place("sqlite", tmp_path)
    passage = place.gate.enter(KEY, FIRST)
    place.write(passage.place, "first")
    with pytest.raises((Misuse, sqlite3.DatabaseError), match=r"leave COMMIT and ROLLBACK to the gate|not authorized"):
        ends(passage.place)
    with pytest.raises(Misuse, match="leave COMMIT and ROLLBACK to the gate"):
        passage.commit(b"")
    passage.close()
    assert place.lines == []
    assert place.happen(SECOND) == b"w-2.1.0"
    place.client.close()


def test_s6_what_a_body_writes_after_sqlite_itself_rolled_it_back_is_refused(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "book.db") as made:
        made.execute("CREATE UNIQUE INDEX once ON book (line)")
    made.close()
    passage = place.gate.enter(KEY, FIRST)
    place.write(passage.place, "on its own")
    with suppress(sqlite3.IntegrityError):
        passage.place.execute("INSERT OR ROLLBACK INTO book VALUES ('on its own')")
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        place.write(passage.place, "on its own")
    with pytest.raises(Misuse, match="ended the transaction"):
        passage.commit(b"")
    passage.close()
    assert place.lines == []
    place.client.close()


def test_a_record_that_is_pruned_before_its_body_is_through_is_there_when_it_is_done(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    passage = place.gate.enter(KEY, FIRST)
    passage.place.execute("DELETE FROM treadle_effects")
    place.write(passage.place, "first")
    passage.commit(b"result")
    passage.close()
    assert place.happen(SECOND) == b"result"
    place.client.close()


@pytest.mark.parametrize("path", [":memory:", ""])
def test_a_database_that_is_gone_with_its_connection_is_no_gate(path: str) -> None:
    with pytest.raises(Misuse, match=r"path: .*, must be a file"):
        SqliteGate(path)


def test_what_is_pruned_is_forgotten_and_what_is_young_is_not(tmp_path: Path) -> None:
    place = Place("sqlite", tmp_path)
    place.happen(FIRST)
    gate = SqliteGate(tmp_path / "book.db")
    assert [gate.prune(older_s=60), gate.prune(older_s=-60)] == [0, 1]
    place.client.close()


def test_a_database_that_cannot_be_opened_is_unavailable_and_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere"):
        SqliteGate(tmp_path / "nowhere" / "book.db").enter(KEY, FIRST)


# --- files ---


@pytest.mark.parametrize("when", ["before the record", "after it"])
def test_a_file_whose_writer_was_killed_is_put_right_by_whoever_comes_next(tmp_path: Path, when: str) -> None:
    place = Place("file", tmp_path)
    place.happen(FIRST, key="before")
    passage = FileGate(tmp_path / "book.txt").enter(KEY, FIRST)
    place.write(passage.place, "killed")
    if when == "after it":
        passage._note(b"result")
    os.close(passage._lock or 0)
    place.happen(SECOND, key="after")
    expected = ["w-1.1.0", "killed", "w-2.1.0"] if when == "after it" else ["w-1.1.0", "w-2.1.0"]
    assert place.lines == expected
    assert place.happen(SECOND) == (b"result" if when == "after it" else b"w-2.1.0")
    assert [path.name for path in (tmp_path / "book.txt.effects").glob("part.*")] == []
    place.client.close()


def test_a_file_that_another_one_s_body_holds_is_unavailable(tmp_path: Path) -> None:
    gate = FileGate(tmp_path / "book.txt", busy_s=0.05)
    passage = gate.enter(KEY, FIRST)
    with pytest.raises(Unavailable, match="is held by another one"):
        gate.enter("another", SECOND)
    passage.close()


def test_a_file_whose_record_cannot_be_read_is_named_and_its_lock_is_let_go(tmp_path: Path) -> None:
    place = Place("file", tmp_path)
    for torn in (b"", b"\x93\x01", b"\x01", codec.pack({"token": "?", "result": None}, field="record", limit=99)):
        passage = place.gate.enter(KEY, FIRST)
        place.write(passage.place, "torn")
        (record,) = (tmp_path / "book.txt.effects" / "done").iterdir()
        record.write_bytes(torn)
        passage.close()
        with pytest.raises(Corrupt, match=record.name):
            place.gate.enter(KEY, SECOND)
        record.unlink()
    assert place.happen(SECOND) == b"w-2.1.0"
    place.client.close()


def test_a_file_system_without_locks_is_unavailable_and_no_descriptor_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    gate = FileGate(tmp_path / "book.txt")
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(Unavailable, match=r"book\.txt: cannot be locked \(No locks available"):
        gate.enter(KEY, FIRST)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_link_and_its_file_are_one_place_and_the_link_stays(tmp_path: Path) -> None:
    place = Place("file", tmp_path)
    link = tmp_path / "link.txt"
    link.symlink_to("book.txt")
    passage = FileGate(link).enter(KEY, FIRST)
    place.write(passage.place, "first")
    with pytest.raises(Unavailable, match="held by another"):
        place.gate.enter(KEY, SECOND)
    passage.commit(b"result")
    passage.close()
    assert (link.is_symlink(), place.lines, place.happen(SECOND)) == (True, ["first"], b"result")
    place.client.close()


# --- HTTP ---


def test_a_service_with_a_ledger_does_a_request_once_and_answers_every_repetition(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "service.db")

    def do(connection: sqlite3.Connection) -> bytes:
        connection.execute("CREATE TABLE IF NOT EXISTS sent (number INTEGER)")
        connection.execute("INSERT INTO sent VALUES (17)")
        return b"no. 17"

    answers = [ledger.carry_out(headers_of(KEY, token), do) for token in (FIRST, FIRST, SECOND)]
    assert [(done.result, done.is_new) for done in answers] == [
        (b"no. 17", True),
        (b"no. 17", False),
        (b"no. 17", False),
    ]
    found = sqlite3.connect(tmp_path / "service.db")
    assert found.execute("SELECT count(*) FROM sent").fetchone() == (1,)
    found.close()


def test_a_service_reads_its_headers_whatever_their_case_and_says_what_is_missing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "service.db")
    headers = {name.upper(): value for name, value in headers_of(KEY, FIRST).items()}
    assert ledger.carry_out(headers, lambda _: b"done").is_new
    with pytest.raises(Misuse, match="Idempotency-Key and Treadle-Fencing-Token"):
        ledger.carry_out({}, lambda _: b"done")


def test_a_request_that_fails_at_the_service_is_not_done(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "service.db")

    def fails(_: sqlite3.Connection) -> bytes:
        raise OSError("the printer is out of paper")

    with pytest.raises(OSError, match="paper"):
        ledger.carry_out(headers_of(KEY, FIRST), fails)
    assert ledger.carry_out(headers_of(KEY, FIRST), lambda _: b"done").is_new


@pytest.mark.parametrize("given", [None, "no. 17", 17])
def test_s6_a_service_whose_function_gives_no_bytes_is_told_before_anything_is_done(tmp_path: Path, given: Any) -> None:
    """None would be kept as no result, and the next repetition do it again."""
    ledger = Ledger(tmp_path / "service.db")

    def do(connection: sqlite3.Connection) -> Any:
        connection.execute("CREATE TABLE sent (number INTEGER)")
        return given

    for _ in range(2):
        with pytest.raises(Misuse, match="must be bytes"):
            ledger.carry_out(headers_of(KEY, FIRST), do)
    assert ledger.carry_out(headers_of(KEY, FIRST), lambda _: b"done").is_new


@pytest.mark.parametrize("key", ["k" * 256, "k\udcff", "k\x00k", "k\nk"])
def test_a_service_takes_no_key_that_no_run_sends(tmp_path: Path, key: str) -> None:
    headers = headers_of(KEY, FIRST) | {"Idempotency-Key": key}
    with pytest.raises(Misuse, match=r"Idempotency-Key: .*must be 1 to 255"):
        Ledger(tmp_path / "service.db").carry_out(headers, lambda _: b"done")


def test_a_key_longer_than_services_take_is_sent_as_its_digest() -> None:
    long = headers_of("k" * 256, FIRST)["Idempotency-Key"]
    assert long.startswith("sha256-")
    assert len(long) < 255
    assert headers_of("k" * 255, FIRST)["Idempotency-Key"] == "k" * 255
    assert headers_of("k" * 255, FIRST)["Treadle-Fencing-Token"] == "1:1:1:w-1.1.0"


# --- Redis ---


def test_a_body_that_a_later_run_overtook_writes_nothing_to_redis(tmp_path: Path) -> None:
    place = Place("redis", tmp_path)
    zombie = place.gate.enter(KEY, FIRST)
    place.write(zombie.place, "zombie")
    place.happen(SECOND, commits=False)
    with pytest.raises(Stale) as caught:
        zombie.commit(b"result")
    assert caught.value.code == "TOKEN_STALE"
    assert place.lines == []
    place.client.close()


def test_an_effect_that_was_torn_at_redis_is_never_run_again_and_says_so(tmp_path: Path) -> None:
    place = Place("redis", tmp_path)
    place.client.set("text", "no number")
    passage = place.gate.enter(KEY, FIRST)
    place.write(passage.place, "one")
    passage.place.queue("INCR", "text")
    for call in (lambda: passage.commit(b"result"), lambda: place.gate.enter(KEY, SECOND)):
        with pytest.raises(Refused, match="1 commands of it were run, and then one failed") as caught:
            call()
        assert caught.value.code == "EFFECT_TORN"
    assert place.lines == ["one"]
    place.client.close()


def test_an_effect_whose_first_command_fails_at_redis_did_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    place = Place("redis", tmp_path)
    place.client.set("text", "no number")
    passage = place.gate.enter(KEY, FIRST)
    passage.place.queue("INCR", "text")
    with pytest.raises(Misuse, match="nothing was done"):
        passage.commit(b"result")
    assert place.happen(SECOND) == b"w-2.1.0"
    place.client.close()


def test_a_command_that_no_script_can_run_is_refused_before_anything_is_sent() -> None:
    """Too long a one would end the script itself, after others ran, with no record of them: they would be run again."""
    queue = Queue()
    queue.queue("RPUSH", "book", *["line"] * (ARGUMENTS_MAX - 2))
    with pytest.raises(Misuse, match=f"RPUSH: {ARGUMENTS_MAX + 1:,} words, at most {ARGUMENTS_MAX:,}"):
        queue.queue("RPUSH", "book", *["line"] * (ARGUMENTS_MAX - 1))
    commands: list[str | bytes] = ["SELECT", "select", b"Select"]
    for command in commands:
        with pytest.raises(Misuse, match=r"SELECT: .*its record would be in another database"):
            queue.queue(command, 1)
    assert len(queue.queued) == 1


@pytest.mark.parametrize("keep_s", [0, -1, 1.5, True])
def test_a_record_that_would_be_gone_at_once_is_refused(keep_s: Any) -> None:
    client = fakeredis.FakeRedis()
    with pytest.raises(Misuse, match=r"keep_s: .*must be whole seconds"):
        RedisGate(client, keep_s=keep_s)
    client.close()


@pytest.mark.parametrize("client", ["redis://shop", fakeredis.FakeAsyncRedis])
def test_a_client_that_a_thread_cannot_call_is_refused_by_its_type(client: Any) -> None:
    given: Any = client if isinstance(client, str) else client()
    with pytest.raises(Misuse, match=rf"client: of type {type(given).__name__}, must be a redis\.Redis, for an async"):
        RedisGate(given)


def test_a_record_at_redis_goes_after_its_time(tmp_path: Path) -> None:
    place = Place("redis", tmp_path)
    RedisGate(place.client, prefix="{shop}:", keep_s=60).enter(KEY, FIRST)
    assert 0 < place.client.ttl(f"{{shop}}:{KEY}") <= 60
    place.client.close()


def test_a_client_that_decodes_is_refused_before_anything_is_written() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    with pytest.raises(Misuse, match="decode_responses=False"):
        RedisGate(client)
    client.close()
