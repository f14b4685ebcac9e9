"""Story: what a handler says of how far it is can be seen while it runs, and costs nothing where it says nothing (R48)."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest
from builders import ITEM
from inside import Start
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, SyncContext, handler

seen_enough = threading.Event()


@handler("film")
async def film(context: Context, inputs: dict[str, Any]) -> str:
    del inputs
    context.progress(0, 100, phase="fetch", milestone="opened")
    for number in range(1, 51):
        context.progress(number, 100, note=f"frame {number}")
    await anyio.to_thread.run_sync(seen_enough.wait, 20)
    context.progress(99, 100, phase="store", milestone="closed")
    return "done"


@handler("book")
def book(context: SyncContext, inputs: dict[str, Any]) -> str:
    del inputs
    context.progress(3, 10, phase="read")
    seen_enough.wait(20)
    return "done"


@handler("quiet")
async def quiet(context: Context, inputs: dict[str, Any]) -> str:
    return f"attempt {context.attempt} of {inputs}"


@handler("wrong")
async def wrong(context: Context, inputs: dict[str, Any]) -> None:
    context.progress(inputs["done"], 10)


@pytest.mark.parametrize("capability", ["film", "book"])
async def test_how_far_a_handler_says_it_is_is_seen_while_it_runs(
    capability: str, store: FakeEndpoint, start: Start
) -> None:
    seen_enough.clear()
    async with Client.connect(store, actor="ann") as client, start("w-1"):
        mission = await client.submit(MissionSpec(objective="o", work=[WorkSpec(id="x", capability=capability)]))
        seen: dict[str, Any] = {}
        with anyio.fail_after(20):
            while not seen:
                seen = await mission.progress()
                await anyio.sleep(0.05)
        gates = (await mission.why("x")).gates
        seen_enough.set()
        await mission.results(timeout=20)
        events = [event async for event in mission.events() if event.kind is EventKind.PROGRESSED]
        last = (await mission.items())["x"].progress
    assert last is not None
    if capability == "film":
        assert (seen["x"].done, seen["x"].total, seen["x"].phase) == (50, 100, "fetch")
        assert (seen["x"].milestones, seen["x"].note) == (("opened",), "frame 50")
        assert "it is at fetch, 50 of 100 (50%): frame 50, reached: opened" in gates[0].text
        assert [event.data[1:3] for event in events] == [("fetch", "opened"), ("store", "closed")]
        assert (last.done, last.milestones) == (99, ("opened", "closed")), "what it said last travelled with its end"
    else:
        assert (seen["x"].done, seen["x"].phase) == (3, "read")
        assert [event.data[1] for event in events] == ["read"]


async def test_a_run_that_says_nothing_asks_for_nothing(store: FakeEndpoint, start: Start) -> None:
    async with Client.connect(store, actor="ann") as client, start("w-1"):
        work = [WorkSpec(id=f"q{n}", capability="quiet") for n in range(5)]
        mission = await client.submit(MissionSpec(objective="o", work=work))
        await mission.results(timeout=20)
        assert await mission.progress() == {}
        assert {item.progress for item in (await mission.items()).values()} == {None}


@pytest.mark.parametrize("done", [-1, "3", float("inf")])
async def test_a_wrong_number_fails_its_item_and_says_which(done: object, store: FakeEndpoint, start: Start) -> None:
    async with Client.connect(store, actor="ann") as client, start("w-1"):
        work = WorkSpec(id=ITEM, capability="wrong", inputs={"done": done}, retry=0)
        mission = await client.submit(MissionSpec(objective="o", work=[work]))
        with pytest.raises(MissionFailed, match="progress: done="):
            await mission.results(timeout=20)
