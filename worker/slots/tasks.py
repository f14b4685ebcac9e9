"""The task of an async handler.

A task can be cancelled, and can catch that again and again. A run that is over gives its task a moment to unwind, and then
gives it up as a thread is given up: its slot goes to other work while the task goes on to its next checkpoint or its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from . import errand
from .forks import watched
from .occupancy import Occupancy


class TaskErrand:
    """One call of an async handler, in a task of its own."""

    kind = "task"

    def __init__(self, occupancy: Occupancy, name: str, function: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self._occupancy = occupancy
        self._function = function
        self._pid = os.getpid()
        self._cancel = anyio.CancelScope()
        self._spare = anyio.CancelScope()
        """Around the handler, inside the other: shielded from it once the task is given up."""
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> Any:
        """What the handler returns. Cancelled, it cancels the handler and returns when that has ended or is given up."""
        task = asyncio.get_running_loop().create_task(self._work(), name=self.name)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._cancel.cancel()
            with anyio.move_on_after(errand.UNWIND_S, shield=True):
                await asyncio.wait([task])
            if not task.done():
                # Else it would be cancelled anew in every round of the event loop, as fast as it can catch that.
                self._spare.shield = True
                self._occupancy.give_up(self)
                task.add_done_callback(self._has_ended)
                raise
            if isinstance(self._error, asyncio.CancelledError):
                raise
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its frames hold what the handler had: in a circle they would wait for the collector

    async def unwound(self) -> None:
        """The task is free, or given up, as soon as `run` has returned."""

    async def _work(self) -> None:
        with self._cancel, self._spare:
            try:
                self._result = await watched(self._function(), self._pid, self.name)
            except BaseException as error:  # SystemExit too: a task that raises it would end the event loop
                self._error = error

    def _has_ended(self, _task: object) -> None:
        self._occupancy.ended(self)
