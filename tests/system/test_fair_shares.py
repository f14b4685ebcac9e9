"""Many Worker processes share their slots by weight, whoever comes and whoever dies; nobody waits for another's backlog.

What is measured are slot-seconds: the runs in the Groups' logs, in the store's time, cut to a window. So it is neither the
Scheduler's own counters that are believed here, nor a number of items, and a machine that is busy makes no difference.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest
from fleet import Desk, Fleet, sleeper, until
from ledger import runs_of
from treadle.coordinator import Job
from treadle.shared.store import pictures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

SLOTS, TTL_S = 4, 3.0
KEEP = "1000000"
"""Events of a log that are kept: they are all counted at the end."""
WARM_UP_S, BEFORE_S, BETWEEN_S, AFTER_S = 4.0, 5.0, 5.0, 9.0
"""A window: so long until a Worker joins, then until one is killed, then until its end; the leases of its runs lapse there.
Before it, what was started by estimates that were still cold is made up for."""
WEIGHTS = {"one": 1.0, "two": 2.0, "five": 5.0}
RUNS_S = {"one": 0.7, "two": 0.15, "five": 0.4}
ITEMS = {"one": 500, "two": 4_000, "five": 4_000}
"""More than 32 slots can do in that time: all three wait for slots throughout."""
LONG_S, SHORT_S, MANY, FEW = 6.0, 0.3, 10_000, 10
"""What starts is charged in advance: the tenth of ten starts when the other account has had nine such runs since they came.
That is 9 / 32 of a run on 32 slots; a second at most until all Workers have heard, and one short run, come on top."""


async def service_s(desk: Desk, since_ms: int, until_ms: int) -> dict[str, float]:
    """The slot-seconds of each Mission between two instants; a killed Worker's run lasts until its lease expires."""
    had: dict[str, float] = {}
    for mission in WEIGHTS:
        ends = [(run, until_ms if run.ended_ms is None else run.ended_ms) for run in runs_of(await desk.log(mission))]
        spans = [min(end, until_ms) - max(run.started_ms, since_ms) for run, end in ends]
        had[mission] = sum(span for span in spans if span > 0) / 1_000
    return had


async def all_wait(desk: Desk) -> bool:
    facts = {one.mission: one for one in await pictures.groups(desk.store)}
    return all(facts[mission].takeable > 0 for mission in WEIGHTS)


async def a_window_with_changes(fleet: Fleet, desk: Desk) -> Mapping[str, float]:
    """Each Mission's part of the slot-seconds of a window in which a Worker joins and another is killed."""
    await anyio.sleep(WARM_UP_S)
    since_ms = await desk.store.now_ms()
    await anyio.sleep(BEFORE_S)
    joined = fleet.start(slots=SLOTS, TREADLE_LOG_KEEP=KEEP)
    await anyio.sleep(BETWEEN_S)
    fleet.alive()[0].kill()
    await anyio.sleep(AFTER_S)
    until_ms = await desk.store.now_ms()
    assert await all_wait(desk), "each of them could have used more"
    assert fleet.lines(worker=joined.name), "who joined has part in it"
    had = await service_s(desk, since_ms, until_ms)
    return {mission: service / sum(had.values()) for mission, service in had.items()}


async def test_s21_slot_seconds_go_by_weight_over_all_workers_whoever_joins_and_whoever_is_killed(
    fleet: Fleet, desk: Desk
) -> None:
    """Weights 1:2:5, items of 700, 150 and 400 ms; 2 and then 8 Workers of 4 slots; each share within 5 % of it."""
    fleet.ttl_s = TTL_S
    for mission, weight in WEIGHTS.items():
        work = [sleeper(f"i{number}", RUNS_S[mission]) for number in range(ITEMS[mission])]
        await desk.submit(mission, *work, account="acme", weight=weight)
    for workers in (2, 8):
        while len(fleet.alive()) < workers:
            fleet.start(slots=SLOTS, TREADLE_LOG_KEEP=KEEP)
        await fleet.ready(*fleet.alive())
        parts = await a_window_with_changes(fleet, desk)
        wanted = {mission: weight / sum(WEIGHTS.values()) for mission, weight in WEIGHTS.items()}
        assert parts == pytest.approx(wanted, rel=0.05), f"{workers} Workers"


async def test_br67_an_accounts_ten_items_do_not_wait_for_ten_thousand_of_another(fleet: Fleet, desk: Desk) -> None:
    """Equal weight, 8 Workers of 4 slots, so that ten are fewer than half of them: within 1.5 of their time alone."""
    fleet.ttl_s = TTL_S
    for _ in range(8):
        fleet.start(slots=SLOTS)
    await fleet.ready()

    async def time_ms(turn: str) -> int:
        """How long the second account's items take, from before they are enqueued until all have ended."""
        since_ms = await desk.store.now_ms()
        work = [sleeper(f"{turn}-{number}", LONG_S) for number in range(FEW)]
        jobs: list[Job[object]] = await desk.client.enqueue_many(work, account="second")
        for job in jobs:
            await job.result(timeout=60)
        return await desk.store.now_ms() - since_ms

    alone_ms = await time_ms("alone")
    many = (sleeper(f"job-{number}", SHORT_S) for number in range(MANY))
    await desk.client.enqueue_many(many, account="first")

    async def all_slots_run() -> bool:
        return sum(one.running for one in await pictures.groups(desk.store)) == 8 * SLOTS

    await until(all_slots_run, description="the first account has all slots", of=tuple(fleet.members))
    behind_ms = await time_ms("behind")
    (first,) = [one for one in await pictures.groups(desk.store) if one.account == "first"]
    assert first.takeable > MANY / 2, "most of the first account's still wait"
    assert behind_ms <= 1.5 * alone_ms, f"{behind_ms} ms behind {MANY} items, {alone_ms} ms alone"
