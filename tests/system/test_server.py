"""What the Workers do when their server restarts, stands still or forgets its functions in the middle of the work."""

from __future__ import annotations

import random
import re
from collections import Counter

import anyio
import pytest
import redis
from fleet import Desk, Fleet, chain, sleeper, until
from ledger import faults_of, history_of, runs_apart, runs_of
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

K = EventKind


def pieces(count: int = 6, *, steps: int = 20, again_s: float = 0.06) -> list[WorkSpec]:
    """Chains of so many steps of 60 ms, and one that waits for all of them."""
    first = [chain(f"i{number}", steps=steps, step_s=0.06, again_s=again_s) for number in range(count)]
    return [*first, chain("last", steps=2, step_s=0.05, after=tuple(one.id for one in first))]


async def in_the_middle(fleet: Fleet, *, of: int) -> None:
    """Return when so many items have made three steps."""

    def items() -> int:
        steps = Counter(line.item for line in fleet.lines(what="step"))
        return sum(count >= 3 for count in steps.values())

    await until(lambda: items() >= of, description=f"{of} items are in the middle", of=tuple(fleet.members))


async def test_a_restarted_server_is_noticed_and_nothing_is_lost_or_done_twice(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    chance = random.Random(1)
    work = pieces()
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await in_the_middle(fleet, of=4)
    for number in range(3):
        seen = len(fleet.lines(what="step"))
        await anyio.to_thread.run_sync(server.restart)
        await until(
            lambda seen=seen: len(fleet.lines(what="step")) > seen + chance.randint(1, 6),  # type: ignore[misc]
            description=f"work goes on after restart {number + 1}",
            of=tuple(fleet.members),
        )
    assert set(await mission.results(timeout=30)) == {one.id for one in work}, "the client goes on too"
    await desk.store.adopt()
    history = await history_of(desk, fleet, mission, work)
    # A run's process lives through this, so a cancelled one may write a last line while the next one begins.
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    for member in fleet.members:
        assert member.said("a new session is opened"), member.tail()
        opened = [int(number) for number in re.findall("session ([0-9]+) is open", member.log_text())]
        assert opened[-1] > opened[0] == 1
        assert member.child.poll() is None
    assert not await desk.of_kind("m", K.FAILED)


async def test_a_server_that_is_away_for_longer_than_the_ttl_comes_back_to_the_same_work(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    work = pieces(3, steps=40, again_s=0.01)
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await in_the_middle(fleet, of=3)
    server.kill()
    # By the Workers' own clocks their leases are over now: no handler may go on as if it still had one.
    await until(lambda: len(fleet.lines(what="cancelled")) >= 3, description="the handlers are cancelled")
    seen = len(fleet.lines(what="step"))
    await anyio.to_thread.run_sync(server.restart)
    assert set(await mission.results(timeout=30)) == {one.id for one in work}
    await desk.store.adopt()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    assert len(fleet.lines(what="step")) > seen


async def test_a_server_paused_for_less_than_the_ttl_costs_nothing_but_the_time(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    fleet.ttl_s = 3.0
    work = [*pieces(3), sleeper("s", 3.0)]
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await in_the_middle(fleet, of=3)
    server.pause()
    await anyio.sleep(1.2)  # 5/8 of the TTL, 1.9 s, are left of each lease at least
    server.resume()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history) == [], fleet.tell()
    assert {run.number for run in runs_of(history.events)} == {1}, "something was started again"
    assert not any(member.said("lease lost|session 2") for member in fleet.members), fleet.tell()


async def test_a_server_paused_for_more_than_the_ttl_restarts_runs_from_what_was_saved(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    work = pieces(4, steps=40, again_s=0.01)
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await in_the_middle(fleet, of=4)
    server.pause()
    await until(
        lambda: len(fleet.lines(what="cancelled")) >= 4,
        description="the handlers are cancelled in time",
        of=tuple(fleet.members),
    )
    server.resume()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    assert {run.number for run in runs_of(history.events) if run.item != "last"} >= {1, 2}
    assert all(member.child.poll() is None for member in fleet.members)


async def test_a_server_that_forgets_its_functions_gets_them_again(fleet: Fleet, desk: Desk) -> None:
    work = pieces()
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    with redis.Redis.from_url(desk.url) as client:
        for flushes in range(1, 6):
            await until(
                lambda flushes=flushes: len(fleet.lines(what="step")) > 12 * flushes,  # type: ignore[misc]
                description=f"work goes on after {flushes - 1} FUNCTION FLUSH",
                of=tuple(fleet.members),
            )
            client.function_flush()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history) == [], fleet.tell()
    assert {run.number for run in runs_of(history.events)} == {1}
