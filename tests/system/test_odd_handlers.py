"""Handlers that catch their cancellation, end the event loop or fork: the Worker's own end is in order all the same."""

from __future__ import annotations

import signal
import time
from typing import Any

import anyio
import psutil
import pytest
from fleet import Desk, Fleet, Member, sleeper, until
from treadle.coordinator import JobFailed, WorkSpec
from treadle.shared.model import EventKind, ItemState

pytestmark = pytest.mark.slow

K = EventKind
ODD = ("--handlers", "odd_handlers")


def odd(id: str, kind: str, *, retry: int = 0, timeout_s: float | None = None, **inputs: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=kind, inputs=inputs, retry=retry, timeout_s=timeout_s)


async def running(fleet: Fleet, *items: str) -> None:
    for item in items:
        await until(lambda item=item: fleet.lines(item, "begin"), description=f"{item} runs", of=tuple(fleet.members))  # type: ignore[misc]


async def test_a_handler_that_catches_its_cancellation_is_over_at_its_time_out_and_ends_with_its_worker(
    fleet: Fleet, desk: Desk
) -> None:
    fleet.grace_s = 1.0
    worker = fleet.start(slots=1, arguments=ODD)
    await fleet.ready()
    mission = await desk.submit(
        "m", odd("a", "fleet.stubborn", timeout_s=0.5), sleeper("b", 0.1), odd("c", "fleet.stubborn")
    )
    await until(lambda: worker.said("m/a: failed after"), description="its time-out is recorded", of=(worker,))
    assert worker.said("m/a: its task is given up, 1 so far")
    assert worker.said("TimeoutError: it took longer than its time-out of 0.5 s")
    assert len(fleet.lines("a", "cancelled")) >= 1
    await running(fleet, "c")
    process = psutil.Process(worker.child.pid)
    process.cpu_percent()
    await anyio.sleep(1.0)
    assert process.cpu_percent() < 50, "what is given up is not cancelled anew in every round of the loop"
    began_s = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=10) == 0, worker.tail()
    assert time.monotonic() - began_s < fleet.grace_s + 1.0 + 2.5
    assert worker.said("the grace of 1 s is over, cut off: m/c")
    assert worker.said("m/c: given back at its last checkpoint")
    assert worker.said("ended without 2 handlers that would not end")
    states = {str(view.item): view.state for view in await desk.store.items(mission.group)}
    assert states["c"] == ItemState.OFFERED
    assert not await desk.of_kind("m", K.LAPSED)


async def test_a_task_that_was_given_up_and_ends_later_is_said_and_not_left_behind(fleet: Fleet, desk: Desk) -> None:
    worker = fleet.start(arguments=ODD)
    await fleet.ready()
    await desk.submit("m", odd("a", "odd.unwinds", timeout_s=0.3, unwind_s=2.0))
    await until(lambda: worker.said("the task that was given up has ended"), description="it ended", of=(worker,))
    assert len(fleet.lines("a", "out")) == 1
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=5) == 0
    assert not worker.said("ended without")


async def test_a_thread_that_an_async_handler_waited_for_does_not_keep_its_worker(fleet: Fleet, desk: Desk) -> None:
    fleet.grace_s = 0.5
    worker = fleet.start(arguments=ODD)
    await fleet.ready()
    await desk.submit("m", odd("a", "odd.leaves_a_thread"))
    await running(fleet, "a")
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=fleet.grace_s + 5) == 0, worker.tail()
    assert len(await desk.of_kind("m", K.RELEASED)) == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("awaited exit", "odd_handlers.py:[0-9]+: SystemExit: 7"),
        ("awaited interrupt", "odd_handlers.py:[0-9]+: KeyboardInterrupt"),
        ("task that exits", "odd_handlers.py:[0-9]+: SystemExit: 7"),
        ("loop.stop()", r"loop\.stop\(\)"),
    ],
)
async def test_a_handler_that_ends_the_event_loop_ends_its_worker_in_order_and_the_work_goes_on_at_once(
    how: str, said: str, fleet: Fleet, desk: Desk
) -> None:
    fleet.ttl_s = 10.0
    first = fleet.start("one", arguments=ODD)
    await fleet.ready()
    await desk.submit("n", sleeper("b", 3_600.0, again_s=0.0))
    await running(fleet, "b")
    second = fleet.start("two", arguments=ODD)
    await fleet.ready(second)
    first_only = odd("a", "odd.breaks", retry=1, how=how)
    second.pause()
    mission = await desk.submit("m", first_only)
    await running(fleet, "a")
    second.resume()
    assert first.exit_status(within_s=5) == 1, first.tail()
    assert first.said(rf"a handler ended the event loop \(.*{said}.*\); running: .*m/a.* ends with status 1")
    assert "Traceback" not in first.log_text()
    assert await mission.results(timeout=30) == {"a": 2}
    await until(lambda: fleet.lines("b", "begin", worker="two"), description="b went back too", of=(second,))
    assert not await desk.of_kind("m", K.LAPSED)
    assert not await desk.of_kind("n", K.LAPSED)
    assert len(await desk.of_kind("m", K.FAILED)) == how.startswith("awaited")


@pytest.mark.parametrize("how", ["closed files", "cancelled tasks"])
async def test_a_handler_that_takes_the_loop_apart_ends_its_worker_and_the_work_goes_on_when_its_leases_are_over(
    how: str, fleet: Fleet, desk: Desk
) -> None:
    first = fleet.start("one", arguments=ODD)
    await fleet.ready()
    mission = await desk.submit("m", odd("a", "odd.breaks", how=how))
    await running(fleet, "a")
    assert first.exit_status(within_s=10) == 1, first.tail()
    assert first.said("items go on elsewhere when their leases are over")
    assert "Traceback" not in first.log_text()
    fleet.start("two", arguments=ODD)
    assert await mission.results(timeout=30) == {"a": 2}


def alone(worker: Member) -> bool:
    """Whether no process but the Worker's own is left of it."""
    return all(child.status() == psutil.STATUS_ZOMBIE for child in psutil.Process(worker.child.pid).children())


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("odd.forks", "returns"),
        ("odd.forks", "awaits"),
        ("odd.forks", "raises"),
        ("odd.forks", "saves"),
        ("odd.forks_in_a_task", "returns"),
        ("odd.forks_in_a_thread", "returns"),
        ("odd.forks_in_a_thread", "saves"),
    ],
)
async def test_a_forked_child_that_comes_back_to_the_worker_ends_there(
    kind: str, how: str, fleet: Fleet, desk: Desk
) -> None:
    worker = fleet.start(arguments=ODD)
    await fleet.ready()
    mission = await desk.submit("m", odd("a", kind, how=how))
    results = await mission.results(timeout=30)
    (line,) = fleet.lines("a", "forked")
    assert results == {"a": line.more["child"]}
    await until(lambda: alone(worker), description="the child has ended", of=(worker,))
    assert worker.said(f"process {line.more['child']}, forked by a handler of process {worker.child.pid}, came back")
    assert [event.by for event in await desk.of_kind("m", K.SUBMITTED)] == ["w1@1"]
    assert not await desk.of_kind("m", K.PROGRESS_SAVED)
    again = await desk.submit("n", sleeper("b", 0.0))
    assert set(await again.results(timeout=30)) == {"b"}
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=5) == 0, worker.tail()


async def test_a_forked_child_obeys_a_sigterm(fleet: Fleet, desk: Desk) -> None:
    worker = fleet.start(arguments=ODD)
    await fleet.ready()
    mission = await desk.submit("m", odd("a", "odd.obeys"))
    assert await mission.results(timeout=30) == {"a": signal.SIGTERM}
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=5) == 0, worker.tail()


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("large result", "Misuse", "result"),
        ("large checkpoint", "Misuse", "checkpoint"),
        ("circle", "Misuse", "result"),
        ("set", "Misuse", r"result: a value of type set"),
        ("nan", "", ""),
        ("many checkpoints", "", ""),
        ("many checkpoints at once", "", ""),
        ("deep recursion", "RecursionError", "maximum recursion depth"),
    ],
)
async def test_odd_values_are_their_items_failure_or_result_and_the_worker_goes_on(
    what: str, kind: str, text: str, fleet: Fleet, desk: Desk
) -> None:
    worker = fleet.start(arguments=ODD)
    await fleet.ready()
    job = await desk.client.enqueue("odd.values", {"what": what}, retry=0)
    if kind:
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=60)
        assert kind in str(failed.value)
        assert text in str(failed.value)
        assert "odd_handlers.py" in str(failed.value)
    else:
        await job.result(timeout=60)
    other = await desk.submit("n", sleeper("b", 0.0))
    await other.results(timeout=30)
    assert len(worker.log_text()) < 20_000
