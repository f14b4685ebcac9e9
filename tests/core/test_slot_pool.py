"""The processes of a Worker: warm ones for their own kind only, spare ones for anybody, few, and all ended with it (S16)."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from asking import given_to
from fleet import until
from treadle.shared import keeper
from treadle.shared.model import Capability, GroupId
from treadle.shared.processes import Life, identity, life_of
from treadle.worker.slots import keeping, slot_process
from treadle.worker.slots import pool as pools
from treadle.worker.slots.frames import Kind, write
from treadle.worker.slots.given import parts_of
from treadle.worker.slots.pool import Pool
from treadle.worker.slots.slot_process import Ended, SlotProcess

pytestmark = pytest.mark.slow

ONE, OTHER, WORK = GroupId("one"), GroupId("other"), Capability("both.raises")
MODULE = "behaviours"


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    pool = Pool(1, [MODULE], tmp_path)
    yield pool
    await pool.close()
    assert left_in(tmp_path) == []


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def begin(process: SlotProcess, folder: Path, **inputs: Any) -> None:
    """What a run sends."""
    for name, raw in parts_of(given_to(**inputs)):
        process.say(Kind.BODY, name, raw)
    terms = {
        "capability": str(WORK),
        "program": {},
        "environment": {},
        "folder": str(folder),
        "limits": {},
        "level": 20,
    }
    process.say(Kind.BEGIN, terms)


async def done(pool: Pool, group: GroupId) -> SlotProcess:
    """One run, and its process given back."""
    process, folder = await pool.take(group, WORK)
    begin(process, folder, how="x")
    assert (await process.next(Kind.END)).fields[0] == "result"
    await pool.give_back(process, group, WORK)
    await pool.remove(folder)
    return process


async def test_a_warm_process_is_given_to_its_own_kind_only(pool: Pool) -> None:
    first = await done(pool, ONE)
    assert (await done(pool, ONE)).pid == first.pid
    other, _ = await pool.take(OTHER, WORK)
    assert other.pid != first.pid
    second, _ = await pool.take(ONE, Capability("both.typed"))
    assert second.pid not in (first.pid, other.pid)


async def test_no_more_are_idle_than_there_are_slots(pool: Pool, tmp_path: Path) -> None:
    for number in range(3):
        await done(pool, GroupId(f"g{number}"))
    (root,) = left_in(tmp_path)
    mark = root.name.removeprefix("treadle-slots-")
    await until(lambda: len(keeper.marked(mark)) <= 1, description="one idle process")


async def test_an_idle_process_ends_when_nobody_wants_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "IDLE_S", 0.05)
    first = await done(pool, ONE)
    who = identity(first.pid)
    assert who is not None
    await until(lambda: life_of(who) is Life.GONE, description="it has ended")
    assert (await done(pool, ONE)).pid != first.pid


async def test_a_process_that_was_killed_while_it_was_idle_is_not_given_to_a_run(pool: Pool) -> None:
    first = await done(pool, ONE)
    await first.end()
    assert (await done(pool, ONE)).pid != first.pid


async def test_a_start_that_is_cancelled_leaves_nothing(pool: Pool, tmp_path: Path) -> None:
    with anyio.move_on_after(0.05):
        await pool.take(ONE, WORK)
    await pool.close()
    assert left_in(tmp_path) == []


async def test_modules_that_do_not_import_there_are_the_runs_failure_and_say_why(tmp_path: Path) -> None:
    pool = Pool(1, ["no_such_handlers"], tmp_path)
    with pytest.raises(Ended, match="no module 'no_such_handlers'"):
        await pool.take(ONE, WORK)
    await pool.close()


async def test_what_speaks_no_frames_is_ended(pool: Pool) -> None:
    process, _ = await pool.take(ONE, WORK)
    process.data_received(b"\xff\xff\xff\xff")
    with pytest.raises(Ended, match="it spoke what is no frame: frame: 4,294,967,295 bytes"):
        await process.next(Kind.END)
    assert await pool.end(process) == "it spoke what is no frame: frame: 4,294,967,295 bytes, at most 2,097,152"


async def test_many_ends_of_one_process_are_one(pool: Pool) -> None:
    process, _ = await pool.take(ONE, WORK)
    said = await asyncio.gather(*(process.end() for _ in range(5)))
    assert set(said) == {"killed by signal 9 (SIGKILL): out of memory, or killed by somebody"}
    with pytest.raises(Ended):
        await process.next(Kind.END)


async def test_a_spare_process_is_there_while_fewer_are_than_slots_and_is_anybodys(tmp_path: Path) -> None:
    pool = Pool(2, [MODULE], tmp_path)
    first, _ = await pool.take(ONE, WORK)
    (root,) = left_in(tmp_path)
    mark = root.name.removeprefix("treadle-slots-")
    await until(lambda: pool.idle == 1, description="a spare process")
    both = keeper.marked(mark)
    second, _ = await pool.take(OTHER, WORK)
    assert {first.pid, second.pid} == both
    await pool.close()
    assert keeper.marked(mark) == set()


async def test_warm_starts_start_no_process(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await done(pool, ONE)

    async def start(*_given: Any, **_named: Any) -> SlotProcess:
        raise AssertionError("a process more")

    monkeypatch.setattr(SlotProcess, "start", start)
    for _ in range(5):
        assert (await done(pool, ONE)).pid == first.pid


def files_of_this_process() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def no_thread(self: threading.Thread) -> None:
    if self.name == "treadle-slot":
        raise RuntimeError("can't start new thread")
    STARTS(self)


STARTS = threading.Thread.start


def no_file(*_: object, **__: object) -> Any:
    raise OSError(24, "Too many open files")


REFUSED: dict[str, tuple[object, str, Any]] = {
    "no file for its line": (socket, "socketpair", no_file),
    "no file for what it prints": (os, "pipe", no_file),
    "no thread": (threading.Thread, "start", no_thread),
    "no process": (slot_process, "spawn", no_file),
    "no folder": (tempfile, "mkdtemp", no_file),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_where_no_process_can_be_had_the_run_says_so_and_nothing_is_left(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await done(pool, ONE)
    await pool.end(pool._idle.pop().process)
    (root,) = left_in(tmp_path)
    before = files_of_this_process()
    with monkeypatch.context() as patched:
        place, name, refused = REFUSED[what]
        patched.setattr(place, name, refused)
        for _ in range(5):
            with pytest.raises(Ended, match=r"can be started: |can be had: "):
                await pool.take(ONE, WORK)
            await asyncio.sleep(0)
    await until(lambda: files_of_this_process() <= before, description="no file is left")
    assert [one.name for one in left_in(root)] == ["owner"]
    assert pool._all == set()
    await done(pool, ONE)


async def test_a_first_process_that_cannot_be_had_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(1, [MODULE], tmp_path)
    before = files_of_this_process()
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "start_keeper", no_file)
        for _ in range(3):
            with pytest.raises(Ended, match="Too many open files"):
                await pool.take(ONE, WORK)
    assert left_in(tmp_path) == []
    assert files_of_this_process() <= before
    await done(pool, ONE)
    await pool.close()


async def test_a_root_that_was_cleared_away_is_made_anew(pool: Pool, tmp_path: Path) -> None:
    """What clears old files from the folder for temporary ones does not ask."""
    first = await done(pool, ONE)
    (root,) = left_in(tmp_path)
    shutil.rmtree(root)
    assert (await done(pool, ONE)).pid == first.pid
    assert root.stat().st_mode & 0o777 == 0o700


async def test_an_endless_word_of_a_fork_does_not_keep_the_event_loop(pool: Pool) -> None:
    """What an ended process has said is in its line; what its fork goes on to say there is nothing of the run."""
    process, _ = await pool.take(ONE, WORK)
    piece = write(Kind.SAY, "log", b"")

    class Endless:
        reads = 0

        def recv(self, _size: int) -> bytes:
            self.reads += 1
            assert self.reads < 10_000
            return piece

    mine, endless = process._link, Endless()
    process._link = cast("socket.socket", endless)
    process._has_exited()
    process._link = mine
    assert endless.reads < 10_000
    await pool.end(process)
