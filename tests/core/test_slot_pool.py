"""The processes of a Worker: warm ones for their own kind only, spare ones for anybody, few, and all ended with it (S16)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fleet import until
from treadle.shared import keeper
from treadle.shared.model import Capability, GroupId
from treadle.shared.processes import Life, identity, life_of
from treadle.worker.slots import pool as pools
from treadle.worker.slots.enclosed import Ended, SlotProcess
from treadle.worker.slots.frames import Kind
from treadle.worker.slots.given import Given, parts_of
from treadle.worker.slots.pool import Pool

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
    given = Given(
        mission="m",
        item="a",
        worker="w",
        attempt=1,
        ownership_epoch=1,
        lease="l",
        incarnation=1,
        inputs=inputs,
        state={},
        results={},
        resolution=None,
        contract={},
        name="m/a",
        folder=str(folder),
    )
    for name, raw in parts_of(given):
        process.say(Kind.BODY, name, raw)
    terms = {
        "capability": str(WORK),
        "command": {},
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
