"""Handlers that do what nobody hopes for: the outcome is their item's, never the Worker's and never another item's."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fleet import until
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.model import AgentId, Capability, Session
from treadle.shared.store import Authority, Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context


class Odd(BaseException):
    """Not an Exception."""


RAISED: dict[str, BaseException] = {
    "GeneratorExit": GeneratorExit(),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(3),
    "Odd": Odd("odd"),
    "BaseExceptionGroup": BaseExceptionGroup("several", [Odd("one")]),
}


@pytest.mark.parametrize("name", RAISED)
async def test_whatever_a_handler_raises_fails_its_item_and_the_worker_goes_on(name: str) -> None:
    endpoint = FakeEndpoint()

    async def bad(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        raise RAISED[name]

    async def good(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return 1

    async with at_work(a_worker(endpoint, bad=bad, good=good)), Client.connect(endpoint, actor="ann") as client:
        first = await client.submit(
            MissionSpec(id="m", objective="bad", work=[WorkSpec(id="a", capability="bad", retry=0)])
        )
        with pytest.raises(MissionFailed) as caught:
            await first.results(timeout=30)
        assert [(failure.item, failure.type) for failure in caught.value.failures] == [("a", name)]
        second = await client.submit(MissionSpec(id="n", objective="good", work=[WorkSpec(id="b", capability="good")]))
        assert await second.results(timeout=30) == {"b": 1}


async def test_a_yield_that_is_stored_ends_its_run_also_where_the_handler_stopped_waiting_for_it() -> None:
    """Else two Workers would work at the item until the grace is over."""
    endpoint = FakeEndpoint()
    alive: dict[str, int] = {}
    most_at_once = 0

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        nonlocal most_at_once
        alive[context.worker] = alive.get(context.worker, 0) + 1
        most_at_once = max(most_at_once, sum(alive.values()))
        try:
            step = int(context.checkpoint_state.get("step", 0))
            while step < 200 and context.worker == "one":
                step += 1
                with anyio.move_on_after(0):
                    await context.checkpoint({"step": step})
                await anyio.sleep(0.01)
        finally:
            alive[context.worker] -= 1
        return step

    first, second = (a_worker(endpoint, name, ttl_s=1.0, grace_s=8.0, work=work) for name in ("one", "two"))
    async with Client.connect(endpoint, actor="ann") as client, at_work(first):
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")]))
        await until(lambda: alive.get("one") == 1, description="the first Worker runs it")
        async with at_work(second):
            first.stop()
            assert (await mission.results(timeout=30))["a"] < 200
    assert most_at_once == 1


async def test_what_is_asked_after_the_session_is_over_is_answered_and_a_new_session_opens() -> None:
    """A shielded handler that saves while it unwinds must not wait for a turn that nobody will send."""
    endpoint = FakeEndpoint()
    begun = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        if context.attempt == 1:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await context.checkpoint({"late": True})
        return context.attempt

    async with Client.connect(endpoint, actor="ann") as client, at_work(a_worker(endpoint, ttl_s=0.5, work=work)):
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")]))
        await begun.wait()
        store = await Store.connect(endpoint)
        session = Session(AgentId("one"), 1, 500, (Capability("work"),), store.replid)
        await Authority(store).close_session(session)  # what a tick does to a session that was silent for too long
        await store.aclose()
        assert await mission.results(timeout=30) == {"a": 2}
