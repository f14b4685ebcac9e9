"""Two worlds in which our run gives its slot up for another Mission: who that is and what it does is in nothing we are told.

As in `test_two_worlds`; here others enter by way of a preemption, so a request, a reservation and a freed slot are theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sim.test_two_worlds import A_LEASE, MARK, OURS, World, step
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import EventKind, GroupId
from treadle.shared.store import Store
from treadle.shared.testing.kit import PARTITIONS, PREFIX
from treadle.worker.testing import Workers


def a_mission(name: str, *seconds: float, account: str) -> MissionSpec:
    work = [
        WorkSpec(id=f"{name}-{n}", capability="step", inputs={"s": s, "said": f"{name} {n}"})
        for n, s in enumerate(seconds)
    ]
    return MissionSpec(id=name, objective=name, account=account, work=work)


class Preempted(World):
    """One slot: our run of 120 s, safe in its middle; after 40 s another Mission comes, for 20 s."""

    kinds: Sequence[EventKind] = ()

    async def _live(self, client: Client, workers: Workers) -> None:
        await workers({"step": step}, name="w", slots=1)
        mission = await client.submit(a_mission(OURS, 120, account="us"))
        store = await Store.connect(self.kit.store.named("people"), prefix=PREFIX, partitions=PARTITIONS)
        try:
            loop = asyncio.get_running_loop()
            for second in range(1, 301):
                await asyncio.sleep(second - loop.time())
                if second == 40:
                    for spec in self.specs:
                        await client.submit(spec)
                await self._look(store, 1_800_000_000_000 + 1_000 * second)
                if (await mission.view()).ended_ms:
                    break
            log = await store.read_log(GroupId(OURS), count=10_000)
            self.kinds = [event.kind for event in log]
            self.published += [A_LEASE.sub(b"a lease", repr(event).encode()) for event in log]
        finally:
            await store.aclose()


def others(name: str, *idle: str) -> Sequence[MissionSpec]:
    """One item of 20 s for our slot, and Missions of others that nobody works on."""
    waits = [
        MissionSpec(
            id=f"{MARK}-{other}",
            objective=f"{MARK} {other}",
            account=f"{MARK}-{other}",
            work=[WorkSpec(id=f"{MARK}-{n}", capability="rare", inputs={"said": MARK}) for n in range(len(other))],
        )
        for other in idle
    ]
    return [*waits, a_mission(f"{MARK}-{name}", 20.0, account=f"{MARK}-{name}")]


@pytest.fixture(scope="module")
def worlds() -> tuple[Preempted, bytes, bytes]:
    one, two = Preempted(others("alpha")), Preempted(others("gamma-of-a-long-name", "b", "others"))
    return one, one.live(), two.live()


def test_s23_br77_what_a_preemption_tells_of_who_it_is_for_is_the_same_byte_for_byte_whoever_that_is(
    worlds: tuple[Preempted, bytes, bytes],
) -> None:
    world, first, second = worlds
    asked, yielded = EventKind.PREEMPTION_REQUESTED, EventKind.CHECKPOINTED
    assert [kind for kind in world.kinds if kind in (asked, yielded)] == [asked, yielded], (
        "that is what it went through"
    )
    assert EventKind.RESULT_ACCEPTED in world.kinds
    assert first == second
    for published in (first, second):
        assert MARK.encode() not in published
        assert b"alpha" not in published
        assert b"gamma" not in published
