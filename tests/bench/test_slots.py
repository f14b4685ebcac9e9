"""What it costs to begin a handler, from its run being there to its first line: in a task, a thread, a process.

A slot is free again when its run has unwound: `again` is the whole, from one run to the next. What a whole run costs beside
the store, from its grant to its end asked for, is CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from asking import Asked, given_to
from bench import starts
from bench.measuring import Results, percentile
from treadle.shared import codec
from treadle.shared.model import AgentId, Grant, GroupId, ItemId, Lease, LeaseId
from treadle.shared.progress import Said
from treadle.shared.store import Operation, Outcome
from treadle.worker.handlers import Handler
from treadle.worker.loading import collect, settle
from treadle.worker.slots.contexts import LoopContext, ThreadContext
from treadle.worker.slots.errand import Errand
from treadle.worker.slots.occupancy import Occupancy
from treadle.worker.slots.pool import Pool
from treadle.worker.slots.processes import ProcessErrand
from treadle.worker.slots.run import Run
from treadle.worker.slots.slot import carry_out
from treadle.worker.slots.tasks import TaskErrand
from treadle.worker.slots.threads import ThreadErrand
from treadle.worker.slots.workshop import Workshop

WARM, COLD, TASKS = 200, 10, 2_000
NEVER_MS = 1 << 53


GIVEN = given_to(i=1)
GROUP = GroupId("bench")


def handlers(runtime: str) -> dict[str, Handler]:
    found = settle(collect(starts), "process" if runtime == "process" else "task")
    return {str(name): one for name, one in found.items()}


def row(delays: list[float], whole: list[float]) -> dict[str, float]:
    return {
        "p25 us": 1e6 * percentile(delays, 0.25),
        "p50 us": 1e6 * percentile(delays, 0.5),
        "p95 us": 1e6 * percentile(delays, 0.95),
        "again p50 us": 1e6 * percentile(whole, 0.5),
    }


async def test_a_start_in_a_task_or_a_thread(results: Results, rounds: range, scaled: Callable[[int], int]) -> None:
    occupancy, found = Occupancy(1), handlers("task")
    limiter = await occupancy.admit("bench")
    for _ in rounds:
        for name in ("starts.loop", "starts.thread"):
            delays: list[float] = []
            whole: list[float] = []
            for _ in range(scaled(TASKS)):
                began_s = time.monotonic()
                errand: Errand
                if found[name].is_sync:
                    call = partial(found[name].function, ThreadContext(GIVEN, Asked()), GIVEN.inputs)
                    errand = ThreadErrand(occupancy, "bench", call, limiter)
                else:
                    call = partial(found[name].function, LoopContext(GIVEN, Asked()), GIVEN.inputs)
                    errand = TaskErrand(occupancy, "bench", call)
                delays.append(await errand.run() - began_s)
                await errand.unwound()
                whole.append(time.monotonic() - began_s)
            results.add(f"slot start, {'thread' if found[name].is_sync else 'task'}", row(delays, whole))


class Desk:
    """Takes every end of a run."""

    def __init__(self) -> None:
        self.workshop = Workshop(Occupancy(1))

    async def ask(self, _partition: int, _operation: Operation) -> Outcome:
        return Outcome("OK")

    def closing(self, _lease: Lease) -> None: ...

    def progress(self, _run: Run, _said: Said) -> None: ...


class NoBodies:
    async def read(self, _partition: int, wanted: list[tuple[GroupId, ItemId, str]]) -> list[bytes | None]:
        raise AssertionError(wanted)


async def test_a_whole_run_of_a_no_op(results: Results, rounds: range, scaled: Callable[[int], int]) -> None:
    handler, runs, agent = handlers("task")["starts.loop"], scaled(TASKS), AgentId("bench-1")
    inputs = codec.pack({"i": 1}, field="inputs", limit=codec.PAYLOAD_MAX)
    items = [ItemId(f"i{number}") for number in range(runs)]
    leases = [Lease(LeaseId(item), GROUP, item, agent, 1, 1, 1, NEVER_MS, 1, "r") for item in items]
    grants = [
        Grant(0, GROUP, lease.item, handler.capability, 1, 1, NEVER_MS, 1, lease, 0, (), inputs, b"")
        for lease in leases
    ]
    for _ in rounds:
        desk = Desk()
        began_s = time.process_time()
        for grant, lease in zip(grants, leases, strict=True):
            await carry_out(Run(grant, lease, handler, desk), NoBodies())
        results.add("a whole run of a no-op", {"CPU us": 1e6 * (time.process_time() - began_s) / runs})


@pytest.mark.timeout(300)
async def test_a_start_in_a_process(
    results: Results, rounds: range, scaled: Callable[[int], int], tmp_path: Path
) -> None:
    found = handlers("process")["starts.loop"]
    for _ in rounds:
        for kind, runs in (("warm", scaled(WARM)), ("cold", scaled(COLD))):
            pool = Pool(1, [found.home], tmp_path)
            await pool.open()
            delays: list[float] = []
            whole: list[float] = []
            try:
                for number in range(runs + 1):
                    group = GROUP if kind == "warm" else GroupId(f"bench-{number}")
                    began_s = time.monotonic()
                    taken = await pool.take(group, found.capability)
                    errand = ProcessErrand(pool, taken, group, found, GIVEN, Asked())
                    said = await errand.run()
                    started_s = codec.unpack(said.raw, what="result")
                    assert isinstance(started_s, float)
                    await errand.unwound()
                    if number or kind == "cold":
                        delays.append(started_s - began_s)
                        whole.append(time.monotonic() - began_s)
                    if kind == "cold":  # a new pool has neither a warm nor a spare one
                        await pool.close()
                        pool = Pool(1, [found.home], tmp_path)
                        await pool.open()
            finally:
                await pool.close()
            results.add(f"slot start, {kind} process", row(delays, whole))
