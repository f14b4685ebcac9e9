"""SIGTERM returns the work: nothing more is taken, handlers may reach a safe point, and the rest goes back at once."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from fleet import Desk, Fleet, Member, chain, sleeper, until
from ledger import faults_of, history_of, runs_of
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

K = EventKind
MARGIN_S = 1.5
"""For the process itself to end, on a busy machine."""


async def running(fleet: Fleet, *items: str) -> None:
    for item in items:
        await until(lambda item=item: fleet.lines(item, "begin"), description=f"{item} runs", of=tuple(fleet.members))  # type: ignore[misc]


def ended(member: Member, *, within_s: float) -> tuple[int, float]:
    """SIGTERM it; its exit status, and how many seconds it took."""
    began = time.monotonic()
    member.signal(signal.SIGTERM)
    return member.exit_status(within_s=within_s), time.monotonic() - began


async def test_an_idle_worker_ends_at_once(fleet: Fleet, desk: Desk) -> None:
    worker = fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", chain("a", steps=1))
    await mission.results(timeout=30)
    assert ended(worker, within_s=MARGIN_S)[0] == 0, worker.tail()


async def test_a_handler_that_saves_yields_at_its_safe_point_and_another_worker_goes_on_from_there(
    fleet: Fleet, desk: Desk
) -> None:
    work = [chain(id, steps=40, step_s=0.1, again_s=0.005) for id in ("a", "b")]
    first = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await running(fleet, "a", "b")
    await until(lambda: len(fleet.lines("a", "step")) > 3, description="some steps are saved")
    status, took_s = ended(first, within_s=fleet.grace_s)
    assert status == 0, first.tail()
    assert took_s < fleet.grace_s / 2, "it waited for the grace although every handler had reached a safe point"
    assert {view.state for view in await desk.store.items(mission.group)} == {ItemState.OFFERED}
    fleet.start("two")
    assert faults_of(await history_of(desk, fleet, mission, work)) == []
    for item in ("a", "b"):
        runs = [run for run in runs_of(await desk.log("m")) if run.item == item]
        assert [(run.agent, run.ended_by) for run in runs] == [("one", K.CHECKPOINTED), ("two", K.SUBMITTED)]
        steps = [line.more["number"] for line in fleet.lines(item, "step")]
        assert steps == list(range(1, 41)), "nothing was done again: the state of the yield was gone on from"
    assert await desk.of_kind("m", K.FAILED) == []


async def test_br_21_intake_stops_what_ends_in_the_grace_is_kept_and_the_rest_goes_back_at_its_end(
    fleet: Fleet, desk: Desk
) -> None:
    """Two items run and two wait when the signal comes."""
    fleet.grace_s = 1.0
    work = [sleeper("short", 0.8), sleeper("endless", 3_600.0), sleeper("third", 0.1), chain("fourth", steps=2)]
    first = fleet.start("one", slots=2)
    await fleet.ready()
    mission = await desk.submit("m", *work[:2])
    await running(fleet, "short", "endless")
    waiting = await desk.submit("n", *work[2:])
    status, took_s = ended(first, within_s=10)
    assert status == 0, first.tail()
    assert took_s < fleet.grace_s + 0.5 + MARGIN_S
    assert [line.what for line in fleet.lines("short")] == ["begin", "return", "out"]
    assert [line.what for line in fleet.lines("endless")] == ["begin", "cancelled", "out"]
    assert [line.more["is_lost"] for line in fleet.lines("endless", "cancelled")] == [False]
    assert fleet.lines("third") == fleet.lines("fourth") == [], "it took work after it was told to stop"
    log = await desk.log("m")
    (given_back,) = [event for event in log if event.kind is K.RELEASED]
    assert (given_back.item, given_back.get("reason")) == ("endless", "shutdown")
    states = {view.item: view.state for view in await desk.store.items(mission.group)}
    assert states == {"short": ItemState.VERIFIED, "endless": ItemState.OFFERED}
    assert await desk.of_kind("m", K.LAPSED) == await desk.of_kind("m", K.FAILED) == []
    fleet.start("two", slots=2)
    assert set(await waiting.results(timeout=30)) == {"third", "fourth"}
    await until(lambda: len(fleet.lines("endless", "begin")) == 2, description="the rest runs elsewhere, at once")


async def test_a_second_sigterm_ends_it_at_once(fleet: Fleet, desk: Desk) -> None:
    fleet.grace_s, fleet.ttl_s = 60.0, 0.5
    work = sleeper("a", 3_600.0)
    first = fleet.start("one")
    await fleet.ready()
    await desk.submit("m", work)
    await running(fleet, "a")
    first.signal(signal.SIGTERM)
    await until(lambda: first.said("stopping"), description="the first signal was heard", of=(first,))
    assert first.child.poll() is None
    assert ended(first, within_s=MARGIN_S)[0] == 128 + signal.SIGTERM, first.tail()
    fleet.start("two")
    await until(lambda: fleet.lines("a", "begin", worker="two"), description="its lease lapses and another goes on")


async def test_a_second_sigterm_is_heard_while_a_handler_blocks_the_event_loop(fleet: Fleet, desk: Desk) -> None:
    first = fleet.start("one")
    await fleet.ready()
    await desk.submit("m", WorkSpec(id="a", capability="fleet.block", inputs={"block_s": 3_600.0}))
    await running(fleet, "a")
    first.signal(signal.SIGTERM)
    await until(lambda: not pending(first), description="the first signal was taken", of=(first,))
    assert first.child.poll() is None
    assert ended(first, within_s=MARGIN_S)[0] == 128 + signal.SIGTERM, first.tail()


def pending(member: Member) -> bool:
    """Whether a SIGTERM was sent and not yet taken by the process: two at once would be one."""
    (line,) = re.findall(r"^ShdPnd:\s*([0-9a-f]+)$", Path(f"/proc/{member.child.pid}/status").read_text(), re.MULTILINE)
    return bool(int(line, 16) >> (signal.SIGTERM - 1) & 1)


IMPATIENT = "import treadle.worker.cli as cli; cli.END_S = 0.5; cli.main()"


async def test_a_handler_that_blocks_the_event_loop_keeps_neither_its_item_nor_its_worker(
    fleet: Fleet, desk: Desk
) -> None:
    fleet.grace_s = fleet.ttl_s = 0.5
    first = fleet.start("one", program=("-c", IMPATIENT))
    await fleet.ready()
    await desk.submit("m", WorkSpec(id="a", capability="fleet.block", inputs={"block_s": 3_600.0}))
    await running(fleet, "a")
    fleet.start("two")
    status, took_s = ended(first, within_s=10)
    assert status == 0
    assert first.said("a handler will not end")
    assert took_s < fleet.grace_s + fleet.ttl_s + 0.5 + MARGIN_S
    await until(lambda: fleet.lines("a", "begin", worker="two"), description="another runs it", of=(first,))


async def test_ctrl_c_is_a_sigterm(fleet: Fleet, desk: Desk) -> None:
    first = fleet.start("one")
    await fleet.ready()
    await desk.submit("m", chain("a", steps=100, step_s=0.05))
    await running(fleet, "a")
    first.signal(signal.SIGINT)
    assert first.exit_status(within_s=2) == 0, first.tail()
    assert len(await desk.of_kind("m", K.CHECKPOINTED)) == 1


@pytest.mark.parametrize("how", ["gone", "paused"])
async def test_a_worker_whose_server_is_away_ends_too(
    how: str, fleet: Fleet, server: EmbeddedServer, desk: Desk
) -> None:
    fleet.grace_s = fleet.ttl_s = 0.5
    worker, idle = fleet.start("one", slots=1), fleet.start("two", slots=1)
    await fleet.ready()
    await desk.submit("m", sleeper("a", 3_600.0))
    await running(fleet, "a")
    if how == "gone":
        server.kill()
    else:
        server.pause()
    try:
        for member in (worker, idle):
            member.signal(signal.SIGTERM)
        for member in (worker, idle):
            assert member.exit_status(within_s=15) == 0, member.tail()
    finally:
        if how == "gone":
            server.restart()
        else:
            server.resume()


def threaded(id: str, *, steps: int, pace_s: float) -> WorkSpec:
    return WorkSpec(id=id, capability="fleet.thread", inputs={"steps": steps, "pace_s": pace_s})


async def test_a_plain_function_yields_at_its_checkpoint_and_one_that_reaches_none_is_left_behind(
    fleet: Fleet, desk: Desk
) -> None:
    """No process waits for a thread that will not end; its item went back at the end of the grace."""
    fleet.grace_s = 1.0
    first = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", threaded("a", steps=40, pace_s=0.05), threaded("b", steps=1, pace_s=30.0))
    await running(fleet, "a", "b")
    await until(lambda: len(fleet.lines("a", "step")) > 3, description="some steps are saved")
    status, took_s = ended(first, within_s=fleet.grace_s + 1.0 + MARGIN_S)
    assert status == 0, first.tail()
    assert took_s < 10
    assert [line.item for line in fleet.lines(what="out")] == ["a"]
    assert first.said("the grace of 1 s is over, cut off: m/b")
    assert first.said("ended without 1 handlers that would not end")
    assert {view.state for view in await desk.store.items(mission.group)} == {ItemState.OFFERED}
    assert not await desk.of_kind("m", K.LAPSED)


async def test_a_killed_workers_plain_function_goes_on_elsewhere_from_its_checkpoint(fleet: Fleet, desk: Desk) -> None:
    first = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", threaded("a", steps=20, pace_s=0.05))
    await until(lambda: len(fleet.lines("a", "step")) > 5, description="some steps are saved")
    fleet.start("two")
    first.kill()
    assert await mission.results(timeout=20) == {"a": 2}
    done = [line.more["number"] for line in fleet.lines("a", "step")]
    assert set(done) == set(range(1, 21))
    assert len(done) <= 21, "at most the step that was not saved is done again"
