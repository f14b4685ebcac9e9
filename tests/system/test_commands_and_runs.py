"""What commands do to work that runs: its handler is stopped, whatever it is in the middle of, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fleet import until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.model import EventKind, ItemId, ItemState
from treadle.shared.store import Store, commands
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

K = EventKind


@asynccontextmanager
async def a_store(endpoint: FakeEndpoint) -> AsyncIterator[Store]:
    store = await Store.connect(endpoint)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.mark.parametrize("by", ["cancel", "cancel of the Mission", "fail"])
@pytest.mark.parametrize("renewing", [True, False], ids=["heard of by a doorbell", "or by a renewal"])
async def test_a_command_stops_the_handler_of_what_it_ends(by: str, renewing: bool) -> None:
    endpoint = FakeEndpoint()
    told: list[tuple[str, object]] = []

    async def work(context: Context, inputs: dict[str, Any]) -> int:
        try:
            if inputs.get("long"):
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            told.append((context.item, context.cancelled))
            raise
        return context.attempt

    ttl_s = 0.4 if renewing else 30.0
    async with (
        at_work(a_worker(endpoint, ttl_s=ttl_s, slots=2, work=work)),
        Client.connect(endpoint, actor="ann") as client,
        a_store(endpoint) as store,
    ):
        long = WorkSpec(id="a", capability="work", inputs={"long": True})
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[long]))

        async def runs() -> bool:
            return any(event.kind is K.STARTED for event in await whole_log(store, "m"))

        await until(runs, description="it runs")
        if by == "fail":
            raw = codec.pack({"type": "Wrong", "text": "by hand"}, field="evidence", limit=1_000)
            await commands.fail_item(
                store, mission.group, ItemId("a"), actor="ann", evidence=raw, digest=codec.digest(raw)
            )
        else:
            item = ItemId("a") if by == "cancel" else None
            await commands.cancel(store, mission.group, item, actor="ann", reason="no-longer-wanted")
        await until(lambda: told, description="its handler is stopped", timeout_s=5)
        assert told == [("a", True)]
        other = await client.submit(
            MissionSpec(
                id="n", objective="o", work=[WorkSpec(id="b", capability="work"), WorkSpec(id="c", capability="work")]
            )
        )
        assert await other.results(timeout=30) == {"b": 1, "c": 1}
        (view,) = await store.items(mission.group)
    assert view.state is (ItemState.FAILED if by == "fail" else ItemState.CANCELLED)


async def test_a_retryable_failure_is_made_again_and_a_final_one_is_not() -> None:
    endpoint = FakeEndpoint()
    attempts: dict[str, int] = {}

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        attempts[context.item] = context.attempt
        if context.item == "a" and context.attempt == 1:
            raise ValueError("once")
        return context.attempt

    async def odd(context: Context, inputs: dict[str, Any]) -> object:  # noqa: ARG001
        attempts[context.item] = context.attempt
        return object()

    async with (
        at_work(a_worker(endpoint, work=work, odd=odd)),
        Client.connect(endpoint, actor="ann") as client,
        a_store(endpoint) as store,
    ):
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")]))
        assert await mission.results(timeout=30) == {"a": 2}
        await client.submit(MissionSpec(id="n", objective="o", work=[WorkSpec(id="b", capability="odd")]))

        async def failed() -> list[str]:
            return [event.get("retry_ms") for event in await whole_log(store, "n") if event.kind is K.FAILED]

        assert await until(failed, description="it has failed for good") == ["0"]
    assert attempts == {"a": 2, "b": 1}
