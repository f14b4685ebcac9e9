"""The virtual clock itself: time that costs nothing, processes that stop and die between two steps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from treadle.shared.testing import clock
from treadle.shared.testing.clock import EPOCH_S, Deadlock, Process, VirtualLoop, run_virtual
from treadle.shared.testing.threads import threads_counted


def test_ten_virtual_hours_pass_in_no_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, float, float]:
        await asyncio.sleep(36_000)
        return loop.time(), time.time(), time.monotonic()

    began_s = time.perf_counter()
    assert run_virtual(main) == (36_000, EPOCH_S + 36_000, 36_000)
    assert time.perf_counter() - began_s < 5
    assert time.time() != EPOCH_S + 36_000


def test_what_waits_for_nothing_that_can_come_is_a_deadlock() -> None:
    async def main(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match="no timer is set"):
        run_virtual(main)


def test_an_error_in_a_callback_ends_the_run() -> None:
    async def main(loop: VirtualLoop) -> None:
        loop.call_later(1, lambda: 1 / 0)
        await asyncio.sleep(2)

    with pytest.raises(ZeroDivisionError):
        run_virtual(main)


def test_threads_are_refused() -> None:
    async def main(loop: VirtualLoop) -> None:
        await loop.run_in_executor(None, time.time)

    with pytest.raises(RuntimeError, match="no virtual time"):
        run_virtual(main)


def test_where_threads_are_allowed_time_stands_still_for_them() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        told: list[float] = []
        loop.call_later(1, told.append, -1.0)
        await loop.run_in_executor(None, time.sleep, 0.05)
        told.append(loop.time())
        await asyncio.to_thread(lambda: loop.call_soon_threadsafe(told.append, -2.0))
        await asyncio.sleep(2)
        return told

    loop = VirtualLoop(threads=True)
    try:
        assert loop.run_until_complete(main()) == [0.0, -2.0, -1.0]
    finally:
        loop.close()


def test_a_thread_that_asks_the_loop_is_answered_in_virtual_time() -> None:
    def work() -> str:
        anyio.from_thread.run(anyio.sleep, 600)
        return "done"

    async def main() -> tuple[str, float]:
        return await anyio.to_thread.run_sync(work), anyio.current_time()

    loop = VirtualLoop(threads=True)
    try:
        with threads_counted(loop):
            assert loop.run_until_complete(main()) == ("done", 600)
            loop.run_until_complete(asyncio.sleep(0))  # anyio's thread ends one step after its task
    finally:
        loop.close()


def test_a_thread_that_does_not_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "THREAD_PATIENCE_S", 0.1)
    go_on = threading.Event()

    async def main() -> None:
        await asyncio.to_thread(go_on.wait)

    loop = VirtualLoop(threads=True)
    try:
        with pytest.raises(Deadlock, match=r"a thread runs for more than 0\.1 real seconds"):
            loop.run_until_complete(main())
        go_on.set()
        loop.bury()
    finally:
        go_on.set()
        loop.close()


def _counting(seen: list[float]) -> Callable[[VirtualLoop], Coroutine[Any, Any, None]]:
    async def count(loop: VirtualLoop) -> None:
        try:
            while True:
                seen.append(loop.time())
                await anyio.sleep(1)
        finally:
            seen.append(-1.0)

    return count


def test_a_paused_process_goes_on_late_where_it_was() -> None:
    seen: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        process = loop.process("p")
        process.spawn(_counting(seen)(loop))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(5)
        assert seen == [0, 1]
        process.resume()
        await asyncio.sleep(1.2)
        assert seen == [0, 1, 6.5, 7.5]

    run_virtual(main)


def test_a_killed_process_does_not_clean_up_until_it_is_buried() -> None:
    seen: list[float] = []
    died: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        process = loop.process("p")
        process.on_death = lambda: died.append(process.name)
        process.spawn(_counting(seen)(loop))
        await asyncio.sleep(1.5)
        process.kill()
        await asyncio.sleep(5)
        assert (seen, died) == ([0, 1], ["p"])
        assert not process.is_running

    run_virtual(main)
    assert seen == [0, 1, -1]


def test_a_process_can_die_after_any_number_of_steps() -> None:
    async def main(loop: VirtualLoop) -> set[int]:
        reached = set()
        for steps in range(1, 8):
            seen: list[int] = []

            async def work(seen: list[int] = seen) -> None:
                for number in range(5):
                    seen.append(number)
                    await asyncio.sleep(0)

            process = loop.process(f"p{steps}")
            process.kill(after_steps=steps)
            process.spawn(work())
            await asyncio.sleep(1)
            reached.add(len(seen))
        return reached

    assert run_virtual(main) == {0, 1, 2, 3, 4, 5}


def test_everything_a_process_starts_is_its_own() -> None:
    found: list[str] = []

    async def inner() -> None:
        process = Process.current()
        found.append(process.name if process else "none")

    async def outer() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner)
        asyncio.get_running_loop().call_later(1, lambda: asyncio.create_task(inner()))

    async def main(loop: VirtualLoop) -> None:
        loop.process("mine").spawn(outer())
        await inner()
        await asyncio.sleep(2)

    run_virtual(main)
    assert found == ["none", "mine", "mine"]


def test_the_order_of_processes_at_one_instant_is_the_seed_s() -> None:
    async def main(loop: VirtualLoop) -> str:
        order: list[str] = []

        async def say(name: str) -> None:
            await asyncio.sleep(1)
            order.append(name)

        for name in "abcdef":
            loop.process(name).spawn(say(name))
        await asyncio.sleep(2)
        return "".join(order)

    orders = [run_virtual(main, seed=seed) for seed in range(20)]
    assert orders == [run_virtual(main, seed=seed) for seed in range(20)]
    assert len(set(orders)) > 10
