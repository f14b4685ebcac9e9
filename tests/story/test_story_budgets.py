"""Story. An item may use the tools and spend the amounts that its contract says, in all its attempts together.

What it has spent stands with its Checkpoint: a crash, a failure or a block neither loses it nor charges it twice (S22).
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import anyio
import pytest
from fleet import until
from inside import at_work
from treadle.coordinator import Client, MissionFailed, MissionSpec, Retry, WorkSpec
from treadle.shared import codec
from treadle.shared.model import AgentId, EventKind, ItemState
from treadle.shared.testing.faults import Fault, FaultyEndpoint
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context, Fail, OverBudget, SyncContext, Worker, handler, tool
from treadle.worker.loading import collect
from treadle.worker.slots import budget
from treadle.worker.slots.tools import collect_tools

calls: list[tuple[str, Any]] = []


@tool("search")
async def search(query: str) -> str:
    calls.append(("search", query))
    return f"found {query}"


@tool("whoami")
def whoami(context: SyncContext, greeting: str) -> str:
    context.spend("tokens", 5)
    return f"{greeting}, {context.item}"


@tool("later")
async def later(context: Context) -> int | None:
    await context.checkpoint({"by": "the tool"})
    return context.left("tokens")


@handler("asks")
async def asks(context: Context, _inputs: dict[str, Any]) -> list[Any]:
    said: list[Any] = [await context.tool("search")("a"), await context.tool("whoami")(greeting="hello")]
    return [*said, await context.tool("later")(), context.checkpoint_state, context.left("tool_calls")]


@handler("asks.sync")
def asks_sync(context: SyncContext, _inputs: dict[str, Any]) -> list[Any]:
    said: list[Any] = [context.tool("search")("a"), context.tool("whoami")(greeting="hello")]
    return [*said, context.tool("later")(), context.checkpoint_state, context.left("tool_calls")]


@handler("spends")
async def spends(context: Context, inputs: dict[str, Any]) -> list[Any]:
    """Ten a step, a checkpoint a step; once, before the third checkpoint, it comes to the end that it is told."""
    step = context.checkpoint_state.get("step", 0)
    left = [*context.checkpoint_state.get("left", []), context.left("tokens")]
    while step < 4:
        context.spend("tokens", 10)
        if step == 2 and context.attempt == 1:
            if inputs["end"] == "crash":
                calls.append(("stands", context.worker))
                await anyio.sleep_forever()
            if inputs["end"] == "block":
                raise Blocked("it waits for somebody")
            if inputs["end"] == "fail":
                raise Fail("not now", retryable=True)
        step += 1
        await context.checkpoint({"step": step, "left": left})
    return [*left, context.left("tokens")]


@handler("squanders")
async def squanders(context: Context, inputs: dict[str, Any]) -> None:
    if inputs["is_caught"]:
        with pytest.raises(OverBudget):
            context.spend("tokens", 101)
        assert context.left("tokens") == 100, "nothing was charged"
    while True:
        context.spend("tokens", 30)


@handler("reaches")
async def reaches(context: Context, inputs: dict[str, Any]) -> Any:
    return await context.tool(inputs["tool"])("x")


@handler("old")
async def old(context: Context, inputs: dict[str, Any]) -> None:
    """Saves a Checkpoint that leaves 20 bytes; the next attempt spends more than can be written into them."""
    if not context.checkpoint_state:
        await context.checkpoint({"x": bytes(codec.CHECKPOINT_MAX - 50)})
        raise Blocked("go on?")
    context.spend("a.dimension.with.a.long.name", 7)
    if inputs["end"] == "block":
        raise Blocked("again?")
    raise Fail("not now", retryable=True)


def worker(endpoint: Any, name: str = "one") -> Worker:
    here = sys.modules[__name__]
    return Worker(
        collect(here), endpoint=endpoint, name=AgentId(name), slots=2, lease_ttl_s=2, tools=collect_tools(here)
    )


def work(id: str, capability: str, **said: Any) -> WorkSpec:
    inputs: dict[str, Any] = {key: said.pop(key) for key in ("end", "tool", "is_caught") if key in said}
    return WorkSpec(id=id, capability=capability, inputs=inputs, retry=Retry(retries=1, first_s=0.001), **said)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.mark.parametrize("end", ["fail", "block"])
async def test_an_old_checkpoint_without_room_for_what_is_spent_fails_its_item_by_name_and_no_other(
    store: FakeEndpoint, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was saved by a version of this program that left none."""
    monkeypatch.setattr(budget, "ROOM", 0)
    async with Client.connect(store, actor="ann") as client, at_work(worker(store)):
        item = work("a", "old", end=end, budgets={"tokens": 100})
        mission = await client.submit(MissionSpec(id="m", objective="to spend", work=[item]))

        async def is_blocked() -> bool:
            return (await mission.items())["a"].state is ItemState.BLOCKED

        await until(is_blocked, description="it is blocked")
        monkeypatch.undo()
        await mission.unblock("a", "yes")
        with pytest.raises(MissionFailed, match=r"checkpoint with what its run has spent: [\d,]+ bytes .*1,048,576"):
            await mission.results(timeout=30)
        assert (await mission.items())["a"].failures == 0, "no further attempt is made of it"
        other = work("b", "asks", tools=["search", "whoami", "later"], budgets={"tokens": 100})
        assert await (await client.submit(MissionSpec(objective="to ask", work=[other]))).results(timeout=30)


async def test_both_kinds_of_handler_use_both_kinds_of_tool_and_each_call_is_one_of_its_budget(
    store: FakeEndpoint,
) -> None:
    async with Client.connect(store, actor="ann") as client, at_work(worker(store)):
        contract: dict[str, Any] = {
            "tools": ["search", "whoami", "later"],
            "budgets": {"tokens": 100, "tool_calls": 3},
        }
        items = [work("a", "asks", **contract), work("b", "asks.sync", **contract)]
        mission = await client.submit(MissionSpec(objective="to ask", work=items))
        assert await mission.results(timeout=30) == {
            id: ["found a", f"hello, {id}", 95, {"by": "the tool"}, 0] for id in ("a", "b")
        }


@pytest.mark.parametrize(
    ("end", "left_later"),
    [("crash", 80), ("fail", 70), ("block", 70)],
)
async def test_s22_what_was_spent_goes_on_with_the_state_it_was_saved_with(
    store: FakeEndpoint, end: str, left_later: int
) -> None:
    """After a crash the third step is done again, and charged once: what it spent there is lost with it."""
    async with Client.connect(store, actor="ann") as client:
        cable = FaultyEndpoint(store)
        first, second = worker(cable, "first"), worker(store, "second")
        mission = await client.submit(
            MissionSpec(objective="to spend", work=[work("a", "spends", end=end, budgets={"tokens": 100})])
        )
        async with at_work(first):
            if end == "crash":
                await until(lambda: ("stands", "first") in calls, description="it stands where it is to be lost")
                cable.fault = lambda _: Fault.UNSENT
                async with at_work(second):
                    results = await mission.results(timeout=30)
            else:
                if end == "block":
                    async for event in mission.events():
                        if event.kind is EventKind.BLOCKED:
                            break
                    await mission.unblock("a")
                results = await mission.results(timeout=30)
    # Two steps are left after a crash and after the others: 80 - 20, or 70 - 20.
    assert results == {"a": [100, left_later, left_later - 20]}


@pytest.mark.parametrize("is_caught", [False, True])
async def test_over_its_budget_an_item_fails_for_good_and_says_how_much_was_left(
    store: FakeEndpoint, caplog: pytest.LogCaptureFixture, is_caught: bool
) -> None:
    caplog.set_level(logging.INFO)
    async with Client.connect(store, actor="ann") as client, at_work(worker(store)):
        spec = work("a", "squanders", is_caught=is_caught, budgets={"tokens": 100})
        mission = await client.submit(MissionSpec(id="m", objective="to squander", work=[spec]))
        with pytest.raises(MissionFailed, match="budget tokens: 30 asked, 10 left of 100"):
            await mission.results(timeout=30)
        await until(
            lambda: "m/a: spent 90 tokens (90 by its Mission here)" in caplog.messages, description="it is said"
        )


async def test_a_tool_that_the_contract_does_not_list_is_not_called(store: FakeEndpoint) -> None:
    async with Client.connect(store, actor="ann") as client, at_work(worker(store)):
        items = [work("a", "reaches", tool="search"), work("b", "reaches", tool="search", tools=["whoami"])]
        mission = await client.submit(MissionSpec(objective="to reach", work=items))
        with pytest.raises(MissionFailed, match="tool 'search': the item's contract does not list it"):
            await mission.results(timeout=30)
        kinds = [event.kind async for event in mission.events()]
        assert kinds.count(EventKind.STARTED) == 2, "for good, without another attempt"
    assert calls == []
