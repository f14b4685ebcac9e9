"""Threads: those of sync handlers, and those in which a Worker waits for what would keep its event loop.

A thread cannot be stopped from outside. A run that is over gives its thread a moment to reach its next checkpoint, and
then gives it up: its slot goes to other work while the thread goes on to its next checkpoint or its end.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from treadle.shared.errors import Misuse

from . import errand
from .forks import end_if_forked
from .occupancy import Occupancy

THREADS_MAX = 64
"""Of a Worker's own."""
T = TypeVar("T")
_OWN: RunVar[anyio.CapacityLimiter] = RunVar("slots.threads")


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Calls it in a thread of the Worker's own. Not by the limiter that handlers may fill: an end waits for none of them."""
    limiter = _OWN.get(None)
    if limiter is None:
        limiter = anyio.CapacityLimiter(THREADS_MAX)
        _OWN.set(limiter)
    return await anyio.to_thread.run_sync(function, *arguments, limiter=limiter)


class ThreadErrand:
    """One call of a sync handler, in a thread."""

    kind = "thread"

    def __init__(
        self, occupancy: Occupancy, name: str, function: Callable[[], Any], limiter: anyio.CapacityLimiter
    ) -> None:
        self.name = name
        self._limiter = limiter
        self._occupancy = occupancy
        self._function = function
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._is_claimed = False
        """By the thread that runs it, or by whoever sees that none does."""
        self._ended = anyio.Event()

    async def run(self) -> Any:
        """What the function returns. Cancelled, it returns at once and leaves the thread to itself: see `unwound`."""
        return await anyio.to_thread.run_sync(self._work, abandon_on_cancel=True, limiter=self._limiter)

    async def unwound(self) -> None:
        """Returns when the thread is free, or given up."""
        if self._ended.is_set() or self._claim():
            return
        with anyio.move_on_after(errand.UNWIND_S, shield=True):
            await self._ended.wait()
        if not self._ended.is_set():
            self._occupancy.give_up(self)

    def _work(self) -> Any:
        if not self._claim():
            return None
        try:
            result = self._function()
            if inspect.iscoroutine(result):
                result.close()
                raise Misuse("the handler is a plain function and returned a coroutine: write `async def`")
            return result
        except StopIteration as error:  # no coroutine may raise it: it would become an error of another line
            raise RuntimeError("the handler raised StopIteration") from error
        finally:
            end_if_forked(self._pid, self.name)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._has_ended)

    def _claim(self) -> bool:
        with self._lock:
            first, self._is_claimed = not self._is_claimed, True
        return first

    def _has_ended(self) -> None:
        self._ended.set()
        self._occupancy.ended(self)
