"""Preemption in real processes, under the default policy: a run of more than 30 s is asked for its slot, and never cut."""

from __future__ import annotations

import pytest
from fleet import Desk, Fleet, chain, sleeper, until
from ledger import faults_of, history_of, runs_of
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

K = EventKind
ASKED_WITHIN_S = 50.0


async def asked(fleet: Fleet, desk: Desk, work: WorkSpec) -> None:
    """Until a run of this item is asked for its slot, for another Mission's one item."""
    fleet.start("one", slots=1)
    await fleet.ready()
    await desk.submit("long", work)
    await until(lambda: fleet.lines(work.id, "begin"), description="it runs", of=tuple(fleet.members))
    await desk.submit("short", sleeper("s", 0.1))

    async def is_asked() -> bool:
        return bool(await desk.of_kind("long", K.PREEMPTION_REQUESTED))

    await until(is_asked, description="it is asked", timeout_s=ASKED_WITHIN_S, of=tuple(fleet.members))


async def test_r46_a_long_run_yields_at_its_next_checkpoint_and_goes_on_from_there(fleet: Fleet, desk: Desk) -> None:
    work = chain("a", steps=100, step_s=0.5, again_s=0.005)
    await asked(fleet, desk, work)
    long, short = desk.client.mission("long"), desk.client.mission("short")
    assert len(await short.results(timeout=20)) == 1
    assert faults_of(await history_of(desk, fleet, long, [work])) == [], "no step is done twice, none is left out"
    log = await desk.log("long")
    assert [run.ended_by for run in runs_of(log)] == [K.CHECKPOINTED, K.SUBMITTED]
    assert [event.kind for event in log].count(K.PREEMPTION_REQUESTED) == 1


async def test_s18_a_worker_killed_while_its_run_is_asked_leaves_nothing_undone_and_nothing_done_twice(
    fleet: Fleet, desk: Desk
) -> None:
    work = sleeper("b", 100, again_s=0.1)
    await asked(fleet, desk, work)
    fleet.members[-1].kill()
    fleet.start("one", slots=1)
    long, short = desk.client.mission("long"), desk.client.mission("short")
    assert len(await short.results(timeout=20)) == 1
    assert len(await long.results(timeout=20)) == 1
    log = await desk.log("long")
    assert len(runs_of(log)) == 2
    assert [event.kind for event in log].count(K.PREEMPTION_REQUESTED) == 1
    begun = [runs_of(await desk.log(name))[-1].started_ms for name in ("short", "long")]
    assert begun == sorted(begun), "who was waited for comes first"
