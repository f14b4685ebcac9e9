"""A thousand effects through Workers that die, stand still and fail at every step of them: each happens once (S3, S6, 2.2).

`TREADLE_EFFECTS_SEED` runs another order of deaths; a failure names the seed.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from fleet import Desk, Fleet, Member, until
from once_handlers import STEPS
from servers import wait_until
from treadle.coordinator import Retry, WorkSpec
from treadle.shared.errors import Refused, Unavailable
from treadle.shared.model import EventKind
from treadle.worker.effects import Ledger

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TREADLE_EFFECTS_SEED") or 1)
ITEMS, WORKERS, SLOTS = 500, 3, 4
KILLS_A_STEP, STOPS_A_STEP, FAILS_A_STEP = 3, 1, 4
TTL_S = 1.0


@dataclass
class Service:
    """An HTTP service: `/ledger` does a request once by its headers, `/plain` does each that comes."""

    ledger: Ledger
    plain: Counter[str] = field(default_factory=Counter)
    url: str = ""


@contextmanager
def served(folder: Path) -> Iterator[Service]:
    service = Service(Ledger(folder / "service.db"))
    with sqlite3.connect(folder / "service.db") as made:
        made.execute("CREATE TABLE sent (number INTEGER PRIMARY KEY, item TEXT)")
    made.close()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            item = self.rfile.read(int(self.headers["Content-Length"])).decode()
            try:
                answer, status = self._done(item), 200
            except (Refused, Unavailable) as error:
                answer, status = str(error), 409 if isinstance(error, Refused) else 503
            with suppress(ConnectionError):  # who asked is dead by now
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer.encode())

        def _done(self, item: str) -> str:
            if self.path == "/plain":
                service.plain[item] += 1
                return "taken"

            def do(connection: sqlite3.Connection) -> bytes:
                number = connection.execute("INSERT INTO sent (item) VALUES (?)", (item,)).lastrowid
                return f"no. {number}".encode()

            return service.ledger.carry_out(dict(self.headers.items()), do).result.decode()

        def log_message(self, format: str, *args: object) -> None:
            """It says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = False
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def booked_in(folder: Path) -> None:
    """Makes the database that handlers write to."""
    made = sqlite3.connect(folder / "book.db")
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("CREATE TABLE book (item TEXT, attempt INTEGER)")
    made.close()


def inputs_of(folder: Path, service: Service) -> dict[str, str]:
    """Where the effects of an item land."""
    return {"book": str(folder / "book.db"), "ledger": f"{service.url}/ledger", "plain": f"{service.url}/plain"}


def written_in(folder: Path) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What was booked, by which attempt; what was sent, under which number."""
    book, sent = sqlite3.connect(folder / "book.db"), sqlite3.connect(folder / "service.db")
    try:
        booked = book.execute("SELECT item, attempt FROM book").fetchall()
        return booked, sent.execute("SELECT item, number FROM sent").fetchall()
    finally:
        book.close()
        sent.close()


def fates(chance: random.Random) -> list[dict[str, str]]:
    """What befalls each item's first run: something at every step, nothing for most."""
    some = [
        {"step": step, "how": how}
        for step in STEPS
        for how, number in (("kill", KILLS_A_STEP), ("stop", STOPS_A_STEP), ("fail", FAILS_A_STEP))
        for _ in range(number)
        if (how, step) != ("stop", "in book")  # it would hold the database, and everybody else with it
    ]
    all_: list[dict[str, str]] = some + [{}] * (ITEMS - len(some))
    chance.shuffle(all_)
    return all_


@dataclass
class Keeper:
    """Starts anew what died, under its name, and lets go on what stood still for longer than its lease."""

    fleet: Fleet
    deaths: int = 0
    stops: int = 0
    members: list[Member] = field(default_factory=list)
    stopped_s: dict[int, float] = field(default_factory=dict)

    def start(self, name: str) -> Member:
        return self.fleet.start(name, slots=SLOTS, arguments=("--handlers", "once_handlers"))

    def look(self) -> None:
        now_s = anyio.current_time()
        for number, member in enumerate(self.members):
            if member.child.poll() is not None:
                self.deaths += 1
                self.members[number] = self.start(member.name)
            elif (
                self._stands_still(member) and now_s - self.stopped_s.setdefault(member.child.pid, now_s) > TTL_S + 0.6
            ):
                del self.stopped_s[member.child.pid]
                self.stops += 1
                member.resume()

    @staticmethod
    def _stands_still(member: Member) -> bool:
        return os.waitid(os.P_PID, member.child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.timeout(240)
async def test_s6_a_thousand_effects_happen_once_through_kills_stops_and_failures_at_every_step(
    fleet: Fleet, desk: Desk, place: Path
) -> None:
    told = f"seed {SEED}: again with TREADLE_EFFECTS_SEED={SEED}"
    chance = random.Random(SEED)
    fleet.ttl_s = TTL_S
    folder = place / "fleet"
    booked_in(folder)
    meant = fates(chance)
    keeper = Keeper(fleet)
    with served(folder) as service:
        inputs = inputs_of(folder, service)
        work = [
            WorkSpec(
                id=f"i{number:03}",
                capability=chance.choice(("once.async", "once.sync")),
                inputs={**inputs, "fate": fate},
                retry=Retry(retries=8, first_s=0.1, most_s=0.5),
            )
            for number, fate in enumerate(meant)
        ]
        mission = await desk.submit("m", *work)
        keeper.members = [keeper.start(f"w{number}") for number in range(WORKERS)]

        async def has_ended() -> bool:
            keeper.look()
            return bool((await mission.view()).ended_ms)

        await until(has_ended, description=f"{told}: all is done", timeout_s=200, of=tuple(keeper.members))
        results = await mission.results()
    booked, numbers = written_in(folder)
    names = {one.id for one in work}
    assert Counter(item for item, _ in booked) == Counter(names), told
    assert Counter(item for item, _ in numbers) == Counter(names), told
    assert {item: found[:2] for item, found in results.items()} == {
        item: [attempt, f"no. {dict(numbers)[item]}"] for item, attempt in booked
    }, f"{told}: whoever came after got the result of the one that did it"
    assert set(service.plain) == names, told
    again = {item for item, count in service.plain.items() if count > 1}
    assert again, f"{told}: a service that cannot check is asked at least once, and some were asked more often"
    doubted = {item for item, found in results.items() if found[2][1]}
    assert again <= doubted, f"{told}: whoever asked once more was told that it may have happened"
    lost = Counter(event.kind for event in await desk.log("m"))
    # Where a run was cut by another one's death after its effect and before its fate, nobody gets to that step again.
    assert keeper.deaths >= 0.8 * KILLS_A_STEP * len(STEPS), told
    assert keeper.stops >= 0.8 * STOPS_A_STEP * (len(STEPS) - 1), told
    assert lost[EventKind.FAILED] >= 0.8 * FAILS_A_STEP * len(STEPS), told
    assert lost[EventKind.LAPSED] > 0, f"{told}: no zombie was followed by another"


@pytest.mark.timeout(240)
async def test_s6_effects_of_handlers_in_processes_of_their_own_happen_once_whenever_these_die(
    fleet: Fleet, desk: Desk, place: Path
) -> None:
    """An item for each step and kind of handler, killed there once; its Worker lives, and tries it again."""
    folder = place / "fleet"
    booked_in(folder)
    with served(folder) as service:
        inputs = inputs_of(folder, service)
        work = [
            WorkSpec(
                id=f"{kind}-{number}",
                capability=f"once.{kind}.enclosed",
                inputs={**inputs, "fate": {"step": step, "how": "kill"}},
                retry=Retry(retries=8, first_s=0.1, most_s=0.5),
            )
            for number, step in enumerate(STEPS)
            for kind in ("async", "sync")
        ]
        worker = fleet.start(slots=2, arguments=("--handlers", "once_handlers"))
        mission = await desk.submit("m", *work)
        results = await mission.results(timeout=200)
    names = {one.id for one in work}
    booked, numbers = written_in(folder)
    assert Counter(item for item, _ in booked) == Counter(item for item, _ in numbers) == Counter(names)
    assert {item: found[:2] for item, found in results.items()} == {
        item: [attempt, f"no. {dict(numbers)[item]}"] for item, attempt in booked
    }
    assert worker.child.poll() is None
    assert [event.item for event in await desk.of_kind("m", EventKind.LAPSED)] == []
    assert len(await desk.of_kind("m", EventKind.FAILED)) == len(names)
    done = STEPS.index("plain done")
    assert {item for item, count in service.plain.items() if count > 1} == {f"async-{done}", f"sync-{done}"}


WRITER = """
import sys
from treadle.worker.effects import FileGate, Token
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    passage = FileGate(sys.argv[1]).enter(f"line-{number}", Token(1, 1, int(sys.argv[3]), sys.argv[3]))
    if passage.stored is None:
        with passage.place.open("a") as file:
            file.write(f"{number}\\n")
        passage.commit(b"written")
    passage.close()
"""
LINES, KILLS = 150, 10


def test_s6_each_line_of_a_file_is_there_once_whenever_its_writers_are_killed(place: Path) -> None:
    """What a kill leaves half way is put right by the next writer: a lock, a copy, a record without its file."""
    chance = random.Random(SEED)
    folder = place / "fleet"
    folder.mkdir()
    file = folder / "lines.txt"
    for attempt in range(1, KILLS + 2):
        argv = [sys.executable, "-c", WRITER, str(file), str(LINES), str(attempt)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            if attempt <= KILLS:
                end = attempt * LINES // (KILLS + 2) + chance.randint(0, 9)
                wait_until(lambda end=end: _lines(file) >= end, description=f"{end} lines")  # type: ignore[misc]
                writer.kill()
            else:
                assert writer.wait(60) == 0
    assert file.read_text().split() == [str(number) for number in range(LINES)], f"seed {SEED}"
    assert {path.name for path in (folder / "lines.txt.effects").iterdir()} == {"lock", "done"}


def _lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0
