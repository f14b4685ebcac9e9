"""Story. `raise Blocked(...)` asks a person: the slot is free meanwhile, and the answer comes with the item's next run."""

from __future__ import annotations

from typing import Any

import anyio
from fleet import until
from inside import Start
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context, SyncContext, handler

ran: list[str] = []
"""What the handlers did to the world, in order."""


@handler("payment")
async def payment(context: Context, inputs: dict[str, Any]) -> str:
    checked = context.checkpoint_state.get("checked")
    if checked is None:
        ran.append("checked")
        await context.checkpoint({"checked": inputs["amount"]})
    if context.resolution is None:
        raise Blocked("approve a payment", needs={"amount": inputs["amount"]})
    ran.append("decided")
    return f"{context.resolution['decision']} by {context.resolution['by']}, checked {checked}"


@handler("question")
def question(context: SyncContext, inputs: dict[str, Any]) -> str:
    del inputs
    if context.resolution is None:
        raise Blocked("which colour")
    return f"painted {context.resolution}"


@handler("other")
async def other(context: Context, inputs: dict[str, Any]) -> str:
    del context, inputs
    return "done meanwhile"


async def reaches(mission: Mission, item: str, state: ItemState = ItemState.BLOCKED) -> None:
    with anyio.fail_after(5):
        while (await mission.items())[item].state is not state:  # noqa: ASYNC110 - it asks a store, which sets no event
            await anyio.sleep(0.01)


async def test_l12_a_handler_asks_a_person_and_its_only_slot_does_other_work_meanwhile(
    store: FakeEndpoint, start: Start
) -> None:
    ran.clear()
    async with Client.connect(store, actor="ann") as client, start("worker"):
        work = [
            WorkSpec(id="pay", capability="payment", inputs={"amount": 250}),
            WorkSpec(id="tidy", capability="other", after=["ask"]),
            WorkSpec(id="ask", capability="question"),
        ]
        mission = await client.submit(MissionSpec(objective="pay a bill", work=work))
        await reaches(mission, "pay")
        await reaches(mission, "ask")
        view = (await mission.items())["pay"]
        assert view.blocked is not None
        assert (view.blocked.reason, view.blocked.needs) == ("approve a payment", {"amount": 250})
        assert view.owner == "worker", "its ownership is kept for a time"
        assert await mission.unblock("ask", "red") is ItemState.QUEUED
        await reaches(mission, "tidy", ItemState.VERIFIED)
        assert ran == ["checked"], "the one slot did the rest while the payment waited"
        assert await mission.unblock("pay", {"decision": "approved", "by": "ann"}) is ItemState.QUEUED
        results = await mission.results(timeout=5)
        kinds = [event.kind async for event in mission.events()]
    assert results == {"pay": "approved by ann, checked 250", "ask": "painted red", "tidy": "done meanwhile"}
    assert ran == ["checked", "decided"], "what was saved before the question is not done again"
    assert kinds.count(EventKind.BLOCKED) == kinds.count(EventKind.UNBLOCKED) == 2


async def test_br_17_everything_restarts_while_an_item_is_blocked_and_whoever_is_there_goes_on_with_it(
    store: FakeEndpoint, start: Start
) -> None:
    """BR-17: the question is no process's memory."""
    ran.clear()
    async with Client.connect(store, actor="ann") as client, start("yesterday"):
        work = [WorkSpec(id="pay", capability="payment", inputs={"amount": 1})]
        mission = await client.submit(MissionSpec(objective="pay a bill", work=work))
        await reaches(mission, "pay")
    async with Client.connect(store, actor="ben") as client, start("today"):
        mission = client.mission(mission.id)
        view = (await mission.items())["pay"]
        assert view.blocked is not None
        assert (view.owner, view.blocked.reason, view.blocked.until_ms) == (None, "approve a payment", 0)
        assert await mission.unblock("pay", {"decision": "refused", "by": "ben"}) is ItemState.OFFERED
        assert await mission.results(timeout=5) == {"pay": "refused by ben, checked 1"}
    assert ran == ["checked", "decided"]


async def test_what_is_unblocked_where_no_slot_is_free_goes_on_elsewhere(store: FakeEndpoint, start: Start) -> None:
    """The Worker gives back what it cannot start within a second (design.md 4)."""
    ran.clear()
    go_on.append(anyio.Event())
    async with Client.connect(store, actor="ann") as client, start("busy", ttl_s=30):
        work = [WorkSpec(id="pay", capability="payment", inputs={"amount": 1})]
        mission = await client.submit(MissionSpec(objective="pay a bill", work=work))
        await reaches(mission, "pay")
        long = await client.submit(MissionSpec(objective="o", work=[WorkSpec(id="x", capability="long")]))
        await until(lambda: "long" in ran, description="the only slot is taken")
        assert await mission.unblock("pay", {"decision": "approved", "by": "ann"}) is ItemState.QUEUED
        async with start("idle", ttl_s=30):
            assert await mission.results(timeout=20) == {"pay": "approved by ann, checked 1"}
            released = [event async for event in mission.events() if event.kind is EventKind.RELEASED]
            assert [event.get("reason") for event in released] == ["capacity"]
            go_on[0].set()
            await long.results(timeout=5)


go_on: list[anyio.Event] = []


@handler("long")
async def long_run(context: Context, inputs: dict[str, Any]) -> None:
    del context, inputs
    ran.append("long")
    await go_on[0].wait()
