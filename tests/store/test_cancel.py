"""Cancelling has one documented outcome in each state, is idempotent, and a race with completion ends in exactly one of both.

BR-97: cancel returned fine, and the job ran anyway.

| state when it is cancelled | outcome |
| --- | --- |
| open (waits for others, for its time), offered | cancelled; nobody is given it any more |
| queued, active before or after a Checkpoint | cancelled; its Worker is told, and whatever it still sends is refused |
| asked for its slot | cancelled; what it saves to yield is refused, and nobody waits for its slot any more |
| blocked | cancelled; an answer to what it needs is refused |
| failed, waiting for another attempt | failed for good |
| parked | cancelled |
| verified, failed | Refused, INVALID_STATE_TRANSITION, and it stays as it is |
| cancelled | the same answer again |
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from store.by_hand import HandWorker
from store.world import PREFIX, World, a_block, a_yield, an_ask
from treadle.coordinator import Client, Job, JobCancelled, JobFailed, MissionFailed, MissionSpec, Retry, WorkSpec
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import EventKind, ItemState, MissionState


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


@pytest.fixture
async def hand(world: World) -> HandWorker:
    return await HandWorker.open(world.store)


async def job_of(client: Client, **fields: Any) -> Job[object]:
    return await client.enqueue(WorkSpec(**{"id": "a", "capability": "index", **fields}), account="acme")


async def is_cancelled_for_good(hand: HandWorker, job: Job[object]) -> None:
    for _ in range(2):
        assert await job.cancel() is ItemState.CANCELLED
    with pytest.raises(JobCancelled):
        await job.result(timeout=0)
    assert [event.kind for event in await hand.log(job)].count(EventKind.CANCELLED) == 1
    assert await hand.has_nothing(job)


async def test_offered(client: Client, hand: HandWorker) -> None:
    await is_cancelled_for_good(hand, await job_of(client))


async def test_open_and_waiting_for_its_time(client: Client, hand: HandWorker, world: World) -> None:
    job = await job_of(client, not_before=timedelta(milliseconds=50))
    assert await job.state() is ItemState.OPEN
    assert await job.cancel() is ItemState.CANCELLED
    await world.pass_ms(100)
    await hand.tick(job)
    await is_cancelled_for_good(hand, job)


async def test_open_and_waiting_for_another(client: Client, hand: HandWorker) -> None:
    first = await client.enqueue(WorkSpec(id="first", capability="index"), account="acme")
    job = await job_of(client, after=["first"])
    assert await job.cancel() is ItemState.CANCELLED
    await hand.end_next(first)
    await is_cancelled_for_good(hand, job)


async def test_queued_by_a_worker_that_accepted_it(client: Client, hand: HandWorker) -> None:
    job = await job_of(client)
    grant = await hand.accept(job)
    assert await job.state() is ItemState.QUEUED
    assert await job.cancel() is ItemState.CANCELLED
    assert (await hand.start(grant)).code != "OK"
    await is_cancelled_for_good(hand, job)


@pytest.mark.parametrize("saved", [False, True])
async def test_active_before_and_after_a_checkpoint(client: Client, hand: HandWorker, saved: bool) -> None:
    job = await job_of(client)
    grant = await hand.take(job)
    if saved:
        assert (await hand.save(grant, {"next": 1})).code == "OK"
    assert await job.cancel("no longer wanted") is ItemState.CANCELLED
    assert (await hand.save(grant, {"next": 2})).code != "OK"
    assert (await hand.end(grant, {"late": True})).code != "OK"
    await is_cancelled_for_good(hand, job)


async def test_br_97_asked_for_its_slot(client: Client, hand: HandWorker) -> None:
    job = await job_of(client)
    grant = await hand.take(job)
    assert (await hand.turn(grant.group, an_ask(grant))).code == "OK"
    assert await job.cancel() is ItemState.CANCELLED
    assert (await hand.turn(grant.group, a_yield(grant))).code != "OK"
    await is_cancelled_for_good(hand, job)


async def test_br_97_blocked(client: Client, hand: HandWorker) -> None:
    job = await job_of(client)
    grant = await hand.take(job)
    assert (await hand.turn(grant.group, a_block(grant))).code == "OK"
    assert await job.state() is ItemState.BLOCKED
    assert await job.cancel() is ItemState.CANCELLED
    with pytest.raises(Refused):
        await job.unblock({"go": "on"})
    await is_cancelled_for_good(hand, job)


async def test_failed_and_waiting_for_another_attempt(client: Client, hand: HandWorker, world: World) -> None:
    job = await job_of(client, retry=Retry(retries=5, first_s=0.05))
    await hand.end(await hand.take(job), fails="busy", retryable=True)
    assert not (await job.view()).has_ended
    assert await job.cancel() is ItemState.FAILED
    await world.pass_ms(100)
    await hand.tick(job)
    assert await hand.has_nothing(job)
    with pytest.raises(JobFailed, match="busy"):
        await job.result(timeout=0)
    with pytest.raises(Refused, match=r'^job "jobs:acme/a" is failed and cannot be cancelled any more$'):
        await job.cancel()


@pytest.mark.parametrize("fails", ["", "no such file"])
async def test_done_stays_done(client: Client, hand: HandWorker, fails: str) -> None:
    job = await job_of(client)
    await hand.end(await hand.take(job), {"done": True}, fails=fails)
    state = ItemState.FAILED if fails else ItemState.VERIFIED
    for _ in range(2):
        with pytest.raises(
            Refused, match=rf'^job "jobs:acme/a" is {state} and cannot be cancelled any more$'
        ) as caught:
            await job.cancel()
        assert (caught.value.code, caught.value.details["state"]) == ("INVALID_STATE_TRANSITION", state)
    assert await job.state() is state


async def test_a_race_with_completion_ends_in_exactly_one_of_the_two(client: Client, hand: HandWorker) -> None:
    outcomes = set()
    for number in range(12):
        job = await client.enqueue("index", account="acme", key=f"k{number}")
        grant = await hand.take(job)
        said: dict[str, str] = {}

        async def cancel(job: Job[object] = job, said: dict[str, str] = said) -> None:
            try:
                said["cancel"] = await job.cancel()
            except Refused as refused:
                said["cancel"] = refused.code

        async def complete(said: dict[str, str] = said, grant: object = grant) -> None:
            said["end"] = (await hand.end(grant, 1)).code  # type: ignore[arg-type]

        async with anyio.create_task_group() as group:
            for one in (cancel, complete) if number % 2 else (complete, cancel):
                group.start_soon(one)
        state = await job.state()
        if state is ItemState.VERIFIED:
            assert said == {"cancel": "INVALID_STATE_TRANSITION", "end": "OK"}
        else:
            assert (state, said["cancel"]) == (ItemState.CANCELLED, ItemState.CANCELLED)
            assert said["end"] != "OK"
        outcomes.add(state)
    assert outcomes <= {ItemState.VERIFIED, ItemState.CANCELLED}


async def test_a_mission_is_cancelled_whole_and_says_so(client: Client, hand: HandWorker) -> None:
    work = [WorkSpec(id=name, capability="index") for name in ("done", "running", "waiting")]
    mission = await client.submit(MissionSpec(id="m", objective="index", work=work))
    await hand.end_next(mission)
    grant = await hand.take(mission)
    for _ in range(2):
        assert await mission.cancel("the customer went away \N{WAVING HAND SIGN}") is MissionState.CANCELLED
    assert (await hand.end(grant, 1)).code != "OK"
    assert await hand.has_nothing(mission)
    with pytest.raises(MissionFailed, match='mission "m" cancelled') as caught:
        await mission.results(timeout=5)
    assert caught.value.state is MissionState.CANCELLED
    for _ in range(4):
        await hand.tick(mission)
    states = {name: view.state for name, view in (await mission.items()).items()}
    assert states == {"done": "verified", "running": "cancelled", "waiting": "cancelled"}


async def test_a_mission_that_has_ended_cannot_be_cancelled(client: Client, hand: HandWorker) -> None:
    mission = await client.submit(MissionSpec(id="m", objective="x", work=[WorkSpec(id="a", capability="index")]))
    await hand.end_next(mission)
    with pytest.raises(Refused, match=r'^mission "m" has ended and cannot be cancelled any more$'):
        await mission.cancel()
    with pytest.raises(Refused, match=r'^mission "nope" is not in this store'):
        await client.mission("nope").cancel()


async def test_one_item_of_a_mission_is_cancelled(client: Client, hand: HandWorker) -> None:
    work = [WorkSpec(id="a", capability="index"), WorkSpec(id="b", capability="index")]
    mission = await client.submit(MissionSpec(id="m", objective="x", work=work))
    for _ in range(2):
        assert await mission.cancel_item("a") is ItemState.CANCELLED
    await hand.end_next(mission)
    with pytest.raises(MissionFailed, match='mission "m" failed: 1 item of it was cancelled: a'):
        await mission.results(timeout=5)
    with pytest.raises(Refused, match=r'^item "zz" of mission "m" is not there; check its id$'):
        await mission.cancel_item("zz")


async def test_a_reason_is_a_name_of_bounded_length(client: Client) -> None:
    job = await job_of(client)
    with pytest.raises(Misuse, match=r"^reason: 257 bytes, must be 1 to 256$"):
        await job.cancel("x" * 257)
    assert await job.cancel("any \u202e words\n") is ItemState.CANCELLED


async def test_the_standing_mission_of_an_account_ends_by_no_command(client: Client) -> None:
    job = await job_of(client)
    standing = client.mission("jobs:acme")
    for command in (standing.cancel, standing.seal):
        with pytest.raises(Misuse, match="cancel jobs of it one by one"):
            await command()
    assert (await job.view()).state is ItemState.OFFERED
