"""A real Worker under pauses, on virtual time: it neither asks in vain nor loses anything, and a resume reaches it at once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from sim.weather import Weather
from treadle.coordinator import MissionSpec, WorkSpec
from treadle.coordinator.client import Client
from treadle.shared.model import AgentId
from treadle.shared.store import Store
from treadle.shared.store.controls import pause, resume
from treadle.shared.testing.clock import Process, VirtualLoop, run_virtual
from treadle.shared.testing.network import Network
from treadle.shared.testing.wires import NetworkEndpoint
from treadle.worker import Context, Worker, handler
from treadle.worker.handlers import Handler

TTL_S = 4


@dataclass
class House:
    """A calm network with a client, a store for commands, and Workers; what ran and when."""

    loop: VirtualLoop
    weather: Weather
    network: Network
    client: Client
    store: Store
    begun: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def worker(self, name: str = "w", slots: int = 2) -> Process:
        """Starts one; its name may be that of one that was killed."""
        number = len(self.loop.processes)
        process = self.loop.process(f"{name}{number}")

        async def main() -> None:
            endpoint = NetworkEndpoint(self.network, process)
            terms: dict[str, Any] = {"lease_ttl_s": TTL_S, "renew_in": "task", "seed": number}
            await Worker(
                self._handlers(), endpoint=endpoint, name=AgentId(name), prefix="sim", slots=slots, **terms
            ).run()

        process.spawn(main())
        return process

    def _handlers(self) -> dict[Any, Handler]:
        @handler("x")
        async def work(context: Context, inputs: dict[str, Any]) -> str:
            self.begun[f"{context.mission}/{context.item}"] = self.loop.time()
            for number in range(inputs.get("steps", 1)):
                await anyio.sleep(inputs.get("s", 0.1))
                await context.checkpoint({"next": number})
            self.ended[f"{context.mission}/{context.item}"] = self.loop.time()
            return context.item

        return {one.capability: one for one in vars(work)["__treadle_handlers__"]}

    async def submit(self, mission: str, items: int = 1, *, account: str = "acme", **inputs: Any) -> None:
        work = [WorkSpec(id=f"i{number}", capability="x", inputs=inputs) for number in range(items)]
        await self.client.submit(MissionSpec(id=mission, objective="o", account=account, work=work))

    @property
    def turns(self) -> int:
        return sum(" turn " in line for line in self.network.trace)

    def states(self, mission: str) -> set[str]:
        return {self.network.redis.hget(key, "st").decode() for key in self.network.redis.keys(f"*:{mission}:i:*")}


def in_a_house(story: Any) -> None:
    async def main(loop: VirtualLoop) -> None:
        weather = Weather(random.Random(1))
        weather.clear()
        network = Network(loop, weather, random.Random(2))
        endpoint = NetworkEndpoint(network, None)
        async with Client(endpoint, "sim", "anna", 2) as client:
            store = await Store.connect(endpoint, prefix="sim")
            try:
                await story(House(loop, weather, network, client, store))
            finally:
                await store.aclose()

    run_virtual(main)


@pytest.mark.parametrize("what", ["all", "account:acme", "capability:x", "mission:m"])
def test_a_worker_hardly_asks_while_work_is_paused_and_starts_it_at_once_when_it_is_resumed(what: str) -> None:
    async def story(house: House) -> None:
        await house.submit("m", 5)
        await pause(house.store, what, actor="ana")
        house.worker()
        await anyio.sleep(2)
        before = house.turns
        await anyio.sleep(600)
        assert house.turns - before <= 2, "ten minutes of a pause"
        assert house.states("m") == {"offered"}
        resumed_s = house.loop.time()
        await resume(house.store, what, actor="ana")
        await anyio.sleep(1)
        assert house.states("m") == {"verified"}
        assert min(house.begun.values()) - resumed_s < 0.1, "at once, not at the next sweep"

    in_a_house(story)


def test_what_runs_when_it_is_paused_ends_and_nothing_is_begun_after_it() -> None:
    async def story(house: House) -> None:
        await house.submit("m", 6, s=0.5, steps=20)
        house.worker(slots=2)
        await anyio.sleep(1)
        await pause(house.store, "account:acme", actor="ana")
        paused_s = house.loop.time()
        assert len(house.begun) == 2
        await house.submit("later", 3)
        before = house.turns
        await anyio.sleep(120)
        assert len(house.ended) == 2, "what ran has ended, over its leases and checkpoints"
        assert max(house.begun.values()) < paused_s
        assert house.turns - before < 80, "40 checkpoints, 2 ends, and next to nothing for what is paused"
        resumed_s = house.loop.time()
        await resume(house.store, "account:acme", actor="ana")
        await anyio.sleep(40)
        assert house.states("m") | house.states("later") == {"verified"}
        assert min(at for at in house.begun.values() if at > paused_s) - resumed_s < 0.1

    in_a_house(story)


def test_a_pause_of_one_account_leaves_the_workers_to_the_others() -> None:
    async def story(house: House) -> None:
        await pause(house.store, "account:acme", actor="ana")
        house.worker()
        await house.submit("m", 4)
        for number in range(30):
            await house.submit(f"other-{number}", 2, account="globex")
            await anyio.sleep(1)
        assert {name.partition("/")[0] for name in house.begun} == {f"other-{number}" for number in range(30)}
        waits = [house.begun[f"other-{number}/i0"] - number for number in range(30)]
        assert max(waits) < 2, "nobody waits behind what is paused"
        await resume(house.store, "account:acme", actor="ana")
        await anyio.sleep(2)
        assert house.states("m") == {"verified"}

    in_a_house(story)


def test_what_a_killed_worker_held_is_given_back_by_its_next_runtime_and_taken_by_anybody_afterwards() -> None:
    """Its next session is told of it as queued, may not start it, and would sit on it until its start-by deadline."""

    async def story(house: House) -> None:
        await house.submit("m", 2, s=5, steps=10)
        process = house.worker("w")
        await anyio.sleep(7)
        assert house.states("m") == {"active"}
        process.kill()
        await pause(house.store, "all", actor="ana")
        again = house.worker("w")
        await anyio.sleep(2)
        assert house.states("m") == {"offered"}
        await anyio.sleep(300)
        again.kill()
        house.worker("another")
        await anyio.sleep(5)
        resumed_s = house.loop.time()
        before = len(house.network.trace)
        house.begun.clear()
        await resume(house.store, "all", actor="ana")
        await anyio.sleep(60)
        assert house.states("m") == {"verified"}, house.network.trace[before:]
        assert max(house.begun.values()) - resumed_s < 0.2

    in_a_house(story)


def test_pausing_and_resuming_all_the_time_starves_and_loses_nothing() -> None:
    async def story(house: House) -> None:
        house.worker("one")
        house.worker("two")
        for number in range(8):
            await house.submit(f"m{number}", 5, account=("acme", "globex")[number % 2], s=0.3)
        for number in range(60):
            what = ("all", "account:acme", "capability:x", f"mission:m{number % 8}")[number % 4]
            await pause(house.store, what, actor="ana")
            await anyio.sleep(0.2)
            await resume(house.store, what, actor="ana")
            await anyio.sleep(0.2)
        await anyio.sleep(10)
        assert {state for number in range(8) for state in house.states(f"m{number}")} == {"verified"}
        assert len(house.ended) == 40
        idle = house.turns
        await anyio.sleep(60)
        assert house.turns - idle < 20

    in_a_house(story)
