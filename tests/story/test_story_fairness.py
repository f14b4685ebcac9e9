"""Story 4. Two Missions share the slots by their weights, however much each of them has to do."""

from __future__ import annotations

from typing import Any

import anyio
from inside import Start
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

order: list[str] = []


@handler("piece")
async def piece(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    order.append(context.mission)
    await anyio.sleep(0.02)


async def test_a_mission_of_weight_three_gets_three_slots_in_four(store: FakeEndpoint, start: Start) -> None:
    order.clear()

    def spec(id: str, pieces: int, weight: float) -> MissionSpec:
        work = [WorkSpec(id=f"p{number}", capability="piece") for number in range(pieces)]
        return MissionSpec(id=id, objective=id, account="acme", weight=weight, work=work)

    async with Client.connect(store, actor="ann") as client:
        # The large one came first and could fill the Worker for long.
        large = await client.submit(spec("large", 120, 1))
        small = await client.submit(spec("small", 60, 3))
        async with start("w1", slots=2):
            await small.results(timeout=20)
            share = order[: 60 + order[:80].count("large")].count("small") / len(order)
            await large.results(timeout=20)
    assert 0.65 < share < 0.85
    assert len(order) == 180, "and each piece ran once"
