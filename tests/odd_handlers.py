"""Handlers that no Worker should have, for `system/test_odd_handlers.py`: what they do to their own process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from fleet_handlers import chain, note, sleep, stubborn
from treadle.worker import Context, SyncContext, handler

__all__ = ["chain", "sleep", "stubborn"]


async def _exit() -> None:
    raise SystemExit(7)


async def _interrupt() -> None:
    raise KeyboardInterrupt


@handler("odd.breaks")
async def breaks(context: Context, inputs: dict[str, Any]) -> int:
    """Ends the event loop, each `how` in a way of its own; the second attempt does not."""
    note(context, "begin")
    if context.attempt > 1:
        return context.attempt
    how = inputs["how"]
    if how == "awaited exit":
        await asyncio.create_task(_exit())
    elif how == "awaited interrupt":
        await asyncio.create_task(_interrupt())
    elif how == "task that exits":
        asyncio.create_task(_exit())  # noqa: RUF006 - as it should not be written
    elif how == "loop.stop()":
        asyncio.get_running_loop().stop()
    elif how == "cancelled tasks":
        for task in asyncio.all_tasks():
            task.cancel()
    elif how == "closed files":
        os.closerange(3, 100)
    await asyncio.sleep(3_600)
    return 0


@handler("odd.forks")
async def forks(context: Context, inputs: dict[str, Any]) -> int:
    """Forks, and lets the child come back as `how` says."""
    child = os.fork()
    if child == 0 and inputs["how"] == "awaits":
        await asyncio.sleep(0)
    if child == 0 and inputs["how"] == "raises":
        raise ValueError("in the child")
    if child == 0 and inputs["how"] == "saves":
        await context.checkpoint({"by": "the child"})
    if child == 0:
        return 0
    note(context, "forked", child=child)
    return child


@handler("odd.forks_in_a_task")
async def forks_in_a_task(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    """A task of the handler's own forks, and its child goes on as if nothing was."""

    async def fork() -> int:
        return os.fork()

    child = await asyncio.create_task(fork())
    note(context, "forked", child=child)
    return child


@handler("odd.forks_in_a_thread")
def forks_in_a_thread(context: SyncContext, inputs: dict[str, Any]) -> int:
    """As `forks`, in a thread."""
    child = os.fork()
    if child == 0 and inputs["how"] == "saves":
        context.checkpoint({"by": "the child"})
    if child == 0:
        return 0
    note(context, "forked", child=child)
    return child


@handler("odd.obeys")
def obeys(context: SyncContext, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    """Forks a child that sleeps, and ends it by a SIGTERM; the signal that ended it."""
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@handler("odd.unwinds")
async def unwinds(context: Context, inputs: dict[str, Any]) -> int:
    """Takes `unwind_s` to end once it is cancelled."""
    note(context, "begin")
    try:
        await asyncio.sleep(3_600)
    finally:
        end_s = time.monotonic() + float(inputs["unwind_s"])
        while time.monotonic() < end_s:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        note(context, "out")
    return 0


@handler("odd.leaves_a_thread")
async def leaves_a_thread(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    """Waits for a thread that will not end."""
    note(context, "begin")
    await asyncio.to_thread(time.sleep, 3_600)


@handler("odd.values")
async def values(context: Context, inputs: dict[str, Any]) -> Any:
    """Results and Checkpoints of odd sizes and kinds."""
    what = inputs["what"]
    if what == "large checkpoint":
        await context.checkpoint({"x": "y" * 20_000_000})
    if what == "many checkpoints":
        for number in range(500):
            await context.checkpoint({"number": number})
        return context.checkpoint_state
    if what == "many checkpoints at once":
        await asyncio.gather(*[context.checkpoint({"number": number}) for number in range(1_000)])
    if what == "deep recursion":
        return deeper(0)
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    given = {"large result": "y" * 50_000_000, "nan": [float("nan"), float("inf")], "circle": circle, "set": {1, 2}}
    return given.get(what, "done")


def deeper(level: int) -> int:
    return deeper(level + 1) + sys.getrecursionlimit()
