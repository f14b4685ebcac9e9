"""A background task of a Worker that breaks is never only gone: the process ends, not well, and its work goes on (BR-89)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from fleet import TESTS, Desk, Fleet, sleeper
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, renewal
from treadle.worker.shift import Shift
from treadle.worker.watchdog import Watchdog

BROKEN = "this task broke"
TTL_S = 0.4
TASKS: dict[str, tuple[object, str]] = {
    "what hears doorbells": (Shift, "_listen"),
    "what sees a blocked loop": (Watchdog, "watch"),
    "what hears the order to stop": (Shift, "_ring_on_stop"),
    "the grace": (Shift, "_grace"),
    "a run": (Shift, "_run"),
    "the loop itself": (Shift, "_round"),
    "renewals": (Shift, "_renew"),
    "the thread of renewals": (renewal, "renew_due"),
}


def breaks_once(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> list[str]:
    """Have it raise when it is called first, and do what it does from then on; what it raised, once it did."""
    raised: list[str] = []
    healthy: Callable[..., Any] = getattr(where, name)

    def broken(*args: Any, **named: Any) -> Any:
        if raised:
            return healthy(*args, **named)
        raised.append(name)
        if where is renewal:
            raise RuntimeError(BROKEN)

        async def breaks() -> None:
            raise RuntimeError(BROKEN)

        return breaks()

    monkeypatch.setattr(where, name, broken)
    return raised


@pytest.mark.parametrize("task", TASKS)
async def test_br_89_each_background_task_that_raises_ends_its_worker_and_its_work_goes_on_elsewhere(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is looked at is read from the store when it is asked for; in part, since no metrics are exported yet."""
    endpoint, (where, name) = FakeEndpoint(), TASKS[task]
    begun = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        begun.set()
        if context.worker == "one":
            await anyio.sleep(30)
        return context.worker

    raised = breaks_once(monkeypatch, where, name)
    mode = "task" if name == "_renew" else "thread"
    worker = a_worker(endpoint, ttl_s=TTL_S, grace_s=0.1, renew_in=mode, work=work)

    async def stop_in_the_middle() -> None:
        await begun.wait()
        worker.stop()

    async with Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")]))
        with (
            anyio.fail_after(10),
            pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match=BROKEN), flatten_subgroups=True),
        ):
            async with anyio.create_task_group() as tasks:
                if name == "_grace":
                    tasks.start_soon(stop_in_the_middle)
                await worker.run()
        assert raised == [name]
        async with at_work(a_worker(endpoint, "two", ttl_s=TTL_S, work=work)):
            assert await mission.results(timeout=30) == {"a": "two"}


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from treadle.worker import cli, renewal, shift, watchdog

def broken(*given, **named):
    raise RuntimeError("this task broke")

{where}.{name} = broken
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["watchdog.Watchdog.watch", "shift.Shift._listen", "renewal.renew_due"])
async def test_br_89_the_process_of_a_worker_whose_background_task_broke_exits_with_an_error_and_says_why(
    broken: str, fleet: Fleet, desk: Desk
) -> None:
    where, _, name = broken.rpartition(".")
    mission = await desk.submit("m", sleeper("a", 1.0))
    member = fleet.start("one", program=("-c", PROGRAM.format(tests=str(TESTS), where=where, name=name)))
    assert member.exit_status(within_s=15) == 1
    assert member.said("RuntimeError: this task broke")
    fleet.start("two")
    assert set(await mission.results(timeout=20)) == {"a"}, fleet.tell()
    assert {line.worker for line in fleet.lines("a", "return")} == {"two"}
