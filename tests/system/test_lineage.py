"""Which history a store has, on real servers: killed, cut short, emptied, and gone back to an old backup (design.md 3.11).

The backup is made and restored by the commands of docs/operations.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
import redis
from fleet import Desk, Fleet, chain, sleeper, until
from fresh import FRESH
from ledger import faults_of, history_of, nothing_lost, results_right, sequences_contiguous
from servers import LEGS, LOUD, binary_of
from treadle.shared.errors import StoreLost
from treadle.shared.model import Event, EventKind
from treadle.shared.store import lineage
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker.worker import FSYNC_S

from docs import blocks_under, page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

K = EventKind
(BACKUP,) = (block.text for block in blocks_under(page("operations.md"), "Back it up", "sh"))
RESTORE, GO_ON = (block.text for block in blocks_under(page("operations.md"), "Restore it", "sh"))
AOF = "appendonlydir"


@pytest.fixture(params=LEGS)
def server(request: pytest.FixtureRequest, place: Path) -> Iterator[EmbeddedServer]:
    """One server of each kind."""
    del place
    running = EmbeddedServer(binary=binary_of(request.param)).start()
    yield running
    running.stop()


Shell = Callable[..., str]


@pytest.fixture
def shell(server: EmbeddedServer, place: Path) -> Shell:
    """Runs a block of the page as its reader would; gives what it wrote."""
    if shutil.which("redis-cli") is None:
        pytest.skip(f"{LOUD}redis-cli is not installed, so no backup was tried (Debian: apt install redis-tools)")
    backup = place / "fleet" / "backup"
    backup.mkdir(parents=True, exist_ok=True)
    programs = str(Path(sys.executable).parent)
    environment = {
        **FRESH,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TREADLE_URL": server.url,
        "CLI": f"redis-cli -s {server.socket_path}",
        "DATA": str(server.folder),
        "BACKUP": str(backup),
    }

    def run(text: str, *, status: int = 0) -> str:
        ran = subprocess.run(
            ["bash", "-e", "-c", text], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == status, f"{text}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    return run


def begun_in(events: list[Event], since_ms: int, until_ms: int) -> list[Event]:
    return [one for one in events if one.kind in (K.ACCEPTED, K.STARTED) and since_ms < one.at_ms < until_ms]


async def spans(desk: Desk) -> list[tuple[int, int]]:
    """Of each partition: when it was adopted, and until when it is in quarantine."""
    found = []
    with redis.Redis.from_url(desk.url) as client:
        for partition in range(desk.store.partitions):
            adopted, ends = client.hmget(desk.store.base(partition) + "@meta", "adopted", "quarantine")
            found.append((int(adopted), int(ends)))
    return found


# --- killed: nothing that was answered is lost ---


@pytest.mark.parametrize("cut_bytes", [0, 60, 3_000], ids=["whole", "cut in the last write", "cut in many writes"])
async def test_s01_after_a_kill_of_the_server_nothing_starts_before_the_quarantine_is_over_and_nothing_is_done_wrong(
    server: EmbeddedServer, fleet: Fleet, desk: Desk, cut_bytes: int
) -> None:
    fleet.ttl_s = 2.0
    work = [chain(f"i{number}", steps=30, step_s=0.05, again_s=0.01) for number in range(6)]
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: len(fleet.lines(what="step")) > 20, description="they work", of=tuple(fleet.members))
    server.kill()
    if cut_bytes:
        (log,) = (server.folder / AOF).glob("*.incr.aof")
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - cut_bytes)
    server.restart()
    results = await mission.results(timeout=40)
    assert set(results) == {one.id for one in work}, fleet.tell()
    await desk.store.adopt()
    events = await desk.log("m")
    since_ms, until_ms = (await spans(desk))[desk.store.partition_of(events[0].group)]
    assert until_ms - since_ms >= 2_000
    assert begun_in(events, since_ms, until_ms) == []
    history = await history_of(desk, fleet, mission, work)
    if cut_bytes:  # of runs that the store has forgotten only the Workers know
        assert [*sequences_contiguous(history), *nothing_lost(history), *results_right(history)] == [], fleet.tell()
    else:
        assert faults_of(history) == [], fleet.tell()
    for member in fleet.members:
        assert member.child.poll() is None
        assert member.said("a new session is opened"), member.tail()


# --- emptied: never "no events" ---


async def test_s24_a_server_that_comes_back_empty_stops_its_workers_and_is_left_empty(
    server: EmbeddedServer, fleet: Fleet, desk: Desk
) -> None:
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    await desk.submit("m", sleeper("a", 0.01))
    server.kill()
    shutil.rmtree(server.folder / AOF)
    server.restart()
    for member in fleet.members:
        assert member.exit_status(within_s=20) == 5, member.tail()
        assert member.said("it has no record any more; its server was emptied"), member.tail()
    with pytest.raises(StoreLost):
        await desk.store.adopt()
    with redis.Redis.from_url(server.url) as client:
        assert client.keys("*") == []


async def test_s24_a_flushall_stops_its_workers_in_the_middle_of_their_work(
    server: EmbeddedServer, fleet: Fleet, desk: Desk
) -> None:
    idle, busy = fleet.start("idle"), fleet.start("busy")
    await fleet.ready()
    await desk.submit("m", sleeper("a", 30), sleeper("b", 30), sleeper("c", 30))
    await until(lambda: len(fleet.lines(what="begin")) >= 1, description="they work", of=(idle, busy))
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        for member in fleet.members:
            assert member.exit_status(within_s=20) == 5, member.tail()
        assert client.keys("*") == []
    with pytest.raises(StoreLost):
        await desk.store.missions()


# --- gone back: an old backup ---


async def test_s02_s24_an_old_backup_is_found_and_goes_on_when_a_person_says_so(
    server: EmbeddedServer, fleet: Fleet, desk: Desk, shell: Shell
) -> None:
    fleet.ttl_s = 1.0
    first = fleet.start("first", slots=1)
    await fleet.ready(first)
    kept = [chain(f"k{number}", steps=4, step_s=0.02, again_s=0.01) for number in range(2)]
    later = [chain(f"l{number}", steps=40, step_s=0.1, again_s=0.01) for number in range(3)]
    await (await desk.submit("kept", *kept)).results(timeout=20)
    mission = await desk.submit("later", *later)
    shell(BACKUP)

    # What the backup does not know: a Worker, what it did, a Mission.
    second = fleet.start("second", slots=1)
    await fleet.ready(second)
    await desk.submit("lost", sleeper("a", 0.01))
    await until(
        lambda: fleet.lines(worker="second", what="step"), description="the second one works", of=tuple(fleet.members)
    )
    first.kill()
    first = fleet.start("first", slots=1)
    await fleet.ready(first)
    await until(lambda: fleet.lines(what="step"), description="both work", of=tuple(fleet.members))
    zombie = fleet.start("zombie", slots=1)
    await fleet.ready(zombie)
    await anyio.sleep(FSYNC_S + 0.5)
    zombie.pause()
    leases = {event.get("lease") for event in await desk.of_kind("later", K.STARTED)}

    server.kill()
    shell(RESTORE)
    server.restart()

    assert second.exit_status(within_s=20) == 5, second.tail()
    assert second.said("it went back in time"), second.tail()
    await until(lambda: first.child.poll() is not None, description="the first one stops too", of=(first,))
    said = json.loads(shell("treadle doctor --json", status=1))
    (check,) = (one for one in said["checks"] if one["check"] == "lineage")
    assert (check["verdict"], "QUARANTINE" in check["found"]) == ("FAIL", True)
    third = fleet.start("third", slots=1)
    await fleet.ready(third)
    await anyio.sleep(2 * fleet.ttl_s)
    assert fleet.lines(worker="third") == [], "nothing starts before a person says so"

    assert re.search(r"incarnation \d+; nothing is accepted or started for the next", shell(GO_ON))
    again = fleet.start("second", slots=1)
    await fleet.ready(again)
    zombie.resume()
    results = await mission.results(timeout=40)
    assert set(results) == {one.id for one in later}, fleet.tell()
    await desk.store.adopt()
    events = await desk.log("later")
    after = {event.get("lease") for event in events if event.kind is K.STARTED}
    history = await lineage.read(desk.store)
    assert [(one.reason, history.doubt) for one in history.begun] == [("restored the backup of Monday", "")]
    fresh = {event.get("lease") for event in events if event.kind is K.STARTED and event.at_ms > history.begun[0].at_ms}
    assert fresh, "something was begun again"
    assert not fresh & leases, "no Lease ID comes twice"
    assert after >= fresh
    assert {one.mission for one in await desk.store.missions()} == {"kept", "later"}, "what the backup had"
    assert (await desk.client.mission("kept").results(timeout=30)).keys() == {one.id for one in kept}
