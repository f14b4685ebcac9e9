"""A Worker ends in order whatever holds its main thread, its terminal, its log or its store, and no deploy costs a retry."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fleet import TESTS, Desk, Fleet, Member, chain, sleeper, until
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.processes import Life, identity, life_of, spawn
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

K = EventKind
AT_ONCE = 128 + signal.SIGTERM
IMPATIENT = ("-c", "import treadle.worker.cli as cli; cli.END_S = 0.5; cli.main()")
HANDLERS = ("--handlers", "life_handlers")
C = WorkSpec(id="a", capability="life.waits_in_c")


@pytest.fixture(autouse=True)
def _hears_sighup() -> Iterator[None]:
    """Under `nohup pytest` too: a Worker would inherit that it is ignored."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


async def running(fleet: Fleet, *items: str) -> None:
    for item in items:
        await until(lambda item=item: fleet.lines(item, "begin"), description=f"{item} runs", of=tuple(fleet.members))  # type: ignore[misc]


async def given_back(desk: Desk, mission: str = "m") -> list[str]:
    """The items that were given back; nothing of that Mission was lost or has failed."""
    assert not {K.LAPSED, K.FAILED, K.PARKED} & {event.kind for event in await desk.log(mission)}
    items = await desk.store.items(desk.client.mission(mission).group)
    assert {view.lost_runs for view in items} == {0}
    return [view.item for view in items if view.state is ItemState.OFFERED]


# --- the main thread ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP])
async def test_a_handler_that_waits_in_c_keeps_its_worker_from_hearing_nothing(
    number: signal.Signals, fleet: Fleet, desk: Desk
) -> None:
    """Python would call the handler of the signal when the call in C returns: never."""
    fleet.grace_s = fleet.ttl_s = 0.5
    worker = fleet.start("one", program=IMPATIENT, arguments=HANDLERS)
    await fleet.ready()
    await desk.submit("m", C)
    await running(fleet, "a")
    worker.signal(number)
    assert worker.exit_status(within_s=20) == 0, worker.tail()
    assert worker.said(r"a handler will not end \(m/a\); ended without it, what it held is given back")
    assert await given_back(desk) == ["a"]


async def test_a_second_sigterm_is_heard_behind_a_call_in_c(fleet: Fleet, desk: Desk) -> None:
    fleet.grace_s = 60.0
    worker = fleet.start("one", arguments=HANDLERS)
    await fleet.ready()
    await desk.submit("m", C)
    await running(fleet, "a")
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGTERM):
        assert worker.child.poll() is None
        worker.signal(number)
        await until(lambda: not _is_pending(worker), description="it was taken", of=(worker,))
    assert worker.exit_status(within_s=20) == AT_ONCE, worker.tail()


def _is_pending(member: Member) -> bool:
    try:
        lines = Path(f"/proc/{member.child.pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))


async def test_what_a_blocked_worker_held_is_there_at_once_and_no_process_of_a_slot_goes_on_with_it(
    fleet: Fleet, desk: Desk
) -> None:
    """S16: the process is proved to be gone before its item is given back."""
    fleet.grace_s, fleet.ttl_s = 0.5, 30.0
    worker = fleet.start("one", slots=3, program=("-c", SHORT), arguments=HANDLERS)
    await fleet.ready()
    await desk.submit("m", WorkSpec(id="b", capability="life.beats"))
    await running(fleet, "b")
    beating = identity(fleet.lines("b", "begin")[0].pid)
    assert beating is not None
    await desk.submit("n", C)
    await running(fleet, "a")
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=20) == 0, worker.tail()
    assert (await given_back(desk, "m"), await given_back(desk, "n")) == (["b"], ["a"])
    assert life_of(beating) is Life.GONE


SHORT = """
import treadle.worker.cli as cli
process = cli.Process
cli.Process = lambda worker, *, grace_s, patience_s: process(worker, grace_s=grace_s, patience_s=1.0)
cli.main()
"""


async def test_a_blocked_worker_without_its_store_ends_with_0_and_what_it_held_lapses(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    fleet.grace_s = fleet.ttl_s = 0.5
    worker = fleet.start("one", program=IMPATIENT, arguments=HANDLERS)
    await fleet.ready()
    mission = await desk.submit("m", C)
    await running(fleet, "a")
    server.pause()
    try:
        worker.signal(signal.SIGTERM)
        assert worker.exit_status(within_s=20) == 0, worker.tail()
    finally:
        server.resume()
    assert worker.said("ended without it, its leases lapse by themselves")
    fleet.start("two", arguments=HANDLERS)
    await until(lambda: fleet.lines("a", "begin", worker="two"), description="another begins it", of=(worker,))
    assert len(await desk.of_kind(mission.id, K.LAPSED)) == 1


# --- stopped and continued ---


async def test_a_worker_that_is_told_while_it_is_stopped_ends_in_order_when_it_goes_on(
    fleet: Fleet, desk: Desk
) -> None:
    """SIGSTOP, as a debugger or a frozen machine: meanwhile its lease is over and another has the item."""
    first = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", chain("a", steps=20, step_s=0.2, again_s=0.02))
    await running(fleet, "a")
    first.pause()
    first.signal(signal.SIGTERM)
    second = fleet.start("two")
    await until(lambda: fleet.lines("a", "begin", worker="two"), description="another has it", of=(second,))
    first.resume()
    assert first.exit_status(within_s=20) == 0, first.tail()
    await mission.results(timeout=20)
    kinds = [event.kind for event in await desk.log("m")]
    assert (kinds.count(K.RESULT_ACCEPTED), kinds.count(K.FAILED), kinds.count(K.LAPSED)) == (1, 0, 1)


async def test_a_worker_that_is_stopped_while_it_drains_ends_in_order_when_it_goes_on(fleet: Fleet, desk: Desk) -> None:
    """It is stopped for longer than its grace, its lease and all its patience: nothing of it is the fault of a handler."""
    fleet.grace_s = 1.0
    first = fleet.start("one", program=IMPATIENT)
    await fleet.ready()
    mission = await desk.submit("m", sleeper("a", 3_600.0, again_s=0.0))
    await running(fleet, "a")
    first.signal(signal.SIGTERM)
    await until(lambda: first.said("stopping:"), description="it drains", of=(first,))
    first.pause()
    fleet.start("two")
    assert await mission.results(timeout=20) == {"a": 2}
    first.resume()
    assert first.exit_status(within_s=20) == 0, first.tail()
    assert await desk.of_kind("m", K.FAILED) == []


# --- in the middle of a Replay ---


PAGES = """
import sys
import anyio
from treadle.shared.store import Authority
from treadle.worker import cli, reading

reading.READ_PAGE = 2
tail = Authority.tail

async def slow(self, session, group, *, after, most):
    print("page", file=sys.stderr, flush=True)
    await anyio.sleep(0.05)
    return await tail(self, session, group, after=after, most=most)

Authority.tail = slow
cli.main()
"""


async def test_a_worker_that_is_told_in_the_middle_of_a_long_replay_reads_no_further(fleet: Fleet, desk: Desk) -> None:
    """It gives back what it held without knowing more of it, and needs no grace for that."""
    fleet.ttl_s = 60.0
    first = fleet.start("one")
    await fleet.ready()
    await desk.submit("m", chain("a", steps=100_000, step_s=0.002))
    await until(lambda: len(fleet.lines("a", "step")) >= 400, description="its log is long", of=(first,))
    first.kill()
    length = len(await desk.log("m"))
    second = fleet.start("one", program=("-c", PAGES))
    await until(lambda: second.said("page"), description="it replays", of=(second,))
    second.signal(signal.SIGTERM)
    assert second.exit_status(within_s=20) == 0, second.tail()
    assert second.log_text().count("page") < length / 4, "a page is two Events"
    (view,) = await desk.store.items(desk.client.mission("m").group)
    assert (view.state, view.lost_runs) == (ItemState.OFFERED, 1), "the one that was killed"
    assert await desk.of_kind("m", K.LAPSED) == []


# --- the terminal and the log ---

OUTPUTS: dict[str, Callable[[], tuple[int, ...]]] = {
    "a pipe that nobody reads any more": lambda: os.pipe()[::-1],
    "a terminal that is gone": lambda: os.openpty()[::-1],
    "a full disk": lambda: (os.open("/dev/full", os.O_WRONLY),),
    "descriptors that were closed before": lambda: (os.open(os.devnull, os.O_WRONLY),),
}


def start_with(fleet: Fleet, output: int, *, is_closed: bool = False, ignores: str = "") -> Member:
    """A Worker that prints to `output`."""
    argv = [sys.executable, "-m", "treadle.worker.cli", "run", *HANDLERS, "--app-dir", str(TESTS), "--name", "one"]
    if is_closed:
        argv = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *argv]
    if ignores:
        argv = ["sh", "-c", f'trap "" {ignores}; exec "$@"', "sh", *argv]
    evidence = fleet.folder / "evidence"
    evidence.mkdir(exist_ok=True)
    own = {
        "TREADLE_URL": fleet.url,
        "TREADLE_SLOTS": "2",
        "TREADLE_LEASE_TTL_S": f"{fleet.ttl_s:g}",
        "TREADLE_GRACE_S": f"{fleet.grace_s:g}",
        "FLEET_EVIDENCE": str(evidence),
        "XDG_RUNTIME_DIR": str(fleet.folder),
    }
    child = spawn(argv, env={**os.environ, **own}, cwd=fleet.folder, stdin=output, stdout=output, stderr=output)
    fleet.members.append(Member("one", child, Path(os.devnull)))
    return fleet.members[-1]


@pytest.mark.parametrize("output", OUTPUTS)
async def test_a_worker_whose_output_goes_nowhere_does_its_work_and_ends_in_order(
    output: str, fleet: Fleet, desk: Desk
) -> None:
    """No print of a handler fails its run, no line of the log ends a Worker, and the status is not of Python's last flush."""
    descriptors = OUTPUTS[output]()
    worker = start_with(fleet, descriptors[0], is_closed="closed" in output)
    for descriptor in descriptors:
        os.close(descriptor)
    mission = await desk.submit("m", WorkSpec(id="a", capability="life.talks", inputs={"steps": 3, "pace_s": 0.0}))
    assert await mission.results(timeout=20) == {"a": 1}
    await desk.submit("n", WorkSpec(id="b", capability="life.talks", inputs={"steps": 10_000, "pace_s": 0.05}))
    await running(fleet, "b")
    for _ in range(2):  # of the kernel and of a shell, when a terminal closes
        worker.signal(signal.SIGHUP)
    assert worker.exit_status(within_s=20) == 0
    assert await given_back(desk, "n") == ["b"]
    assert not {K.FAILED, K.LAPSED} & {event.kind for event in await desk.log("m")}


async def test_a_worker_under_nohup_outlives_its_terminal(fleet: Fleet, desk: Desk) -> None:
    """What was ignored when it was started stays ignored."""
    descriptors = os.openpty()[::-1]
    worker = start_with(fleet, descriptors[0], ignores="HUP")
    for descriptor in descriptors:
        os.close(descriptor)
    mission = await desk.submit("m", WorkSpec(id="a", capability="life.talks", inputs={"steps": 40, "pace_s": 0.05}))
    await running(fleet, "a")
    worker.signal(signal.SIGHUP)
    assert await mission.results(timeout=20) == {"a": 1}
    assert worker.child.poll() is None
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=20) == 0


async def test_a_worker_that_waits_for_whoever_reads_its_log_ends_in_its_time_and_gives_its_work_back(
    fleet: Fleet, desk: Desk
) -> None:
    """A pipe that is full, and whose reader does not go on, holds the thread that writes to it."""
    fleet.grace_s = fleet.ttl_s = 0.5
    mine, theirs = os.pipe()
    try:
        worker = start_with(fleet, theirs)
        mission = await desk.submit("m", WorkSpec(id="a", capability="life.talks", inputs={"steps": 9, "pace_s": 0.0}))
        await running(fleet, "a")
        worker.signal(signal.SIGTERM)
        assert worker.exit_status(within_s=30) == 0
        assert await given_back(desk, mission.id) == ["a"]
    finally:
        os.close(theirs)
        os.close(mine)
