"""kill -9 at seeded random moments: nothing is lost, nothing is done twice, and every run goes on from what was saved.

`TREADLE_KILL_ROUNDS` raises the number of rounds; a failure names its seed, `TREADLE_KILL_SEED` runs that one alone.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable
from functools import partial

import anyio
import pytest
from fleet import Desk, Fleet, chain, until
from ledger import faults_of, history_of, runs_of
from treadle.coordinator import Mission, WorkSpec
from treadle.shared.model import EventKind

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("TREADLE_KILL_ROUNDS") or 20)
SEEDS = [int(seed)] if (seed := os.environ.get("TREADLE_KILL_SEED")) else list(range(1, ROUNDS + 1))
KILLS = 6
WORKERS = 3


def graph(chance: random.Random) -> list[WorkSpec]:
    """Nine items in a random order of dependencies."""
    work: list[WorkSpec] = []
    for number in range(9):
        after = chance.sample([one.id for one in work], min(len(work), chance.choice((0, 0, 1, 2))))
        steps, step_s = chance.randint(3, 8), round(chance.uniform(0.02, 0.12), 3)
        work.append(chain(f"i{number}", steps=steps, step_s=step_s, after=tuple(after)))
    return work


async def _has_come(missions: Iterable[Mission], moment: float) -> bool:
    """Whether the logs hold that many Events by now, or all has ended."""
    views = [await mission.view() for mission in missions]
    return sum(view.last_seq for view in views) >= moment or all(view.ended_ms for view in views)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_is_lost_or_done_twice_through_kills_at_random_moments(
    seed: int, fleet: Fleet, desk: Desk
) -> None:
    chance = random.Random(seed)
    work = {name: graph(chance) for name in ("one", "two")}
    events = 60 + sum(4 + one.inputs["steps"] for graph_ in work.values() for one in graph_)
    moments = sorted(chance.uniform(0.05, 0.8) * events for _ in range(KILLS))
    told = f"seed {seed}: replay with TREADLE_KILL_SEED={seed}"
    for _ in range(WORKERS):
        fleet.start()
    missions = {name: await desk.submit(name, *items) for name, items in work.items()}
    kills = 0
    for moment in moments:
        reached = partial(_has_come, missions.values(), moment)
        await until(reached, description=f"{told}: {moment:.0f} Events", timeout_s=40, of=tuple(fleet.members))
        if await _has_come(missions.values(), math.inf):
            break
        await anyio.sleep(chance.uniform(0, 0.06))  # anywhere inside a step, not just behind an Event
        victim = chance.choice(fleet.alive())
        victim.kill()
        kills += 1
        # The same name again requeues what it held at once; under another name it lapses.
        fleet.start(victim.name if chance.random() < 0.5 else None)
    faults: list[str] = []
    cut = 0
    for name, mission in missions.items():
        history = await history_of(desk, fleet, mission, work[name])
        faults += [f"{name}: {fault}" for fault in faults_of(history)]
        cut += sum(run.ended_by in (EventKind.LAPSED, EventKind.REQUEUED) for run in runs_of(history.events))
    assert not faults, "\n".join([told, *faults, fleet.tell()])
    assert kills == KILLS, f"{told}: the Missions ended after {kills} kills"
    assert cut > 0, f"{told}: no kill hit a run"
