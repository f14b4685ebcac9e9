"""Handlers as nobody should write them, in the Worker's own process: their items' outcome, the Worker's survival, nothing left.

What ends the process ends its Worker; then its items go on elsewhere, and the item that did it is counted against it.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from fleet import Desk, Fleet, Member, sleeper, until
from treadle.coordinator import Job, JobFailed, Retry
from treadle.shared.model import EventKind

pytestmark = pytest.mark.slow

K = EventKind
BAD = ("--handlers", "bad_handlers")
LIMITED = """
import os, resource
from treadle.worker import cli
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
cli.main()
"""
"""A Worker that can open 512 files and have 2 GiB, whose standard output nobody keeps."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a handler does, and what comes of it."""

    how: str
    fails: str = ""
    """How its failure reads; '' where it gives a result."""
    ends: int | None = None
    """How its Worker's process ends by it; None where it lives on."""
    for_s: float = 0.0
    timeout_s: float | None = None
    may_be_lost: bool = False
    """Whether it may hit the Worker's own threads as well: then its session is over, and a new one runs the item again."""
    only: str = ""
    """In a task or in a thread alone."""


CASES = [
    Case("ignores its cancellation", fails=r"TimeoutError: it took longer than its time-out of 0\.3 s", timeout_s=0.3),
    Case("forks children and exits", fails=r"SystemExit: 3 \(.*bad_handlers\.py:\d+\)"),
    Case("writes 100 MB to stdout"),
    Case(
        "returns what cannot be stored",
        fails=r"Misuse: result\.deep\[1\]\.er: a value of type bad_handlers\.Odd cannot be stored",
    ),
    Case("raises a message of 10 MB", fails=r"ValueError: m{100,}.*bad_handlers\.py:\d+\)"),
    Case("raises what cannot be printed", fails=r"ValueError: \\x1b\[2J\\ud800\\x00 \\\S+ \(.*bad_handlers\.py:\d+\)"),
    Case("raises what cannot say itself", fails=r"_MuteError: \(its text cannot be shown\) \(.*bad_handlers\.py:\d+\)"),
    Case("opens 10,000 files", fails=r"OSError: \[Errno 24\] Too many open files"),
    Case("sleeps", for_s=2.5, only="thread"),
    Case("sleeps on the loop", for_s=2.5, only="task"),
    Case("allocates for ever", fails=r"MemoryError", may_be_lost=True),
    Case("ends the process", ends=1),
    Case("is killed", ends=-signal.SIGKILL),
]


@pytest.mark.parametrize("runtime", ["task", "thread"])
@pytest.mark.parametrize("case", CASES, ids=[case.how for case in CASES])
async def test_a_bad_handler_is_its_items_outcome_and_nothing_of_it_is_left(
    case: Case, runtime: str, fleet: Fleet, desk: Desk
) -> None:
    if case.only not in ("", runtime):
        pytest.skip(f"in a {case.only} alone")
    worker = fleet.start("one", program=("-c", LIMITED), arguments=BAD)
    await fleet.ready()
    files = open_files(worker)
    retry = Retry(retries=1, first_s=0.05) if case.ends is not None else 0
    inputs = {"how": case.how, "for_s": case.for_s}
    job = await desk.client.enqueue(f"bad.{runtime}", inputs, retry=retry, timeout_s=case.timeout_s)
    if case.ends is not None:
        assert worker.exit_status(within_s=10) == case.ends % 256 if case.ends > 0 else case.ends
        worker = fleet.start("two", program=("-c", LIMITED), arguments=BAD)
        await fleet.ready(worker)
        files = 0
    if case.may_be_lost and await has_come_back(job):
        assert worker.said("lease lost|a new session is opened"), worker.tail()
    elif case.fails:
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=20)
        said = str(failed.value)
        assert re.search(case.fails, said), said[:1_000]
        assert len(said) < 10_000
        assert said.isascii() or said.isprintable()
        assert "\x1b" not in said
    else:
        assert await job.result(timeout=20) == (1 if case.ends is None else 2)
    other = await desk.submit("n", sleeper("b", 0.0))
    assert set(await other.results(timeout=30)) == {"b"}, "the slot is free, and the Worker works"
    assert len(worker.log_text()) < 20_000
    assert "Traceback" not in worker.log_text()
    (fleet.folder / "go").touch()
    await until(lambda: not left_of(worker), description="no process of it is left", of=(worker,))
    if files:
        await until(
            lambda: open_files(worker) <= files + 2,
            description="its files are closed",
            of=(worker,),
        )
    worker.signal(signal.SIGTERM)
    assert worker.exit_status(within_s=10) == 0, worker.tail()
    if case.ends is not None:
        assert (await job.view()).lost_runs == 1, "counted by the store, since its Worker did not live to"


async def has_come_back(job: Job[Any]) -> bool:
    """Whether its second attempt gave a result."""
    with suppress(JobFailed):
        return bool(await job.result(timeout=20) == 2)
    return False


def open_files(worker: Member) -> int:
    return len(list(Path(f"/proc/{worker.child.pid}/fd").iterdir()))


def left_of(worker: Member) -> list[psutil.Process]:
    """Its children that run; one that has ended and that nobody waited for is its handler's to reap."""
    children = psutil.Process(worker.child.pid).children(recursive=True)
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


async def test_a_worker_whose_handler_ends_the_process_leaves_no_folder_behind(fleet: Fleet, desk: Desk) -> None:
    """But the record by which it is drained, which the next that looks removes."""
    worker = fleet.start("one", arguments=BAD)
    await fleet.ready()
    before = temporary()
    await desk.client.enqueue("bad.task", {"how": "is killed"}, retry=0)
    assert worker.exit_status(within_s=10) == -signal.SIGKILL
    assert temporary() <= before


def temporary() -> set[str]:
    return {path.name for path in Path(os.environ["TMPDIR"]).iterdir()}
