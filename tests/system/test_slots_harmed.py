"""Slots whose Worker, keeper, folder or disk somebody takes away: what is said, what goes on, and what is left (S16, S17)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Desk, Fleet, Member, until
from inside import at_work
from servers import wait_until
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared import keeper, processes
from treadle.shared.model import AgentId
from treadle.shared.processes import Identity, Life
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Worker
from treadle.worker.handlers import Runtime
from treadle.worker.loading import load

pytestmark = pytest.mark.slow

REPLACED = 4
PROCESS = ("--handlers", "slot_handlers")


def work(id: str, capability: str, **inputs: Any) -> WorkSpec:
    return WorkSpec(id=id, capability=capability, inputs=inputs, retry=0)


def roots(fleet: Fleet) -> set[Path]:
    """The folders of all Workers' slots."""
    return set(fleet.folder.parent.glob("treadle-slots-*"))


def marked(root: Path) -> set[int]:
    """The processes of all slots of the Worker whose root that is."""
    return keeper.marked(root.name.removeprefix("treadle-slots-") + ".")


def keeper_of(root: Path) -> int:
    """The keeper of that root, which has it as an argument; 0 where there is none."""
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = one.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(root).encode() in arguments and any(part.endswith(b"keeper.py") for part in arguments):
            return int(one.parent.name)
    return 0


def living(pids: set[int]) -> set[Identity]:
    found = {processes.identity(pid) for pid in pids}
    return {who for who in found if who is not None}


async def running(fleet: Fleet, worker: Member, item: str) -> None:
    await until(lambda: fleet.lines(item, "step"), description=f"{item} runs", of=(worker,))


async def test_a_newer_worker_of_the_name_harms_none_of_its_own_and_nothing_of_the_older_is_left(
    fleet: Fleet, desk: Desk
) -> None:
    """S16: both have processes, folders and a keeper on one host; the run goes on in a process of the newer."""
    older = fleet.start("one", arguments=PROCESS)
    await fleet.ready()
    mission = await desk.submit("m", work("a", "slot.steps", steps=200, pace_s=0.05, away=True))
    await running(fleet, older, "a")
    (root,) = roots(fleet)
    had = living(marked(root))
    first = fleet.lines("a", "begin")[0]
    assert {first.pid, first.more["child"]} <= {who.pid for who in had}
    newer = fleet.start("one", arguments=PROCESS)
    await fleet.ready(newer)
    assert older.exit_status(within_s=10) == REPLACED, older.tail()
    await until(lambda: len(fleet.lines("a", "begin")) > 1, description="it runs again", of=(newer,))
    wait_until(lambda: not root.exists() and not keeper_of(root), description="its folder and its keeper are gone")
    assert {processes.life_of(who) for who in had} == {Life.GONE}
    (other,) = roots(fleet)
    second = fleet.lines("a", "begin")[1]
    assert {second.pid, second.more["child"]} <= marked(other)
    assert keeper_of(other)
    assert await mission.results(timeout=60) == {"a": 200}
    steps = [line.more["step"] for line in fleet.lines("a", "step")]
    assert len(set(steps)) == 200
    newer.signal(signal.SIGTERM)
    assert newer.exit_status(within_s=10) == 0, newer.tail()
    assert roots(fleet) == set()


async def test_a_worker_whose_keeper_was_killed_has_another_and_leaves_nothing_when_it_is_killed_too(
    fleet: Fleet, desk: Desk
) -> None:
    worker = fleet.start(arguments=PROCESS)
    await fleet.ready()
    await desk.submit("m", work("a", "slot.steps", steps=1_000, pace_s=0.05, away=True))
    await running(fleet, worker, "a")
    (root,) = roots(fleet)
    first = keeper_of(root)
    os.kill(first, signal.SIGKILL)
    await until(lambda: worker.said(rf"keeper {first} has ended \(killed by signal 9"), description="it is said")
    await until(lambda: keeper_of(root) not in (0, first), description="another keeper", of=(worker,))
    had = living(marked(root) | {keeper_of(root)})
    worker.kill()
    wait_until(lambda: not root.exists(), description="its folder is removed")
    wait_until(lambda: {processes.life_of(who) for who in had} == {Life.GONE}, description="no process is left")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, with room for few files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    argv = [mount or "", "-t", "tmpfs", "-o", "size=64k,nr_inodes=8", "none", str(disk)]
    if mount is None or os.geteuid() != 0 or subprocess.run(argv, check=False, capture_output=True).returncode:
        pytest.skip("needs a mount of its own, so root")
    yield disk
    subprocess.run(["umount", "-R", str(disk)], check=True)


def read_only(disk: Path) -> None:
    """A mount of its own over the folder: the disk itself has a file that is open to be written."""
    slots = str(disk / "slots")
    subprocess.run(["mount", "--bind", slots, slots], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", slots], check=True)


def writable(disk: Path) -> None:
    subprocess.run(["umount", str(disk / "slots")], check=True)


def ten_files(disk: Path) -> None:
    for number in range(10):
        (disk / f"full-{number}").touch()


def filled(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        ten_files(disk)


HARMS: dict[str, tuple[Any, Any, str]] = {
    "it is full": (filled, lambda disk: [one.unlink() for one in disk.glob("full-*")], "[Errno 28] No space left"),
    "it is read-only": (read_only, writable, "[Errno 30] Read-only file system"),
    "its folder is removed": (
        lambda disk: shutil.rmtree(disk / "slots"),
        lambda disk: (disk / "slots").mkdir(),
        "[Errno 2] No such file or directory",
    ),
}


@pytest.mark.parametrize("runtime", ["task", "process"])
@pytest.mark.parametrize("harm", HARMS)
async def test_a_disk_that_has_no_room_for_a_slot_fails_the_item_by_name_and_the_worker_goes_on(
    small_disk: Path, runtime: Runtime, harm: str
) -> None:
    breaks, mends, said = HARMS[harm]
    base = small_disk / "slots"
    base.mkdir()
    endpoint = FakeEndpoint()
    worker = Worker(load("behaviours"), endpoint=endpoint, name=AgentId("one"), runtime=runtime, slot_dir=base)
    async with at_work(worker), Client.connect(endpoint, actor="ann") as client:

        async def run(name: str) -> dict[str, Any]:
            mission = await client.submit(MissionSpec(id=name, objective="o", work=[work("a", "both.folder")]))
            return await mission.results(timeout=30)

        assert (await run("before"))["a"]["files"] == []
        await until(lambda: not list(base.glob("*/run-*")), description="the run's folder is removed")
        breaks(small_disk)
        with pytest.raises(MissionFailed) as failed:
            await run("harmed")
        (failure,) = failed.value.failures
        assert said in failure.text
        assert f"'{base}/treadle-slots-" in failure.text
        mends(small_disk)
        assert (await run("after"))["a"]["files"] == []
    assert list(base.iterdir()) == []
