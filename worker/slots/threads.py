"""The threads of a Worker's sync handlers, and the Context such a handler gets.

A thread cannot be stopped from outside. A run that is over gives its thread a moment to reach its next checkpoint, and
then gives it up: its slot goes to other work while the thread goes on to its next checkpoint or its end.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import anyio
import anyio.to_thread
from treadle.shared.errors import Misuse

from .forks import end_if_forked

UNWIND_S = 1.0
"""How long the thread or task of a run that is over may take to end before its slot is free all the same."""
GIVEN_UP_PER_SLOT = 2
_log = logging.getLogger("treadle.worker")


class Straggler(Protocol):
    """A handler that runs on although its run is over."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...


class Threads:
    """As many threads at work as slots, and twice as many given up at most: then the next waits for one of them to end."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._given_up_max = GIVEN_UP_PER_SLOT * slots
        self._limiter: anyio.CapacityLimiter | None = None
        self._freed = anyio.Event()
        self.at_work: list[str] = []
        """The runs whose handlers are called now."""
        self.given_up: set[Straggler] = set()
        """Threads and tasks still running for runs that are over."""

    def resize(self, slots: int) -> None:
        """Has room for as many threads as there are slots now; those at work beyond that go on."""
        self._slots = max(1, slots)
        self._given_up_max = GIVEN_UP_PER_SLOT * self._slots
        if self._limiter is not None:
            self._limiter.total_tokens = self._slots

    async def admit(self, name: str) -> anyio.CapacityLimiter:
        """Waits until a handler may be started; the limiter for its thread."""
        if len(self.given_up) >= self._given_up_max:
            stuck = ", ".join(sorted(errand.name for errand in self.given_up))
            _log.warning("%s waits: handlers of runs that are over will not end (%s)", name, stuck)
        while len(self.given_up) >= self._given_up_max:
            await self._freed.wait()
        if self._limiter is None:  # inside the event loop only
            self._limiter = anyio.CapacityLimiter(self._slots)
        return self._limiter

    def give_up(self, errand: Straggler) -> None:
        """Goes on without a thread or a task that does not end."""
        self.given_up.add(errand)
        _log.warning(
            "%s: its %s is given up, %d so far; it ends at its next checkpoint or by itself",
            errand.name,
            errand.kind,
            len(self.given_up),
        )

    def ended(self, errand: Straggler) -> None:
        """The thread or task of an errand is free again."""
        if errand in self.given_up:
            self.given_up.discard(errand)
            _log.info("%s: the %s that was given up has ended", errand.name, errand.kind)
            self._freed.set()
            self._freed = anyio.Event()


class ThreadErrand:
    """One call of a sync handler, in a thread."""

    kind = "thread"

    def __init__(
        self, threads: Threads, name: str, function: Callable[[], Any], limiter: anyio.CapacityLimiter
    ) -> None:
        self.name = name
        self._limiter = limiter
        self._threads = threads
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
        with anyio.move_on_after(UNWIND_S, shield=True):
            await self._ended.wait()
        if not self._ended.is_set():
            self._threads.give_up(self)

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
        self._threads.ended(self)
