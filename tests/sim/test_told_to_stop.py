"""SIGTERM at every await point: a Worker is told to stop before each single step of its whole life (BR-19).

What a signal leads to is one callback of the event loop, the order to stop; so between any two steps of the loop is every
moment at which it can come. On virtual time the steps of a Worker with one item are the same in each run, and each is tried.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel
import pytest
from sim import dump
from sim.checker import faults_of_store
from sim.history import History, read
from sim.weather import Weather
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import AgentId, EventKind
from treadle.shared.testing.clock import Process, VirtualLoop, run_virtual
from treadle.shared.testing.network import Network
from treadle.shared.testing.wires import NetworkEndpoint
from treadle.worker import Context, Worker, handler

K = EventKind
PARTITIONS = 1
STEPS_MAX = 5_000
SURE = 8
"""So many orders in a row that came after its whole work: all of it was tried."""


@dataclass(frozen=True, slots=True)
class Stood:
    """How the item stood when the order came, and when its Worker was gone."""

    before: str
    after: str


class House:
    """A calm network, one Mission of one item, and Workers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        weather = Weather(random.Random(1))
        weather.clear()
        self.network = Network(loop, weather, random.Random(2))

    def worker(self, name: str) -> tuple[Worker, Process]:
        @handler("work")
        async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
            await context.checkpoint({"by": context.attempt})
            await anyio.lowlevel.checkpoint()
            return context.attempt

        process = self.loop.process(name)
        handlers = {one.capability: one for one in vars(work)["__treadle_handlers__"]}
        terms: dict[str, Any] = {"lease_ttl_s": 60.0, "grace_s": 5.0, "renew_in": "task", "seed": 3, "prefix": "sim"}
        endpoint = NetworkEndpoint(self.network, process)
        return Worker(handlers, endpoint=endpoint, name=AgentId(name), partitions=PARTITIONS, **terms), process

    def looked_at(self) -> tuple[str, Counter[EventKind], list[str]]:
        """The item's state, the Events so far, and what is wrong with the store: all of its keys against its logs."""
        part = dump.read_partition(self.network.redis, "sim", 0, PARTITIONS, {})
        (group,) = part.groups.values()
        history = read(History(group.group, {"a": ()}, {"a": 60}, {}), group.events)
        faults = list(faults_of_store(part, {group.group: history}))
        (fields,) = group.items.values()
        return fields["st"], Counter(event.kind for event in group.events), faults


def told_before(step: int, *, again_before: int | None = None) -> Stood:
    """Tells a Worker to stop before one step of its life, and kills it before another, as a second signal does."""

    async def main(loop: VirtualLoop) -> Stood:
        house = House(loop)
        async with Client(NetworkEndpoint(house.network, None), "sim", "anna", PARTITIONS) as client:
            mission = await client.submit(
                MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")])
            )
            worker, process = house.worker("one")
            taken, before = 0, ""

            def burns() -> bool:
                nonlocal taken, before
                if taken == step:
                    before, kinds, faults = house.looked_at()
                    assert faults == [], f"before step {step}"
                    assert kinds[K.RESULT_ACCEPTED] == (before == "verified")
                    worker.stop()
                if taken == again_before:
                    process.kill()
                taken += 1
                return process.is_dead

            with mock.patch.object(process, "burns", burns):
                running = process.spawn(worker.run())
                over = anyio.Event()
                process.on_death = over.set
                running.add_done_callback(lambda _: over.set())
                with anyio.fail_after(300):  # an idle Worker takes a step now and then
                    await over.wait()
            told = f"told before step {step}, again before {again_before}"
            after, _, faults = house.looked_at()
            assert faults == [], told
            if not process.is_dead:
                running.result()
                assert after in ("offered", "verified"), f"{told}: it was not given back"
                part = dump.read_partition(house.network.redis, "sim", 0, PARTITIONS, {})
                assert {**part.held, **part.live, **part.sessions} == {}, f"{told}: it left a session"
            second, elsewhere = house.worker("two")
            at_work = elsewhere.spawn(second.run())
            assert set(await mission.results(timeout=300)) == {"a"}
            second.stop()
            await at_work
            _, kinds, faults = house.looked_at()
            assert faults == [], told
            assert (kinds[K.RESULT_ACCEPTED], kinds[K.FAILED]) == (1, 0), told
            assert kinds[K.LAPSED] <= process.is_dead, told
            return Stood(before, after)

    return run_virtual(main)


def the_life(gap: int | None = None) -> list[Stood]:
    """Of an order before each step of a Worker's life, up to where nothing is left to do but to wait.

    `gap`: it is killed so many steps behind the order.
    """
    stood: list[Stood] = []
    while len(stood) < STEPS_MAX and [one.before for one in stood[-SURE:]] != ["verified"] * SURE:
        again = None if gap is None else len(stood) + gap
        stood.append(told_before(len(stood), again_before=again))
    assert len(stood) < STEPS_MAX
    return stood


def test_br_19_told_to_stop_before_any_step_of_its_life_a_worker_gives_its_item_back_or_has_it_stored_once() -> None:
    stood = the_life()
    assert {one.before for one in stood} == {"offered", "active", "verified"}, "before, within and behind its work"
    assert Stood("active", "offered") in stood, "it yields at a checkpoint"
    assert Stood("active", "verified") in stood, "or ends within the grace"


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0, 1, 2, 5, 12])
def test_br_19_a_second_signal_before_any_step_of_its_life_leaves_its_item_offered_leased_or_stored_once(
    gap: int,
) -> None:
    """`gap` steps behind the first: it ends the process between two steps, as SIGKILL does, and nothing of it goes on."""
    stood = the_life(gap)
    assert {one.after for one in stood} >= {"offered", "active", "verified"}
