"""Plain functions as handlers: in threads, with a context of their own, and stopped at their next checkpoint."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from fleet import until, whole_log
from inside import at_work
from pydantic import BaseModel
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.coordinator.core.missions import plan_mission
from treadle.shared import codec
from treadle.shared.model import AgentId, Capability, Event, EventKind, GroupId, ItemState, Session
from treadle.shared.store import Authority, Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, Stopped, SyncContext, Worker, handler
from treadle.worker.handlers import Handler
from treadle.worker.slots import errand

K = EventKind
WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="nowhere")


def a_worker(endpoint: FakeEndpoint, *functions: Any, name: str = "one", ttl_s: float = 1.0, **terms: Any) -> Worker:
    found: dict[Capability, Handler] = {}
    for function in functions:
        for one in vars(function)["__treadle_handlers__"]:
            found[one.capability] = one
    return Worker(found, endpoint=endpoint, name=AgentId(name), lease_ttl_s=ttl_s, **terms)


def spec(*work: WorkSpec, id: str = "m") -> MissionSpec:
    return MissionSpec(id=id, objective="threads", work=work)


def item(id: str, capability: str = "work", **fields: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=capability, **fields)


@asynccontextmanager
async def a_store(endpoint: FakeEndpoint) -> AsyncIterator[Store]:
    store = await Store.connect(endpoint)
    try:
        yield store
    finally:
        await store.aclose()


async def failures(endpoint: FakeEndpoint, mission: str = "m") -> list[dict[str, Any]]:
    """The Evidence of each failed run so far."""
    async with a_store(endpoint) as store:
        events = await whole_log(store, mission)
    found = [codec.unpack(event.payload, what="Evidence") for event in events if event.kind is K.FAILED]
    return [evidence for evidence in found if isinstance(evidence, dict)]


async def events(endpoint: FakeEndpoint, kind: EventKind, mission: str = "m") -> list[Event]:
    async with a_store(endpoint) as store:
        return [event for event in await whole_log(store, mission) if event.kind is kind]


async def submit_timed(store: Store, timeout_s: float, *work: WorkSpec) -> GroupId:
    """A Mission whose items have a time-out per attempt."""
    plan = plan_mission(spec(*work), mission_id="m", actor="ann", now_ms=await store.now_ms())
    contract = codec.pack({"timeout_s": timeout_s}, field="contract", limit=1_000)
    plan = replace(plan, items=tuple(replace(one, contract=contract) for one in plan.items))
    return (await store.create(plan)).group


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets go of the threads of a test, at its end at the latest."""
    event = threading.Event()
    yield event
    event.set()


class Files(BaseModel):
    names: list[str]


@dataclass
class Counted:
    count: int
    where: str


async def test_a_plain_function_has_typed_inputs_checkpoints_results_and_its_logging_context(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = FakeEndpoint()
    WHERE.set("here")

    @handler("work", inputs=Files)
    def work(context: SyncContext, inputs: Files) -> Counted:
        assert threading.current_thread() is not threading.main_thread()
        assert context.inputs == {"names": inputs.names}
        for number, name in enumerate(inputs.names, start=1):
            context.progress(number, len(inputs.names), note=name)
            context.checkpoint({"done": number})
            assert context.checkpoint_state == {"done": number}
        context.logger.info("counted %d", len(inputs.names))
        return Counted(len(inputs.names), WHERE.get())

    with caplog.at_level(logging.INFO):
        async with at_work(a_worker(endpoint, work)), Client.connect(endpoint, actor="ann") as client:
            mission = await client.submit(spec(item("a", inputs=work.spec(names=["x", "y"]).inputs)))
            results = await mission.results(timeout=30)
    assert results == {"a": {"count": 2, "where": "here"}}
    assert work.spec(names=[]).result_of(results["a"]) == Counted(2, "here")
    assert len(await events(endpoint, K.PROGRESS_SAVED)) == 2
    lines = [record.getMessage() for record in caplog.records]
    assert "[m/a] counted 2" in lines
    assert [line for line in lines if line.startswith("m/a: ")] == [
        "m/a: taken and started, attempt 1 (work)",
        next(line for line in lines if line.startswith("m/a: finished after 0.")),
    ]


async def test_plain_functions_run_side_by_side_up_to_the_slots_and_never_block_the_loop(
    release: threading.Event,
) -> None:
    endpoint = FakeEndpoint()
    at_once, most = 0, 0
    lock = threading.Lock()

    @handler("block")
    def block(context: SyncContext, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        release.wait(10)
        with lock:
            at_once -= 1
        return 1

    @handler("tick")
    async def tick(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        await anyio.sleep(0.01)
        return 2

    worker = a_worker(endpoint, block, tick, slots=3)
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
        blocked = await client.submit(spec(*(item(f"b{n}", "block") for n in range(2))))
        await until(lambda: most == 2, description="two threads at once")
        ticking = await client.submit(spec(*(item(f"t{n}", "tick") for n in range(5)), id="n"))
        assert set((await ticking.results(timeout=30)).values()) == {2}
        release.set()
        assert await blocked.results(timeout=30) == {"b0": 1, "b1": 1}
    assert worker.handlers_left == 0


async def test_a_stopped_worker_ends_a_plain_function_at_its_next_checkpoint_and_another_goes_on() -> None:
    endpoint = FakeEndpoint()
    seen: list[tuple[str, str]] = []

    @handler("work")
    def work(context: SyncContext, inputs: dict[str, Any]) -> list[Any]:  # noqa: ARG001
        first = context.checkpoint_state.get("done", 0)
        try:
            for number in range(first, 40):
                time.sleep(0.01)
                seen.append((context.worker, "step"))
                context.checkpoint({"done": number + 1})
        except Stopped:
            seen.append((context.worker, "stopped"))
            raise
        finally:
            seen.append((context.worker, "out"))
        return [context.attempt, first > 0]

    first, second = (a_worker(endpoint, work, name=name) for name in ("one", "two"))
    async with Client.connect(endpoint, actor="ann") as client, at_work(first):
        mission = await client.submit(spec(item("a")))
        await until(lambda: seen.count(("one", "step")) > 3, description="it works")
        async with at_work(second):
            first.stop()
            assert await mission.results(timeout=30) == {"a": [2, True]}
    assert seen.count(("one", "stopped")) == 1
    assert seen.index(("one", "out")) < seen.index(("two", "step")), "the slot is free when the thread has unwound"
    assert seen.count(("one", "step")) + seen.count(("two", "step")) == 40
    assert not await events(endpoint, K.FAILED)


async def test_a_plain_function_whose_lease_is_lost_is_told_and_ends_at_its_next_checkpoint(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, release: threading.Event
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.05)
    endpoint = FakeEndpoint()
    told: list[object] = []
    begun = threading.Event()

    @handler("work")
    def work(context: SyncContext, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        if context.attempt == 1:
            begun.set()
            release.wait(10)
            told.append(context.cancelled)
            try:
                context.checkpoint({"late": True})
            except Exception as error:  # Stopped is none
                told.append(error)
            finally:
                told.append("out")
        assert context.checkpoint_state == {}
        return context.attempt

    worker = a_worker(endpoint, work, ttl_s=0.5)
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(spec(item("a")))
        await until(begun.is_set, description="it works")
        async with a_store(endpoint) as store:
            session = Session(AgentId("one"), 1, 500, (Capability("work"),), store.replid)
            await Authority(store).close_session(session)
            assert await mission.results(timeout=30) == {"a": 2}
        assert worker.handlers_left == 1
        assert "m/a: its thread is given up, 1 so far" in caplog.text
        release.set()
        await until(lambda: worker.handlers_left == 0, description="the thread has ended")
    assert told == [True, "out"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_run_that_takes_longer_than_its_time_out_fails_with_it_and_the_slot_is_free(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, release: threading.Event
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.05)
    endpoint = FakeEndpoint()
    stopped: list[str] = []

    @handler("work")
    async def work(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise ValueError("as it unwinds") from None

    @handler("work")
    def work_sync(context: SyncContext, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        try:
            release.wait(10)
            context.checkpoint({"late": True})
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    @handler("other")
    async def other(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return 7

    worker = a_worker(endpoint, work if kind == "async" else work_sync, other)
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client, a_store(endpoint) as store:
        began_s = anyio.current_time()
        await submit_timed(store, 0.2, item("a"))

        async def failed() -> list[dict[str, Any]]:
            return await failures(endpoint)

        (evidence, *_) = await until(failed, description="the failure is recorded", timeout_s=5)
        assert 0.2 <= anyio.current_time() - began_s < 2.0
        assert evidence["type"] == "TimeoutError"
        assert evidence["text"] == "it took longer than its time-out of 0.2 s"
        assert evidence["retryable"] is True
        quick = await client.submit(spec(item("b", "other"), id="n"))
        assert await quick.results(timeout=30) == {"b": 7}
        release.set()
        await until(lambda: stopped, description="the handler was told")
        await until(lambda: worker.handlers_left == 0, description="no thread is left")
    assert stopped[0] == ("CancelledError" if kind == "async" else "Stopped")
    warned = [line for line in caplog.text.splitlines() if "m/a: failed after 0.2" in line]
    assert len(warned) >= 1
    assert f"(tried again): {__file__}" in warned[0]
    assert not await events(endpoint, K.PROGRESS_SAVED), "a run that is over saves nothing"


async def test_a_run_within_its_time_out_knows_nothing_of_it() -> None:
    endpoint = FakeEndpoint()

    @handler("work")
    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        await context.checkpoint({"a": 1})
        return 1

    async with at_work(a_worker(endpoint, work)), a_store(endpoint) as store:
        group = await submit_timed(store, 30.0, item("a"))
        await store.wait_finished(group, timeout_s=5)
        (view,) = await store.items(group, bodies=True)
    assert view.state is ItemState.VERIFIED


async def test_no_more_threads_are_given_up_than_two_a_slot(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, release: threading.Event
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.01)
    endpoint = FakeEndpoint()
    begun: list[str] = []

    @handler("work")
    def work(context: SyncContext, inputs: dict[str, Any]) -> None:
        begun.append(context.item)
        if inputs.get("stuck"):
            release.wait(20)

    worker = a_worker(endpoint, work, slots=1, ttl_s=5)
    async with at_work(worker), a_store(endpoint) as store:
        stuck = [item(f"a{n}", inputs={"stuck": True}) for n in range(2)]
        await submit_timed(store, 0.1, *stuck, item("b", urgency="routine"))
        await until(
            lambda: "wait" in caplog.text and "will not end" in caplog.text, description="it waits, and says so"
        )
        assert sorted(begun[:2]) == ["a0", "a1"]
        assert len(begun) == 2
        assert worker.handlers_left == 2
        release.set()
        await until(lambda: "b" in begun, description="it goes on")


async def test_a_plain_function_that_returns_a_coroutine_is_told_what_to_write() -> None:
    endpoint = FakeEndpoint()

    async def inner() -> int:
        return 1

    @handler("work")
    def work(context: SyncContext, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        return inner()

    async with at_work(a_worker(endpoint, work)), Client.connect(endpoint, actor="ann") as client:
        await client.submit(spec(item("a")))

        async def failed() -> list[dict[str, Any]]:
            return await failures(endpoint)

        (evidence, *_) = await until(failed, description="the failure is recorded")
    assert "returned a coroutine: write `async def`" in evidence["text"]


async def test_inputs_that_do_not_fit_fail_for_good_before_the_handler_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = FakeEndpoint()
    called: list[str] = []

    @handler("work", inputs=Files)
    async def work(context: Context, inputs: Files) -> None:  # noqa: ARG001
        called.append(context.item)

    @handler("odd")
    async def odd(context: Context, inputs: dict[str, Any]) -> object:  # noqa: ARG001
        return object()

    async with at_work(a_worker(endpoint, work, odd)), Client.connect(endpoint, actor="ann") as client:
        await client.submit(spec(item("a", inputs={"names": 3}), item("b", "odd")))

        async def failed() -> bool:
            return len(await failures(endpoint)) == 2

        await until(failed, description="both are recorded")
    found = {evidence["type"]: evidence for evidence in await failures(endpoint)}
    assert found["Misfit"]["text"] == "inputs of work: names: 3: must be a valid list"
    assert found["Misfit"]["retryable"] is False
    assert found["Misuse"]["retryable"] is False
    assert "result: a value of type object cannot be stored" in found["Misuse"]["text"]
    assert called == []
    assert "failed after" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_failed_run_is_one_warning_and_its_traceback_stands_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = FakeEndpoint()

    @handler("work")
    async def work(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
        raise ValueError("first\nsecond \x1b[31m")

    with caplog.at_level(logging.DEBUG, "treadle.worker"):
        async with at_work(a_worker(endpoint, work)), Client.connect(endpoint, actor="ann") as client:
            await client.submit(spec(item("a")))
            await until(lambda: "failed after" in caplog.text, description="it has failed")
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    line = next(line for line in warned if line.startswith("m/a: "))
    assert line.startswith("m/a: failed after 0.")
    assert line.endswith(": ValueError: first | second \\x1b[31m")
    assert f"{__file__}:" in line
    shown = [record for record in caplog.records if "Traceback (most recent call last)" in record.getMessage()]
    assert {record.levelno for record in shown} == {logging.DEBUG}


async def test_the_end_of_the_grace_says_whom_it_cuts_off(
    caplog: pytest.LogCaptureFixture, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errand, "UNWIND_S", 0.05)
    endpoint = FakeEndpoint()
    begun: list[str] = []

    @handler("work")
    def work(context: SyncContext, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        begun.append(context.item)
        release.wait(10)
        return 1

    worker = a_worker(endpoint, work, slots=2, grace_s=0.2)
    async with Client.connect(endpoint, actor="ann") as client:
        async with at_work(worker):
            await client.submit(spec(item("a"), item("b")))
            await until(lambda: len(begun) == 2, description="both run")
        assert "the grace of 0.2 s is over, cut off: m/a, m/b" in caplog.text
        assert len(await events(endpoint, K.RELEASED)) == 2
    assert worker.handlers_left == 2
