"""Results are kept for their time; who asks later is told that they expired, and who waits is told what for."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import anyio
import pytest
from store.by_hand import HandWorker
from store.world import PREFIX, World
from treadle.coordinator import Client, Expired, MissionFailed, MissionSpec, WorkSpec

DAY_MS = 86_400_000


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


@pytest.fixture
async def hand(world: World) -> HandWorker:
    return await HandWorker.open(world.store)


def skipped_where_time_cannot_be_moved(world: World) -> None:
    if world.is_real:
        pytest.skip("a minute of a real server's time is a minute")


def item(id_: str = "a", capability: str = "index") -> WorkSpec:
    return WorkSpec(id=id_, capability=capability)


async def test_a_mission_s_results_expire_and_are_not_waited_for(
    client: Client, hand: HandWorker, world: World
) -> None:
    skipped_where_time_cannot_be_moved(world)
    mission = await client.submit(MissionSpec(id="m", objective="x", work=[item()], keep_results_s=60))
    await hand.end_next(mission)
    await world.pass_ms(59_000)
    await hand.tick(mission)
    assert await mission.results(timeout=0) == {"a": {"done": "a"}}
    await world.pass_ms(2_000)
    for _ in range(3):
        await hand.tick(mission)
    with anyio.fail_after(2):
        with pytest.raises(
            Expired, match=r'^mission "m" is approved, and its results were kept for their time'
        ) as caught:
            await mission.results()
    assert caught.value.code == "RESULT_EXPIRED"
    again = await client.submit(MissionSpec(id="m", objective="x", work=[item()], keep_results_s=60))
    assert again.receipt is not None
    assert again.receipt.repeated


async def test_a_job_expires_after_its_own_end_and_its_key_is_free_again(
    client: Client, hand: HandWorker, world: World
) -> None:
    skipped_where_time_cannot_be_moved(world)
    early = await client.enqueue("index", account="acme", key="early")
    await hand.end_next(early)
    await world.pass_ms(4 * DAY_MS)
    late = await client.enqueue("index", account="acme", key="late")
    hand = await HandWorker.open(world.store, nonce="later")
    await hand.end_next(late)
    await world.pass_ms(4 * DAY_MS)
    for _ in range(3):
        await hand.tick(early)
    assert await late.result(timeout=0) == {"done": "late"}
    with anyio.fail_after(2):
        with pytest.raises(Expired, match=r'^job "jobs:acme/early" is not in this store: its result was kept'):
            await early.result()
    assert (await client.mission("jobs:acme").items()).keys() == {"late"}
    again = await client.enqueue("index", account="acme", key="early")
    assert again.receipt is not None
    assert again.receipt.repeated is False


async def test_a_mission_that_is_waited_for_in_vain_says_what_no_worker_offers(
    client: Client, hand: HandWorker
) -> None:
    assert hand.session.capabilities == ("index",)
    work = [item("a"), item("b", "polish"), item("c", "polish"), item("d", "varnish")]
    mission = await client.submit(MissionSpec(id="m", objective="x", work=work))
    await hand.end_next(mission)
    said = (
        r"^mission \"m\" has not ended within 0\.1 s: 1 of 4 items are verified, 0 failed; NO_WORKER: no live Worker offers "
        r"polish \(2 items\), varnish \(1 item\); it goes on, ask again$"
    )
    with pytest.raises(TimeoutError, match=said):
        await mission.results(timeout=0.1)


async def test_of_a_failed_mission_the_place_is_said(client: Client, hand: HandWorker) -> None:
    mission = await client.submit(MissionSpec(id="m", objective="x", work=[item()]))
    await hand.end_next(mission, fails=True)
    with pytest.raises(MissionFailed, match=r"a: ValueError: no such file \(handlers\.py:7\)$") as caught:
        await mission.results(timeout=5)
    assert caught.value.failures[0].place == "handlers.py:7"


async def test_too_wide_an_item_is_unschedulable_and_the_largest_is_said(
    client: Client, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await HandWorker.open(world.store, slots=4)
    mission = await client.submit(
        MissionSpec(id="m", objective="x", work=[WorkSpec(id="a", capability="index", slots=64)])
    )
    job = await client.enqueue("index", account="acme", key="a", slots=5)
    fits = await client.enqueue("index", account="acme", key="b", slots=4)
    assert mission.receipt is not None
    assert job.receipt is not None
    assert fits.receipt is not None
    assert (mission.receipt.unschedulable, job.receipt.unschedulable) == ({"index": 4}, {"index": 4})
    assert fits.receipt.unschedulable == {}
    with pytest.raises(
        TimeoutError, match=r"UNSCHEDULABLE: it needs 5 slots at once, the largest live Worker .* has 4"
    ):
        await job.result(timeout=0)
    said = [one.getMessage() for one in caplog.records if "UNSCHEDULABLE" in one.getMessage()]
    assert said == [
        'mission "m": an item needs more slots than any live Worker that offers index has, 4 at most; it waits '
        "(UNSCHEDULABLE) until a larger one does"
    ]


async def test_who_finds_too_many_watching_already_still_hears_of_the_end(
    client: Client, hand: HandWorker, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    monkeypatch.setattr("treadle.coordinator.doorbells.CROWDED_S", 0.01)
    mission = await client.submit(MissionSpec(id="m", objective="x", work=[item()]))
    job = await client.enqueue("index", account="acme", key="a")
    for watched in (("m", "-"), ("jobs%3Aacme", "a")):
        for number in range(64):
            await world.store.call("watch", 0, (*watched, f"client.{number}", 60_000))
    found: list[object] = []

    async def wait() -> None:
        found.append(await mission.results(timeout=20))

    async def wait_for_the_job() -> None:
        found.append(await job.result(timeout=20))

    with anyio.fail_after(15):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait_for_the_job)
            await anyio.sleep(0.2)
            await hand.end_next(mission)
            await hand.end_next(job)
    assert found in ([{"a": {"done": "a"}}, {"done": "a"}], [{"done": "a"}, {"a": {"done": "a"}}])
