"""What only long waits show: minutes of them cost nothing here."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
from sim.weather import Weather
from treadle.coordinator import MissionSpec, WorkSpec
from treadle.coordinator.client import Client
from treadle.shared.model import AgentId
from treadle.shared.testing.clock import VirtualLoop, run_virtual
from treadle.shared.testing.network import Network
from treadle.shared.testing.wires import NetworkEndpoint
from treadle.worker import Context, Worker, handler
from treadle.worker.handlers import Handler


def a_calm_network(loop: VirtualLoop) -> Network:
    weather = Weather(random.Random(1))
    weather.clear()
    return Network(loop, weather, random.Random(2))


def a_handler() -> dict[Any, Handler]:
    @handler("x")
    async def work(context: Context, inputs: dict[str, Any]) -> str:
        await anyio.sleep(inputs.get("s", 0.1))
        return context.item

    return {one.capability: one for one in vars(work)["__treadle_handlers__"]}


def a_mission(mission: str, *widths: int) -> MissionSpec:
    work = [WorkSpec(id=f"i{n}", capability="x", inputs={}, slots=width) for n, width in enumerate(widths)]
    return MissionSpec(id=mission, objective="o", work=work)


async def worked(loop: VirtualLoop, network: Network, slots: int, *missions: MissionSpec, for_s: float) -> int:
    """Runs one Worker on some Missions for a while; how many turns it took, once all that it can do is done."""
    async with Client(NetworkEndpoint(network, None), "sim", "anna", 4) as client:
        for mission in missions:
            await client.submit(mission)
        process = loop.process("w")

        async def main() -> None:
            endpoint = NetworkEndpoint(network, process)
            worker = Worker(
                a_handler(),
                endpoint=endpoint,
                name=AgentId("w"),
                prefix="sim",
                slots=slots,
                lease_ttl_s=4,
                renew_in="task",
                seed=1,
            )
            await worker.run()

        process.spawn(main())
        await anyio.sleep(for_s)
    return sum(" turn " in line for line in network.trace)


def test_a_client_waits_twenty_minutes_and_is_one_watcher_of_its_mission() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, set[bytes]]:
        network = a_calm_network(loop)
        async with Client(NetworkEndpoint(network, None), "sim", "anna", 1) as client:
            mission = await client.submit(a_mission("m", 1))
            with pytest.raises(TimeoutError, match="0 of 1 items"):
                await mission.results(timeout=1200)
        (watchers,) = network.redis.keys("*:wait")
        return loop.time(), network.redis.smembers(watchers)

    waited_s, watchers = run_virtual(main)
    assert 1200 <= waited_s < 1210
    assert len(watchers) == 1


def test_an_item_wider_than_the_worker_is_not_asked_for_all_the_time() -> None:
    async def main(loop: VirtualLoop) -> int:
        return await worked(loop, a_calm_network(loop), 1, a_mission("m", 2, 2), for_s=60)

    assert run_virtual(main) < 10


@pytest.mark.parametrize("slots", [2, 3])
def test_wide_items_of_several_partitions_all_start_on_one_worker(slots: int) -> None:
    async def main(loop: VirtualLoop) -> tuple[int, set[str]]:
        network = a_calm_network(loop)
        missions = [a_mission(f"m{n}", 2, 2) for n in range(6)]
        turns = await worked(loop, network, slots, *missions, for_s=60)
        states = {network.redis.hget(key, "state").decode() for key in network.redis.keys("*:mission")}
        return turns, states

    turns, states = run_virtual(main)
    assert states == {"approved"}
    assert turns < 100


def test_what_is_too_wide_now_does_not_keep_other_work_waiting() -> None:
    async def main(loop: VirtualLoop) -> list[bytes]:
        network = a_calm_network(loop)
        await worked(loop, network, 1, a_mission("a", 2), *(a_mission(f"m{n}", 1) for n in range(6)), for_s=20)
        return sorted(network.redis.hget(key, "verified") for key in network.redis.keys("*:mission"))

    assert run_virtual(main) == [b"0"] + 6 * [b"1"]
