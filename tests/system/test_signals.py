"""A signal may come at any moment: between any two steps of the event loop, and at any line of the main thread (BR-19)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import pytest
from fleet import Desk, Fleet, chain, until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.store import Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

K = EventKind
STEPS_MAX, STRIDE = 1_000, 3
SURE = 5
"""After so many orders that all came too late the whole path was tried."""


async def stopped_after(steps: int) -> ItemState:
    """How an item stands that a Worker was about to take, run, save and end when it was told to stop, so many steps of the
    event loop after it was submitted; what is left is done by another.
    """
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        await context.checkpoint({"by": context.attempt})
        return context.attempt

    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        first = a_worker(endpoint, "one", ttl_s=60.0, work=work)
        running = asyncio.create_task(first.run())
        await first.ready.wait()
        mission = await client.submit(
            MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work", retry=0)])
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        first.stop()
        await asyncio.wait_for(running, 10)
        (left,) = await store.items(mission.group)
        assert left.state in (ItemState.OFFERED, ItemState.VERIFIED), f"told after {steps} steps: {left.state}"
        async with at_work(a_worker(endpoint, "two", ttl_s=60.0, work=work)):
            results = await mission.results(timeout=30)
        kinds = Counter(event.kind for event in await whole_log(store, "m"))
        await store.aclose()
    assert set(results) == {"a"}
    assert (kinds[K.RESULT_ACCEPTED], kinds[K.FAILED], kinds[K.LAPSED]) == (1, 0, 0), f"told after {steps} steps"
    assert kinds[K.STARTED] <= 2
    return left.state


async def test_br_19_told_to_stop_at_any_step_of_the_event_loop_the_item_is_stored_once_and_given_back_or_done() -> (
    None
):
    """With asyncio's own loop and the renewal thread, a sample: `sim/test_told_to_stop.py` tries every single step."""
    stood: list[ItemState] = []
    for steps in range(0, STEPS_MAX, STRIDE):
        stood.append(await stopped_after(steps))
        if stood[-SURE:] == [ItemState.VERIFIED] * SURE:
            break
    assert stood[0] is ItemState.OFFERED
    assert stood[-SURE:] == [ItemState.VERIFIED] * SURE, "the whole path was tried"


async def test_br_19_signals_that_come_all_the_time_do_no_harm_at_whatever_line_they_come(
    fleet: Fleet, desk: Desk
) -> None:
    """SIGUSR2, which may come as often as it likes; what a handler of it raised would come out of any line of the Worker."""
    worker = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", *(chain(f"i{n}", steps=1_000, step_s=0.01) for n in range(2)))
    await until(lambda: len(fleet.lines(what="step")) > 4, description="both are at work", of=(worker,))
    (record,) = fleet.folder.glob("treadle-workers/*.json")
    sent = 0
    while record.exists():
        os.kill(worker.child.pid, signal.SIGUSR2)
        sent += 1
        await asyncio.sleep(0)
    assert worker.exit_status(within_s=10) in (0, -signal.SIGUSR2), worker.tail()  # the latter when all was done
    assert sent > 10
    assert "Traceback" not in worker.log_text()
    assert worker.log_text().count("stopping: ") == 1, "a storm is heard once"
    assert {view.state for view in await desk.store.items(mission.group)} == {ItemState.OFFERED}
    assert len(await desk.of_kind("m", K.CHECKPOINTED)) == 2
    assert await desk.of_kind("m", K.LAPSED) == []
