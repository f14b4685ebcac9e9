"""The image's own entrypoint as process 1 (BR-25): it hears SIGTERM, gives its work back, reaps, and no shell is in between.

A container is stood in for by a namespace of processes, and what is run there is read from the Dockerfile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from draining import drain
from fleet import TESTS, Desk, Fleet, Member, chain, sleeper, until
from house.deployed import argv_of
from house.reading import ROOT
from servers import LOUD
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind, ItemState

pytestmark = pytest.mark.slow

K = EventKind
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
MARGIN_S = 1.5
"""For the process itself to end, on a busy machine."""
HANDLERS = f"""
import sys

import anyio

sys.path.append({str(TESTS)!r})
from fleet_handlers import chain, note, sleep
from treadle.worker import handler


@handler("pid1.program")
async def program(context, inputs):
    child = await anyio.open_process(["sleep", "3600"])
    try:
        async with child:
            note(context, "begin")
            await child.wait()
    finally:
        note(context, "reaped", status=child.returncode)


@handler("pid1.orphans")
async def orphans(context, inputs):
    for _ in range(5):
        await anyio.run_process(["sh", "-c", "sleep 0.05 & sleep 0.05 &"])
    note(context, "begin")
    await anyio.sleep(3600)


@handler("pid1.late_orphans")
async def late_orphans(context, inputs):
    note(context, "begin")
    while not await anyio.Path("go").exists():
        await anyio.sleep(0.02)
    for _ in range(5):
        await anyio.run_process(["sh", "-c", "sleep 0.05 & sleep 0.05 &"])
    note(context, "orphaned")
    await anyio.sleep(3600)
"""


@pytest.fixture(autouse=True)
def _can_make_a_namespace() -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip(f"{LOUD}no namespace of processes can be made here (Linux, as root), so no Worker ran as process 1")


@pytest.fixture
def worker(fleet: Fleet) -> Member:
    """The image's command, in its working folder, as process 1."""
    (fleet.folder / "handlers.py").write_text(HANDLERS)
    argv = argv_of((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    child, log = fleet.run([*NAMESPACE, *argv], PATH=path, TREADLE_SLOTS="2")
    member = Member("first", child, log)
    fleet.members.append(member)
    return member


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def first_of(worker: Member) -> int:
    """Process 1 of the namespace, as this machine numbers it."""
    [first] = children_of(worker.child.pid)
    return first


def below(pid: int) -> Iterator[int]:
    """A process and all below it; one that has just ended is passed over."""
    yield pid
    try:
        children = children_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from below(child)


def command_of(pid: int) -> list[str]:
    """Its words; [] of one that has ended and was not reaped."""
    return [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]


async def at_work(fleet: Fleet, desk: Desk, *work: WorkSpec) -> None:
    await fleet.ready()
    await desk.submit("m", *work)
    for item in work:
        await until(
            lambda item=item: fleet.lines(item.id, "begin"),  # type: ignore[misc]
            description=f"{item.id} runs",
            of=tuple(fleet.members),
        )


async def test_br_25_process_1_is_the_program_of_the_image_and_no_shell_is_beside_it(
    worker: Member, fleet: Fleet, desk: Desk
) -> None:
    await at_work(fleet, desk, chain("a", steps=100, step_s=0.05))
    every = [command_of(pid) for pid in below(first_of(worker))]
    entry, *rest = argv_of((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"))
    assert every
    for words in every:
        assert Path(words[0]).name.startswith("python")
        assert Path(words[1]).name == entry
        assert words[2:] == rest


async def test_br_25_a_term_gives_the_work_back_and_ends_within_the_grace(
    worker: Member, fleet: Fleet, desk: Desk
) -> None:
    """BR-25: behind a shell, or ignored by process 1, it would end by SIGKILL, and its leases would have to lapse."""
    await at_work(fleet, desk, chain("a", steps=1_000, step_s=0.05), sleeper("b", 3_600.0))
    began = time.monotonic()
    os.kill(first_of(worker), signal.SIGTERM)
    assert worker.exit_status(within_s=fleet.grace_s + MARGIN_S) == 0, worker.tail()
    assert time.monotonic() - began < fleet.grace_s + MARGIN_S
    assert len(await desk.of_kind("m", K.CHECKPOINTED, "a")) == 1
    assert len(await desk.of_kind("m", K.RELEASED, "b")) == 1
    assert await desk.of_kind("m", K.LAPSED) == []
    items = await desk.store.items(desk.client.mission("m").group)
    assert {item.state for item in items} <= {ItemState.OFFERED}


async def test_br_25_a_second_term_ends_it_at_once(worker: Member, fleet: Fleet, desk: Desk) -> None:
    await at_work(fleet, desk, sleeper("a", 3_600.0))
    os.kill(first_of(worker), signal.SIGTERM)
    await until(lambda: worker.said("stopping"), description="the first is heard", of=(worker,))
    began = time.monotonic()
    os.kill(first_of(worker), signal.SIGTERM)
    assert worker.exit_status(within_s=MARGIN_S) == 128 + signal.SIGTERM, worker.tail()
    assert time.monotonic() - began < MARGIN_S < fleet.grace_s


async def test_a_drain_said_in_its_container_gives_the_work_back_and_ends_it(
    worker: Member, fleet: Fleet, desk: Desk
) -> None:
    """As `docker exec`, and a preStop hook: what says it is in the namespace, and neither process 1 nor below it."""
    await at_work(fleet, desk, chain("a", steps=1_000, step_s=0.05), sleeper("b", 3_600.0))
    said = drain(fleet, "--all")
    assert (said.status, said.stdout) == (0, "no Worker of this user runs on this machine\n"), (
        "from outside it is nobody"
    )
    inside = ("nsenter", "--target", str(first_of(worker)), "--pid", "--mount", "--")
    said = drain(fleet, "--all", through=inside)
    assert said.status == 0, said
    assert "asked to drain" in said.stdout
    assert worker.exit_status(within_s=fleet.grace_s + MARGIN_S) == 0, worker.tail()
    assert len(await desk.of_kind("m", K.CHECKPOINTED, "a")) == 1
    assert len(await desk.of_kind("m", K.RELEASED, "b")) == 1
    assert await desk.of_kind("m", K.LAPSED) == []
    assert not list(fleet.folder.glob("treadle-workers/*"))


async def test_orphans_that_are_left_while_it_drains_are_reaped_too(worker: Member, fleet: Fleet, desk: Desk) -> None:
    """Process 1 goes on reaping between the signal and the end of the grace."""
    await at_work(fleet, desk, WorkSpec(id="a", capability="pid1.late_orphans"))
    first = first_of(worker)
    os.kill(first, signal.SIGTERM)
    await until(lambda: worker.said("stopping:"), description="it drains", of=(worker,))
    (fleet.folder / "go").touch()
    await until(lambda: fleet.lines("a", "orphaned"), description="it leaves some behind while it drains", of=(worker,))

    def left() -> list[int]:
        return [pid for pid in below(first) if not (command_of(pid) or ["?"])[0].startswith(("/", "python"))]

    await until(lambda: left() == [], description="no orphan and no zombie is left", timeout_s=5)
    assert worker.child.poll() is None, "it still drains"
    assert worker.exit_status(within_s=fleet.grace_s + MARGIN_S) == 0, worker.tail()


async def test_a_term_that_comes_before_the_worker_is_up_is_not_lost(worker: Member) -> None:
    """As `docker stop` right behind `docker start`: process 1 must not ignore what the program has no handler for yet."""
    await until(lambda: children_of(worker.child.pid), description="process 1 is there")
    first = first_of(worker)
    await until(lambda: len(list(below(first))) > 1, description="its program is there", of=(worker,))
    os.kill(first, signal.SIGTERM)
    assert worker.exit_status(within_s=15) in (0, 128 + signal.SIGTERM), worker.tail()


async def test_a_ctrl_c_that_is_forwarded_is_a_term(worker: Member, fleet: Fleet, desk: Desk) -> None:
    """As `docker kill --signal INT`; a terminal's own reaches the program by itself."""
    await at_work(fleet, desk, chain("a", steps=1_000, step_s=0.05))
    os.kill(first_of(worker), signal.SIGINT)
    assert worker.exit_status(within_s=fleet.grace_s + MARGIN_S) == 0, worker.tail()
    assert len(await desk.of_kind("m", K.CHECKPOINTED, "a")) == 1
    assert await desk.of_kind("m", K.LAPSED) == []


async def test_what_handlers_start_is_ended_and_reaped(worker: Member, fleet: Fleet, desk: Desk) -> None:
    await at_work(fleet, desk, WorkSpec(id="a", capability="pid1.program"))
    os.kill(first_of(worker), signal.SIGTERM)
    assert worker.exit_status(within_s=fleet.grace_s + MARGIN_S) == 0, worker.tail()
    [reaped] = fleet.lines("a", "reaped")
    assert reaped.more["status"] == -signal.SIGKILL


async def test_orphans_are_reaped_by_process_1(worker: Member, fleet: Fleet, desk: Desk) -> None:
    await at_work(fleet, desk, WorkSpec(id="a", capability="pid1.orphans"))
    first = first_of(worker)

    def dead_or_strange() -> list[int]:
        return [pid for pid in below(first) if not (command_of(pid) or ["?"])[0].startswith(("/", "python"))]

    await until(lambda: dead_or_strange() == [], description="no orphan and no zombie is left", timeout_s=5)


async def test_a_killed_worker_ends_its_container(worker: Member, fleet: Fleet, desk: Desk) -> None:
    """Else process 1 would wait on, and nothing would start the container again."""
    await at_work(fleet, desk, sleeper("a", 3_600.0))
    [program] = children_of(first_of(worker))
    os.kill(program, signal.SIGKILL)
    assert worker.exit_status(within_s=MARGIN_S) == 128 + signal.SIGKILL
