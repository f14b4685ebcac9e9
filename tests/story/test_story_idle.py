"""Story 7. Idle is when nothing is left that happens by itself.

The Mission of an account's one-off jobs never ends, nor does one that grows: they are idle when their items are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from treadle.coordinator import Client, MissionSpec, Retry, WorkSpec
from treadle.shared.model import ItemState
from treadle.worker import Context, Fail, handler
from treadle.worker.testing import Workers

Idle = Callable[..., Awaitable[float]]


@handler("piece")
async def piece(context: Context, inputs: dict[str, Any]) -> int:
    if inputs.get("hopeless"):
        raise Fail("it cannot be done")
    if context.attempt <= inputs.get("refused", 0):
        raise ConnectionError("the other side is restarting")
    return context.attempt


async def test_jobs_are_waited_for_and_their_standing_mission_is_not(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    treadle_worker()
    job = await treadle_client.enqueue("piece", not_before=timedelta(minutes=5))
    assert 300 <= await run_until_idle() < 330
    assert await job.state() is ItemState.VERIFIED


async def test_the_wait_before_another_attempt_is_not_idle(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    treadle_worker()
    job = await treadle_client.enqueue("piece", {"refused": 2}, retry=Retry(retries=2, first_s=50, most_s=50))
    assert 100 <= await run_until_idle() < 110
    assert await job.result() == 3


async def test_a_mission_that_grows_is_idle_between_its_items_also_where_one_failed(
    treadle_client: Client, treadle_worker: Workers, run_until_idle: Idle
) -> None:
    treadle_worker()
    mission = await treadle_client.submit(MissionSpec(id="m", objective="it grows", work=[], open=True))
    await run_until_idle()
    bad = WorkSpec(id="bad", capability="piece", inputs={"hopeless": True})
    await mission.add([bad, WorkSpec(id="behind", capability="piece", after=["bad"])])
    await mission.add([WorkSpec(id="other", capability="piece")])
    await run_until_idle()
    states = {name: item.state for name, item in (await mission.items()).items()}
    assert states == {"bad": ItemState.FAILED, "behind": ItemState.OPEN, "other": ItemState.VERIFIED}
