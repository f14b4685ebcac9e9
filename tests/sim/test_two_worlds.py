"""Two whole worlds that differ in other Missions alone: what is published to one's own is the same, byte for byte.

Real Workers and clients on virtual time, every exchange as fast as any other. Whatever is not our Mission's differs:
names, accounts, objectives, items and their number, inputs, results, Checkpoints, how long they run. What is the same is
that two of the Worker's three slots are taken.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.coordinator.core.gates import explain
from treadle.coordinator.testing import opened_client
from treadle.shared.disclosure import CapacityState
from treadle.shared.model import EventKind, GroupId, ItemId
from treadle.shared.store import Store, pictures
from treadle.shared.testing.kit import PARTITIONS, PREFIX, Kit
from treadle.shared.testing.network import Route
from treadle.worker import Context, handler
from treadle.worker.testing import Workers

MARK = "canary"
"""In every text of the other Missions."""
OURS = "ours"
A_LEASE = re.compile(rb"w\.1\.\d+\.0\.\d+\.1")
"""A Lease ID counts the calls its Worker made in the partition, for whomever: docs/disclosure.md says so."""


@handler("step")
async def step(context: Context, inputs: dict[str, Any]) -> str:
    await asyncio.sleep(inputs["s"] / 2)
    await context.checkpoint({"half": inputs["said"]})
    await asyncio.sleep(inputs["s"] / 2)
    return str(inputs["said"])


@handler("rare")
async def rare(context: Context, inputs: dict[str, Any]) -> str:
    return await step(context, inputs)


def others(*missions: tuple[str, int]) -> list[MissionSpec]:
    """Missions of that name with so many items behind two (one, of several) that run all the time."""
    specs: list[MissionSpec] = []
    for name, behind in missions:
        long = 2 if len(missions) == 1 else 1
        work = [
            WorkSpec(id=f"{MARK}-{name}-{n}", capability="step", inputs={"s": 400 + 100 * n, "said": f"{MARK} {name}"})
            for n in range(long)
        ]
        work += [
            WorkSpec(id=f"{MARK}-{name}-r{n}", capability="rare", inputs={"s": 3 + len(name), "said": f"{MARK} {n}"})
            for n in range(behind)
        ]
        said = f"{MARK} {name}"
        specs.append(MissionSpec(id=f"{MARK}-{name}", objective=said, account=said, work=work))
    return specs


def ours() -> MissionSpec:
    work = [
        WorkSpec(id=f"i{n}", capability="step", inputs={"s": s, "said": "ours"}, after=[f"i{n - 1}"] if n else [])
        for n, s in enumerate((2, 3, 2.5, 2, 4, 75))
    ]
    return MissionSpec(id=OURS, objective="ours", account="us", work=work)


class World:
    """What one world publishes to our Mission."""

    def __init__(self, specs: Sequence[MissionSpec]) -> None:
        with mock.patch("time.time", return_value=1_800_000_000.0):
            self.kit = Kit(5)
        self.losses = mock.patch.multiple(
            self.kit.losses,
            route=lambda _process, commands, _timeout_s: Route(0.0005, 0.0005, len(commands), True),
            gap_s=lambda: 0.0,
        )
        self.specs = specs
        self.published: list[bytes] = []
        self.forecasts: list[Any] = []

    def live(self) -> bytes:
        module = ModuleType("handlers")
        vars(module).update(step=step, rare=rare)
        workers = Workers(self.kit, module)
        try:
            with self.losses, opened_client(self.kit) as client:
                self.kit.run(self._live(client, workers))
        finally:
            self.kit.close()
        return b"\n".join(self.published)

    async def _live(self, client: Client, workers: Workers) -> None:
        await workers({"step": step}, name="w", slots=3)
        await workers({"rare": rare}, name="v", slots=2)
        for spec in self.specs:
            await client.submit(spec)
        await asyncio.sleep(30 - asyncio.get_running_loop().time())
        mission = await client.submit(ours())
        store = await Store.connect(self.kit.store.named("people"), prefix=PREFIX, partitions=PARTITIONS)
        try:
            for second in range(31, 231):
                await asyncio.sleep(second - asyncio.get_running_loop().time())
                await self._look(store, 1_800_000_000_000 + 1_000 * second)
                if (view := await mission.view()).ended_ms:
                    break
            assert view.verified == 6
            log = await store.read_log(GroupId(OURS), count=10_000)
            self.published += [A_LEASE.sub(b"a lease", repr(event).encode()) for event in log]
        finally:
            await store.aclose()

    async def _look(self, store: Store, now_ms: int) -> None:
        """Everything that a member of our Mission can ask for; `now_ms` as who asks reckons, not when the answer was there."""
        for item in await store.items(GroupId(OURS), bodies=True):
            self.published.append(repr(item).encode())
            if item.forecast is not None:
                self.forecasts.append(asdict(item.forecast))
                self.published.append(repr(item.forecast.schedule_estimate()).encode())
            facts = await pictures.why(store, GroupId(OURS), ItemId(item.item))
            assert facts is not None
            self.published.append(repr(explain(replace(facts, now_ms=now_ms))).encode())
        for key in sorted(self.kit.network.redis.keys(f"*:{OURS}:*")):
            self.published.append(key)
        for key in self.kit.network.redis.keys("*@inbox:*"):
            rings = self.kit.network.redis.lrange(key, 0, -1)
            self.published += [ring for ring in rings if f"{OURS} ".encode() in ring]


@pytest.fixture(scope="module")
def worlds() -> tuple[World, World, bytes, bytes]:
    one, two = World(others(("alpha", 3))), World(others(("b", 17), ("gamma-of-a-long-name", 12)))
    return one, two, one.live(), two.live()


def test_s23_br77_what_two_worlds_publish_to_one_mission_is_the_same_byte_for_byte(
    worlds: tuple[World, World, bytes, bytes],
) -> None:
    _, _, first, second = worlds
    assert first == second


def test_s23_br77_no_word_of_another_mission_is_in_anything_that_is_published(
    worlds: tuple[World, World, bytes, bytes],
) -> None:
    _, _, first, second = worlds
    for published in (first, second):
        assert MARK.encode() not in published
        assert b"alpha" not in published
        assert b"gamma" not in published


def test_a_real_worker_discloses_at_a_second_and_when_late_and_its_first_runs_teach_it(
    worlds: tuple[World, World, bytes, bytes],
) -> None:
    one, _, first, _ = worlds
    disclosed = [line for line in first.split(b"\n") if EventKind.SCHEDULE_DISCLOSED.name.encode() in line]
    # One an item; the last, which takes longer than all before it, is late when its interval is over.
    assert len(disclosed) == 7
    assert one.forecasts[0]["end_ms"] == 0, "it has seen no run"
    assert one.forecasts[0]["capacity_state"] is CapacityState.CONSTRAINED
    assert {said["confidence"] for said in one.forecasts} >= {0, 50, 66, 75, 80}
