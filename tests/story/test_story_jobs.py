"""One-off jobs: enqueue what is to be done, once by its key, and wait for what its handler returned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import pytest
from inside import Start
from pydantic import BaseModel
from treadle.coordinator import Client, JobFailed, MissionSpec, Retry, SyncClient, WorkSpec
from treadle.shared.store import Endpoint
from treadle.worker import Context, Fail, handler


class Photo(BaseModel):
    name: str
    width: int = 128


@dataclass(frozen=True)
class Thumbnail:
    name: str
    pixels: int


@handler("thumbnail", inputs=Photo)
async def thumbnail(_: Context, inputs: Photo) -> Thumbnail:
    return Thumbnail(inputs.name, inputs.width * inputs.width)


TRIES: list[int] = []


@handler("flaky")
async def flaky(context: Context, _: dict[str, Any]) -> str:
    TRIES.append(context.attempt)
    if len(TRIES) < 3:
        raise ConnectionError("the other side is restarting")
    return "there"


@handler("hopeless")
async def hopeless(_: Context, inputs: dict[str, Any]) -> None:
    raise Fail(f"no such file: {inputs['file']}")


async def test_a_job_is_done_once_however_often_it_is_enqueued(store: Endpoint, start: Start) -> None:
    async with start("w1"), Client.connect(store, actor="shop") as client:
        for _ in range(3):
            job = await client.enqueue(thumbnail.spec(name="a.jpg"), account="acme", key="photo-17")
        made = await job.result(timeout=30)
        assert (made.name, made.pixels) == ("a.jpg", 16_384)  # of its own type, also for the type checker
        assert (await client.mission("jobs:acme").view()).total == 1


async def test_a_failure_that_may_pass_is_tried_again(store: Endpoint, start: Start) -> None:
    TRIES.clear()
    async with start("w1"), Client.connect(store, actor="shop") as client:
        job = await client.enqueue("flaky", retry=Retry(retries=5, first_s=0.01))
        assert await job.result(timeout=30) == "there"
    assert TRIES == [1, 2, 3]


async def test_a_job_that_cannot_be_done_says_why(store: Endpoint, start: Start) -> None:
    async with start("w1"), Client.connect(store, actor="shop") as client:
        job = await client.enqueue("hopeless", {"file": "b.jpg"})
        with pytest.raises(JobFailed, match=r"failed, tried once: \w*Fail\w*: no such file: b\.jpg"):
            await job.result(timeout=30)


async def test_a_job_does_not_start_before_its_time(store: Endpoint, start: Start) -> None:
    async with start("w1"), Client.connect(store, actor="shop") as client:
        began = anyio.current_time()
        job = await client.enqueue(thumbnail.spec(name="a.jpg"), not_before=timedelta(seconds=0.5))
        await job.result(timeout=30)
        assert anyio.current_time() - began >= 0.5


async def test_a_mission_grows_while_it_is_worked_on(store: Endpoint, start: Start) -> None:
    async with start("w1"), Client.connect(store, actor="shop") as client:
        mission = await client.submit(MissionSpec(id="import", objective="import the archive", work=[], open=True))
        for number in range(5):
            after = [f"p{number - 1}"] if number else []
            await mission.add([WorkSpec.of(thumbnail.spec(name=f"{number}.jpg"), id=f"p{number}", after=after)])
        await mission.seal()
        results = await mission.results(timeout=30)
    assert results["p4"] == {"name": "4.jpg", "pixels": 16_384}


async def test_the_same_without_await(store: Endpoint, start: Start) -> None:
    def view() -> int:
        """As a view of Django or Flask has it: in a thread, without a loop."""
        with SyncClient.connect(store, actor="shop") as client:
            job = client.enqueue(thumbnail.spec(name="a.jpg", width=2), account="acme", key="photo-18")
            return job.result(timeout=30).pixels

    async with start("w1"):
        assert await anyio.to_thread.run_sync(view) == 4
