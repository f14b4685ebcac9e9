"""One-off jobs: durable in one round trip, once by their key, with their result or the reason why there is none."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from store.by_hand import HandWorker, group_of
from store.world import PREFIX, World
from treadle.coordinator import Client, Expired, Job, JobCancelled, JobFailed, MissionSpec, Retry, WorkSpec
from treadle.coordinator.job import JobReceipt
from treadle.shared.errors import Misuse, Refused
from treadle.shared.inputs import Call, Misfit
from treadle.shared.model import Capability, ItemState
from treadle.shared.store import commands
from treadle.shared.testing.faults import Fault, Trip, no_fault


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


@pytest.fixture
async def hand(world: World) -> HandWorker:
    return await HandWorker.open(world.store)


async def enqueue(client: Client, key: str = "photo-17", **fields: Any) -> Job[Any]:
    return await client.enqueue("index", {"n": 1}, **{"account": "acme", "key": key, **fields})


def receipt_of(job: Job[Any]) -> JobReceipt:
    assert job.receipt is not None
    return job.receipt


# --- enqueued --------------------------------------------------------------------------------------------------------


async def test_a_job_is_done_and_its_result_comes(client: Client, hand: HandWorker) -> None:
    job = await enqueue(client)
    assert (job.id, job.account, job.mission, job.address) == ("photo-17", "acme", "jobs:acme", "jobs:acme/photo-17")
    assert receipt_of(job) == JobReceipt(False)
    assert await job.state() is ItemState.OFFERED
    grant = await hand.take(job)
    assert (await job.view()).state is ItemState.ACTIVE
    await hand.end(grant, {"done": True})
    assert await job.result(timeout=5) == {"done": True}
    assert await client.job("photo-17", account="acme").result() == {"done": True}
    view = await client.mission("jobs:acme").view()
    assert (view.account, view.is_open, view.verified) == ("acme", True, 1)


async def test_without_key_and_account_each_is_a_job_of_the_actor_s(client: Client) -> None:
    jobs = [await client.enqueue("index") for _ in range(2)]
    assert jobs[0].id != jobs[1].id
    assert {job.mission for job in jobs} == {"jobs:ann"}


async def test_the_same_again_is_the_same_job_and_other_content_is_refused(client: Client, hand: HandWorker) -> None:
    job = await enqueue(client)
    again = await enqueue(client)
    assert (receipt_of(again).repeated, again.address) == (True, job.address)
    await hand.end_next(job)
    ended = await enqueue(client)
    assert receipt_of(ended).repeated
    assert await ended.result(timeout=0) == {"done": "photo-17"}
    with pytest.raises(
        Refused, match='key: job "jobs:acme/photo-17" is in the store with other content; enqueue'
    ) as caught:
        await enqueue(client, retry=5)
    assert caught.value.code == "ACTION_ID_COLLISION"
    assert not receipt_of(await enqueue(client, account="other")).repeated
    assert (await client.mission("jobs:acme").view()).total == 1


async def test_one_round_trip_once_the_account_s_mission_is_there(client: Client, world: World) -> None:
    await enqueue(client, "first")
    before = world.endpoint.trips
    await enqueue(client, "second", not_before=timedelta(seconds=1), retry=Retry(retries=9), timeout_s=3)
    assert world.endpoint.trips - before == 1


@pytest.mark.parametrize("lost", ["add", "create"])
async def test_a_lost_reply_is_asked_again_and_the_job_is_there_once(
    client: Client, world: World, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    losses = 3

    def lose(trip: Trip) -> Fault:
        nonlocal losses
        if losses and lost in trip.functions:
            losses -= 1
            return Fault.REPLY_LOST
        return Fault.NONE

    world.endpoint.fault = lose
    jobs = [
        await enqueue(client, "a"),
        *await client.enqueue_many([WorkSpec(id="b", capability="index")], account="acme"),
    ]
    world.endpoint.fault = no_fault
    assert losses == 0
    assert list(await client.mission("jobs:acme").items()) == ["a", "b"]
    assert [await job.state() for job in jobs] == [ItemState.OFFERED] * 2


async def test_thousands_go_in_batches_and_come_back_in_order(client: Client, world: World) -> None:
    await enqueue(client, "first")
    before = world.endpoint.trips

    def work() -> Iterator[WorkSpec]:
        for index in range(600):
            yield WorkSpec(id=f"k{index}", capability="index", inputs={"n": index})

    jobs = await client.enqueue_many(work(), account="acme")
    assert world.endpoint.trips - before == 3
    assert [job.id for job in jobs] == [f"k{index}" for index in range(600)]
    assert {receipt_of(job).repeated for job in jobs} == {False}
    again = await client.enqueue_many(work(), account="acme")
    assert {receipt_of(job).repeated for job in again} == {True}
    mixed = await client.enqueue_many(
        [WorkSpec(id="k0", capability="index", inputs={"n": 0}), WorkSpec(id="new", capability="index")], account="acme"
    )
    assert {receipt_of(job).repeated for job in mixed} == {None}
    assert list(await client.mission("jobs:acme").items()) == ["first", *(f"k{index}" for index in range(600)), "new"]


async def test_a_batch_with_a_wrong_job_is_refused_whole(client: Client) -> None:
    work = [WorkSpec(id="a", capability="index"), WorkSpec(id="b", capability="index", inputs={"n": 2**64})]
    with pytest.raises(Misuse, match=r'^job \(key "b"\): inputs\.n: 18446744073709551616 is outside'):
        await client.enqueue_many(work, account="acme")
    await enqueue(client, "a")
    other = [WorkSpec(id="new", capability="index"), WorkSpec(id="a", capability="index")]
    with pytest.raises(Refused, match='key: job "jobs:acme/a" is in the store with other content'):
        await client.enqueue_many(other, account="acme")
    assert list(await client.mission("jobs:acme").items()) == ["a"]


async def test_a_deadline_that_is_past_by_the_store_s_time_is_refused(client: Client) -> None:
    with pytest.raises(Misuse, match=r'job \(key "photo-17"\): deadline: 2020-01-01T00:00:00\+00:00 is in the past'):
        await enqueue(client, deadline=datetime(2020, 1, 1, tzinfo=UTC))
    job = await enqueue(client, deadline=datetime(2100, 1, 1, tzinfo=UTC), urgency="high", slots=2)
    view = await job.view()
    assert (view.deadline_ms, view.urgency, view.width) == (4_102_444_800_000, "high", 2)


NAMES = [
    "łódź",
    "写真 17",
    "\N{ROCKET}\N{ZERO WIDTH JOINER}x",
    "\u202eabc\u202c",
    "a\nb\x00\x1b[31m",
    "{p}:a/b %2F",
    " ",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_and_an_account_in_any_script_come_back_as_they_were(
    client: Client, hand: HandWorker, name: str
) -> None:
    job = await client.enqueue("index", account=name, key=name)
    await hand.end(await hand.take(job), {"key": name})
    assert await client.job(name, account=name).result(timeout=0) == {"key": name}
    assert list(await client.mission(f"jobs:{name}").items()) == [name]
    view = await client.mission(f"jobs:{name}").view()
    assert (view.account, view.mission) == (name, f"jobs:{name}")
    with pytest.raises(Refused) as caught:
        await client.enqueue("index", {"other": 1}, account=name, key=name)
    assert str(caught.value).isprintable()


# --- typed -----------------------------------------------------------------------------------------------------------


class Made(BaseModel):
    count: int


def a_call(n: int) -> Call[Made]:
    """As `handler.spec(n=1)` gives it."""

    def made(value: object) -> Made:
        try:
            return Made.model_validate(value)
        except ValueError as problem:
            raise Misfit(f"result of index: {problem}") from None

    return Call(Capability("index"), "1.0.0", {"n": n}, made)


class Marked:
    """As `@handler` gives a function back."""

    def spec(self, n: int = 0) -> Call[Made]:
        return a_call(n)


async def test_a_typed_call_has_a_typed_result(client: Client, hand: HandWorker) -> None:
    job: Job[Made] = await client.enqueue(a_call(3), account="acme", key="a")
    many: list[Job[Made]] = await client.enqueue_many([a_call(4), a_call(5)], account="acme")
    by_handler = await client.enqueue(Marked(), {"n": 6}, account="acme")
    inputs = []
    for _ in range(4):
        grant = await hand.take(job)
        inputs.append(grant.inputs)
        await hand.end(grant, {"count": len(inputs)})
    counts: list[int] = [(await one.result(timeout=0)).count for one in (job, *many, by_handler)]
    assert sorted(counts) == [1, 2, 3, 4]
    assert len(set(inputs)) == 4
    plain = client.job("a", account="acme")
    assert await plain.result() == {"count": counts[0]}


async def test_a_result_that_is_no_such_value_is_said(client: Client, hand: HandWorker) -> None:
    job = await client.enqueue(a_call(3), account="acme")
    await hand.end(await hand.take(job), {"size": 1})
    with pytest.raises(Misfit, match="result of index"):
        await job.result(timeout=0)


# --- why there is no result ------------------------------------------------------------------------------------------


async def test_a_job_that_failed_says_why_where_and_how_often(client: Client, hand: HandWorker) -> None:
    job = await enqueue(client, retry=0)
    await hand.end(await hand.take(job), fails="no such file", retryable=True)
    said = r'^job "jobs:acme/photo-17" failed, tried once: ValueError: no such file \(handlers\.py:7\)$'
    with pytest.raises(JobFailed, match=said) as caught:
        await job.result(timeout=5)
    assert (caught.value.failure.type, caught.value.failure.place) == ("ValueError", "handlers.py:7")
    await job.retry()
    assert await job.state() is ItemState.OFFERED
    await hand.end(await hand.take(job), 7)
    assert await job.result(timeout=0) == 7


async def test_a_job_that_will_be_tried_again_has_not_failed_yet(
    client: Client, hand: HandWorker, world: World
) -> None:
    job = await enqueue(client, retry=Retry(retries=1, first_s=0.1))
    await hand.end(await hand.take(job), fails="busy", retryable=True)
    with pytest.raises(TimeoutError, match=r"within 0\.05 s: BACKOFF: it failed (once|1 time).* goes on, ask again"):
        await job.result(timeout=0.05)
    await world.pass_ms(150)
    await hand.tick(job)
    await hand.end(await hand.take(job), fails="busy", retryable=True)
    with pytest.raises(JobFailed, match="tried 2 times"):
        await job.result(timeout=0)


async def test_a_cancelled_job_and_one_nobody_knows_are_said(client: Client) -> None:
    job = await enqueue(client)
    assert await job.cancel() is ItemState.CANCELLED
    with pytest.raises(JobCancelled, match=r'^job "jobs:acme/photo-17" was cancelled$'):
        await job.result()
    unknown = client.job("nope", account="acme")
    for ask in (unknown.view, unknown.state, unknown.result, unknown.cancel, unknown.retry):
        with pytest.raises(Expired, match=r'^job "jobs:acme/nope" is not in this store: its result was kept'):
            await ask()
    with pytest.raises(Expired):
        await client.job("nope", account="nobody").cancel()


async def test_patience_that_is_over_says_what_the_job_waits_for(client: Client, hand: HandWorker) -> None:
    nobody = await client.enqueue("polish", account="acme", key="a")
    began = anyio.current_time()
    with pytest.raises(
        TimeoutError,
        match=r'job "jobs:acme/a" has not ended within 0\.2 s: NO_WORKER: no live Worker offers polish; it goes on',
    ):
        await nobody.result(timeout=0.2)
    assert 0.2 <= anyio.current_time() - began < 2
    later = await enqueue(client, "b", not_before=timedelta(hours=1))
    with pytest.raises(TimeoutError, match="NOT_BEFORE: it is not to start within the next"):
        await later.result(timeout=0)
    running = await enqueue(client, "c")
    await hand.take(running)
    with pytest.raises(TimeoutError, match="RUNNING: Worker hand has run it for"):
        await running.result(timeout=0)


async def test_a_wait_hears_of_the_end_and_holds_nothing_up(client: Client, hand: HandWorker) -> None:
    jobs = [await enqueue(client, f"k{index}") for index in range(3)]
    results: dict[str, Any] = {}

    async def wait(job: Job[Any]) -> None:
        results[job.id] = await job.result(timeout=30)

    with anyio.fail_after(4):
        async with anyio.create_task_group() as group:
            for job in jobs:
                group.start_soon(wait, job)
            await anyio.sleep(0.05)
            await enqueue(client, "meanwhile")
            for _ in range(4):
                await hand.end_next(jobs[0])
    assert results == {f"k{index}": {"done": f"k{index}"} for index in range(3)}


async def test_no_worker_and_too_wide_a_job_are_warned_about_once(
    client: Client, hand: HandWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert hand.session.capabilities == ("index",)
    jobs = [await client.enqueue("polish", key=f"k{index}") for index in range(3)]
    assert {receipt_of(job).no_worker for job in jobs} == {(Capability("polish"),)}
    assert len([one for one in caplog.records if "no live Worker offers polish" in one.getMessage()]) == 1


async def test_an_account_whose_mission_was_ended_by_hand_says_so(client: Client, world: World) -> None:
    job = await enqueue(client)
    await commands.cancel(world.store, group_of(job), None, actor="ann", reason="by-hand")
    with pytest.raises(Refused, match=r'takes no more .*"jobs:acme" is cancelled') as caught:
        await enqueue(client, "other")
    assert caught.value.code == "INVALID_STATE_TRANSITION"


async def test_a_job_may_wait_for_another_by_its_key(client: Client, hand: HandWorker) -> None:
    first, second = await client.enqueue_many(
        [WorkSpec(id="b", capability="index", after=["a"]), WorkSpec(id="a", capability="index")], account="acme"
    )
    assert (first.id, second.id) == ("b", "a")
    assert await first.state() is ItemState.OPEN
    await hand.end_next(second)
    assert await first.state() is ItemState.OFFERED
    with pytest.raises(
        Misuse, match='item "c": after: names an item that is neither in mission "jobs:acme" nor in this'
    ):
        await client.enqueue(WorkSpec(id="c", capability="index", after=["nope"]), account="acme")


async def test_the_standing_mission_cannot_be_submitted_over(client: Client) -> None:
    await enqueue(client)
    spec = MissionSpec(id="jobs:acme", objective="x", work=[WorkSpec(id="a", capability="index")])
    with pytest.raises(Misuse, match="choose another"):
        await client.submit(spec)
    assert group_of(client.job("photo-17", account="acme")) == "jobs%3Aacme"


async def test_a_crowd_waits_together_and_each_hears_of_his_own(client: Client, hand: HandWorker, world: World) -> None:
    """Many that wait do not take turns: one of them listens for all, and hands it on when his own job has ended."""
    jobs = await client.enqueue_many([WorkSpec(id=f"k{n}", capability="index") for n in range(200)], account="acme")
    results: dict[str, Any] = {}
    failed: list[str] = []

    async def wait(job: Job[Any]) -> None:
        try:
            results[job.id] = await job.result(timeout=30)
        except (JobFailed, JobCancelled):
            failed.append(job.id)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for job in jobs:
                group.start_soon(wait, job)
            await anyio.sleep(0.3)
            await jobs[7].cancel()
            await client.mission("jobs:acme").fail("k8", "withdrawn")
            for _ in range(198):
                grant = await hand.take(jobs[0])
                await hand.end(grant, grant.item)
            began = world.endpoint.trips
    assert sorted(failed) == ["k7", "k8"]
    assert results == {f"k{n}": f"k{n}" for n in range(200) if n not in (7, 8)}
    assert world.endpoint.trips - began < 2_000
    assert client._line._doorbells._waiting == {}


async def test_who_gives_up_waiting_in_a_crowd_holds_nobody_up(client: Client, hand: HandWorker) -> None:
    jobs = await client.enqueue_many([WorkSpec(id=f"k{n}", capability="index") for n in range(60)], account="acme")
    results: list[Any] = []
    late: list[str] = []

    async def wait(job: Job[Any], timeout: float) -> None:  # noqa: ASYNC109
        try:
            results.append(await job.result(timeout=timeout))
        except TimeoutError:
            late.append(job.id)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for n, job in enumerate(jobs):
                group.start_soon(wait, job, 30 if n >= 40 else 0.2)
            await World.eventually(lambda: _has(late, 40), "forty have given up", 15)
            for _ in range(60):
                await hand.end_next(jobs[0])
    assert (len(late), len(results)) == (40, 20)


async def _has(found: list[str], count: int) -> bool:
    return len(found) == count
