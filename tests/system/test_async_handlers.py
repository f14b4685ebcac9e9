"""Async handlers that do not end when they are told to, or that lose their way: in the test's own process."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import fakeredis
import pytest
from fleet import until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.store import Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, Stopped, SyncContext
from treadle.worker.slots import errand

K = EventKind


def spec(*work: WorkSpec, id: str = "m") -> MissionSpec:
    return MissionSpec(id=id, objective="async", work=work)


async def kinds(endpoint: FakeEndpoint, mission: str = "m") -> list[EventKind]:
    store = await Store.connect(endpoint)
    try:
        return [event.kind for event in await whole_log(store, mission)]
    finally:
        await store.aclose()


class Deaf:
    """A handler that catches every cancellation until it is let go; then it saves, which nobody wants any more."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.cancelled = 0
        self.said: list[BaseException] = []

    async def __call__(self, context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG002
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        try:
            await context.checkpoint({"late": True})
        except Stopped as stopped:
            self.said.append(stopped)
        return 1


async def test_a_handler_that_will_not_end_is_given_up_and_its_slot_goes_to_other_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.05)
    endpoint, deaf = FakeEndpoint(), Deaf()

    async def quick(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return 7

    worker = a_worker(endpoint, slots=1, deaf=deaf, quick=quick)
    async with Client.connect(endpoint, actor="ann") as client:
        async with at_work(worker):
            mission = await client.submit(spec(WorkSpec(id="a", capability="deaf", timeout_s=0.1, retry=0)))
            with pytest.raises(MissionFailed, match=r"TimeoutError: it took longer than its time-out of 0\.1 s"):
                await mission.results(timeout=30)
            quickly = await client.submit(spec(WorkSpec(id="b", capability="quick"), id="n"))
            assert await quickly.results(timeout=30) == {"b": 7}
            assert worker.handlers_left == 1
            assert "m/a: its task is given up, 1 so far" in caplog.text
            told = deaf.cancelled
            await anyio.sleep(0.05)
            assert deaf.cancelled == told, "it is told no more"
            deaf.let_go.set()
            await until(lambda: deaf.said, description="it ended")
            await until(lambda: worker.handlers_left == 0, description="none is left")
        assert "the run of m/a is over" in str(deaf.said[0])
    assert K.PROGRESS_SAVED not in await kinds(endpoint)


async def test_the_end_of_the_grace_gives_back_what_will_not_end_before_it_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.05)
    caplog.set_level("INFO")
    endpoint, deaf = FakeEndpoint(), Deaf()
    worker = a_worker(endpoint, grace_s=0.1, deaf=deaf)
    async with Client.connect(endpoint, actor="ann") as client:
        async with at_work(worker):
            await client.submit(spec(WorkSpec(id="a", capability="deaf")))
            await until(lambda: worker.running == ("m/a",), description="it runs")
        assert worker.handlers_left == 1
        assert worker.running == ()
        assert K.RELEASED in await kinds(endpoint)
    lines = [record.getMessage() for record in caplog.records]
    cut = lines.index("the grace of 0.1 s is over, cut off: m/a")
    given_back = next(n for n, line in enumerate(lines) if line.startswith("m/a: given back at its last checkpoint"))
    assert cut < given_back
    deaf.let_go.set()
    await until(lambda: worker.handlers_left == 0, description="none is left")


async def test_a_worker_in_a_hurry_lets_handlers_save_and_waits_for_no_grace() -> None:
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        for step in range(1_000):
            await anyio.sleep(0.02)
            await context.checkpoint({"step": step})
        return 1

    worker = a_worker(endpoint, grace_s=60.0, work=work)
    async with Client.connect(endpoint, actor="ann") as client:
        with anyio.fail_after(20):
            async with at_work(worker):
                await client.submit(spec(WorkSpec(id="a", capability="work")))
                await until(lambda: worker.running, description="it runs")
                worker.stop(hurry=True)
    assert K.CHECKPOINTED in await kinds(endpoint)


async def failed(endpoint: FakeEndpoint, **handlers: Any) -> Any:
    """The failure of the one item whose handler is given."""
    async with at_work(a_worker(endpoint, **handlers)), Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(spec(*(WorkSpec(id="a", capability=name, retry=0) for name in handlers)))
        with pytest.raises(MissionFailed) as caught:
            await mission.results(timeout=30)
    (failure,) = caught.value.failures
    return failure


def line_of(function: Any, offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


async def test_what_the_event_loop_raises_is_said_with_the_handlers_own_line() -> None:
    def stops(context: SyncContext, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        raise StopIteration(3)

    async def stops_too(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        raise StopIteration(3)

    async def cancels_itself(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(1)

    async def exits(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        raise SystemExit(3)

    for function, offset, kind in (
        (stops, 1, "RuntimeError"),
        (stops_too, 1, "RuntimeError"),
        (cancels_itself, 2, "CancelledError"),
        (exits, 1, "SystemExit"),
    ):
        failure = await failed(FakeEndpoint(), work=function)
        assert (failure.type, failure.place) == (kind, line_of(function, offset))


async def test_a_dependencys_result_that_is_gone_fails_the_item_for_good_and_names_it() -> None:
    endpoint = FakeEndpoint()
    called: list[str] = []

    async def make(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        return "x" * 100_000

    async def use(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        called.append(context.item)

    async with Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(
            spec(WorkSpec(id="first one", capability="make"), WorkSpec(id="b", capability="use", after=["first one"]))
        )
        async with at_work(a_worker(endpoint, make=make)):
            await until(lambda: results(endpoint), description="its result is there")
            await until(lambda: verified(endpoint), description="it is verified")
        fakeredis.FakeRedis(server=endpoint.server).delete(*results(endpoint))
        async with at_work(a_worker(endpoint, use=use)):
            with pytest.raises(MissionFailed) as caught:
                await mission.results(timeout=30)
    (failure,) = caught.value.failures
    assert (failure.item, failure.type) == ("b", "Expired")
    assert failure.text.startswith(
        "the result of 'first one', which this item comes after, was kept for its time and is gone"
    )
    assert called == []
    assert (await kinds(endpoint)).count(K.FAILED) == 1, "it is not tried again"


def results(endpoint: FakeEndpoint) -> list[str]:
    """The keys of stored results."""
    found = fakeredis.FakeRedis(server=endpoint.server, decode_responses=True).keys("*:rs:*")
    return [str(key) for key in found]


async def verified(endpoint: FakeEndpoint) -> bool:
    return K.ACCEPTED in await kinds(endpoint)
