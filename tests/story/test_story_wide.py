"""Story. An item that needs four slots, or two gpus, at once starts although others would fill each one as it gets free."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.testing.injection import Faults
from treadle.worker import Context, handler
from treadle.worker.testing import Workers

RUN_S = 8.0
LEASE_S = 10.0
began: list[tuple[str, str, float]] = []
"""Mission, item and time of each start."""


@handler("narrow")
async def narrow(context: Context, inputs: dict[str, Any]) -> None:
    began.append((context.mission, context.item, anyio.current_time()))
    await asyncio.sleep(inputs["seconds"])


@handler("wide")
async def wide(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    began.append((context.mission, context.item, anyio.current_time()))
    await asyncio.sleep(2)
    return context.attempt


@pytest.fixture(autouse=True)
def _anew() -> None:
    began.clear()


async def a_stream(client: Client, items: int = 120, *, id: str = "stream", **of: Any) -> Mission:
    """One-slot items of 2 to 8 s, so that their ends are spread."""
    work = [
        WorkSpec(id=f"n{number:03}", capability="narrow", inputs={"seconds": 2 + number * 7 % 25 / 4}, **of)
        for number in range(items)
    ]
    return await client.submit(MissionSpec(id=id, objective="o", work=work, account=id))


async def a_wide(client: Client, id: str = "wide", **of: Any) -> Mission:
    work = WorkSpec(id="w", capability="wide", slots=4, **of)
    return await client.submit(MissionSpec(id=id, objective="o", work=[work], account=id))


async def until_kept(mission: Mission) -> None:
    """Until a Worker says that it keeps slots for it."""
    with anyio.fail_after(30):
        while [gate.code.value for gate in (await mission.why("w")).gates] != ["RESERVED"]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


def starts(mission: str) -> list[float]:
    return [at for name, _, at in began if name == mission]


async def test_a_4_slot_item_starts_within_the_longest_run_beside_an_endless_stream_of_1_slot_items(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(slots=4)
    stream = await a_stream(treadle_client)
    await asyncio.sleep(20)
    mission = await a_wide(treadle_client)
    came = anyio.current_time()
    await until_kept(mission)
    kept = anyio.current_time()
    assert await mission.results() == {"w": 1}
    (start,) = starts("wide")
    assert kept - came <= RUN_S
    assert start - kept <= RUN_S
    assert not [at for at in starts("stream") if kept < at < start], "what got free was kept"
    assert [at for at in starts("stream") if at > start], "the stream goes on"
    await stream.cancel()


async def test_what_is_cut_off_by_its_own_time_out_before_the_slots_are_needed_uses_them_meanwhile(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(slots=4)
    work = [WorkSpec(id=f"l{number}", capability="narrow", inputs={"seconds": 20}) for number in range(7)]
    work.append(WorkSpec(id="l7", capability="narrow", inputs={"seconds": 14}))
    long = await treadle_client.submit(MissionSpec(id="long", objective="o", work=work, account="long"))
    await asyncio.sleep(21)
    assert len(starts("long")) == 8
    mission = await a_wide(treadle_client)
    await asyncio.sleep(15)
    await until_kept(mission)
    kept = anyio.current_time()
    brief = await treadle_client.submit(
        MissionSpec(
            id="brief",
            objective="o",
            account="brief",
            work=[
                WorkSpec(id="in-time", capability="narrow", inputs={"seconds": 0.5}, timeout_s=1.0),
                WorkSpec(id="no-time-out", capability="narrow", inputs={"seconds": 0.5}),
            ],
        )
    )
    assert await mission.results() == {"w": 1}
    await brief.results()
    at = {item: at for name, item, at in began if name in ("brief", "wide")}
    assert kept <= at["in-time"] < at["w"] < at["no-time-out"]
    await long.results()


async def test_when_its_holder_is_killed_another_worker_goes_on_once_the_reservation_is_over(
    treadle_client: Client, treadle_worker: Workers, faults: Faults
) -> None:
    await treadle_worker(name="one", slots=4, lease_ttl_s=LEASE_S)
    stream = await a_stream(treadle_client)
    await asyncio.sleep(20)
    mission = await a_wide(treadle_client)
    await until_kept(mission)
    await treadle_worker(name="two", slots=4, lease_ttl_s=LEASE_S)
    await asyncio.sleep(0.5)
    faults.kill("one")
    killed = anyio.current_time()
    assert await mission.results() == {"w": 1}
    (start,) = starts("wide")
    assert LEASE_S / 2 < start - killed <= LEASE_S + 2 * RUN_S
    await stream.cancel()


@pytest.mark.parametrize("how", ["paused", "cancelled"])
async def test_while_its_mission_is_paused_or_cancelled_the_slots_are_everybodys(
    how: str, treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(slots=4)
    stream = await a_stream(treadle_client)
    await asyncio.sleep(20)
    mission = await a_wide(treadle_client)
    await until_kept(mission)
    stopped = anyio.current_time()
    if how == "paused":
        await treadle_client.pause("mission:wide")
    else:
        await mission.cancel()
    await asyncio.sleep(2)
    assert [at for at in starts("stream") if stopped <= at <= stopped + 2], "what was kept is used"
    await asyncio.sleep(RUN_S)
    assert starts("wide") == []
    if how == "paused":
        await treadle_client.resume("mission:wide")
        assert await mission.results() == {"w": 1}
    await stream.cancel()


async def test_two_wide_items_wait_on_two_workers_and_both_start(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    for name in ("one", "two"):
        await treadle_worker(name=name, slots=4)
    stream = await a_stream(treadle_client, 240)
    await asyncio.sleep(20)
    first, second = await a_wide(treadle_client), await a_wide(treadle_client, "other")
    came = anyio.current_time()
    assert await first.results() == {"w": 1}
    assert await second.results() == {"w": 1}
    assert max(*starts("wide"), *starts("other")) - came <= 2 * RUN_S
    await stream.cancel()


async def test_a_worker_that_stops_lets_go_at_once(treadle_client: Client, treadle_worker: Workers) -> None:
    one = await treadle_worker(name="one", slots=4, lease_ttl_s=60)
    stream = await a_stream(treadle_client)
    await asyncio.sleep(20)
    mission = await a_wide(treadle_client)
    await until_kept(mission)
    await one.stop()
    await treadle_worker(name="two", slots=4)
    stopped = anyio.current_time()
    assert await mission.results() == {"w": 1}
    assert starts("wide")[0] - stopped <= 2 * RUN_S, "its lease is 60 s, and nobody waited for that"
    await stream.cancel()


async def a_pair(client: Client, *, slots: int = 1) -> Mission:
    work = WorkSpec(id="w", capability="wide", slots=slots, resources={"gpu": 2})
    return await client.submit(MissionSpec(id="wide", objective="o", work=[work], account="wide"))


async def until_gathering(mission: Mission) -> None:
    """Until a Worker says that it keeps for it what gets free."""
    with anyio.fail_after(30):
        while not {"RESERVED", "RESOURCES"} <= {gate.code for gate in (await mission.why("w")).gates}:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("slots", [1, 3])
async def test_an_item_of_two_gpus_starts_within_the_longest_run_beside_an_endless_stream_of_one_gpu_items(
    slots: int, treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(slots=4, resources={"gpu": 2})
    stream = await a_stream(treadle_client, 200, resources={"gpu": 1})
    plain = await treadle_client.submit(
        MissionSpec(
            id="plain",
            objective="o",
            account="plain",
            work=[WorkSpec(id=f"p{number:03}", capability="narrow", inputs={"seconds": 1.0}) for number in range(400)],
        )
    )
    await asyncio.sleep(20)
    mission = await a_pair(treadle_client, slots=slots)
    came = anyio.current_time()
    await until_gathering(mission)
    kept = anyio.current_time()
    assert await mission.results() == {"w": 1}
    (start,) = starts("wide")
    assert kept - came <= RUN_S
    assert start - kept <= RUN_S
    assert not [at for at in starts("stream") if kept < at < start], "what got free was kept"
    assert [at for at in starts("stream") if at > start], "the stream goes on"
    meanwhile = [at for at in starts("plain") if kept < at < start]
    assert len(meanwhile) >= (start - kept - 2) * (2 if slots == 1 else 1), (
        "what needs none goes on in the slots beyond"
    )
    await stream.cancel()
    await plain.cancel()


async def test_when_the_worker_that_keeps_resources_is_killed_another_goes_on(
    treadle_client: Client, treadle_worker: Workers, faults: Faults
) -> None:
    await treadle_worker(name="one", slots=4, resources={"gpu": 2}, lease_ttl_s=LEASE_S)
    stream = await a_stream(treadle_client, 200, resources={"gpu": 1})
    await asyncio.sleep(20)
    mission = await a_pair(treadle_client)
    await until_gathering(mission)
    await treadle_worker(name="two", slots=4, resources={"gpu": 2}, lease_ttl_s=LEASE_S)
    await asyncio.sleep(0.5)
    faults.kill("one")
    killed = anyio.current_time()
    assert await mission.results() == {"w": 1}
    (start,) = starts("wide")
    assert start - killed <= LEASE_S + 2 * RUN_S
    await stream.cancel()


async def test_what_stands_behind_an_item_that_lacks_a_gpu_goes_on_and_a_single_gpu_is_kept_for_nobody(
    treadle_client: Client, treadle_worker: Workers
) -> None:
    await treadle_worker(slots=3, resources={"gpu": 1})
    inputs = {"seconds": 6.0}
    work = [WorkSpec(id=f"g{number}", capability="narrow", inputs=inputs, resources={"gpu": 1}) for number in range(2)]
    work += [
        WorkSpec(id=f"p{number}", capability="narrow", inputs={"seconds": 1.0}, urgency="routine")
        for number in range(10)
    ]
    mission = await treadle_client.submit(MissionSpec(id="m", objective="o", work=work))
    await asyncio.sleep(1)
    codes = {gate.code.value for gate in (await mission.why("g1")).gates}
    assert "RESOURCES" in codes
    assert "RESERVED" not in codes
    await mission.results()
    at = {item: at for _, item, at in began}
    assert max(at[f"p{number}"] for number in range(10)) - at["g0"] <= 6.5, "both free slots were used all the time"
    assert 6.0 <= at["g1"] - at["g0"] <= 6.5


@pytest.mark.parametrize("stream_in", ["stream", "stream-2", "stream-3"])
async def test_what_it_needs_besides_slots_is_kept_with_them_whichever_partition_the_others_are_in(
    stream_in: str, treadle_client: Client, treadle_worker: Workers
) -> None:
    """Else each gpu that gets free would go to what needs only one, and the kept slots would be idle for ever."""
    await treadle_worker(slots=6, resources={"gpu": 2})
    streams = [
        await a_stream(treadle_client, 100, id=stream_in, resources={"gpu": 1}),
        await a_stream(treadle_client, 100, id="plain"),
    ]
    await asyncio.sleep(10)
    mission = await a_pair(treadle_client, slots=2)
    came = anyio.current_time()
    assert await mission.results(timeout=60) == {"w": 1}
    assert starts("wide")[0] - came <= 3 * RUN_S, "until its turn comes, until slots are free, until the rest is"
    for stream in streams:
        await stream.cancel()
