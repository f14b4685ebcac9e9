"""Threads beside a virtual clock: while one runs, the clock stands still; while it waits for the loop, time may pass.

A handler that is no `async def` runs in a thread, and asks the loop for its checkpoints from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import anyio.from_thread
import anyio.to_thread

from .clock import Process, VirtualLoop


@contextmanager
def threads_counted(loop: VirtualLoop) -> Generator[None]:
    """The loop knows inside which threads of anyio's run for it, and which of them wait for it."""
    to_thread, from_thread = anyio.to_thread.run_sync, anyio.from_thread.run

    async def run_sync(func: Callable[..., Any], *args: Any, **named: Any) -> Any:
        process = Process.current()
        loop.in_threads[process] += 1
        try:
            return await to_thread(func, *args, **named)
        finally:
            loop.in_threads[process] -= 1

    def run(func: Callable[..., Any], *args: Any, **named: Any) -> Any:
        async def arrived(*given: Any) -> Any:
            # Counted on the loop's side only: so it is counted until the loop has the question, and before it has the answer.
            process = Process.current()
            loop.in_threads[process] -= 1
            try:
                return await func(*given)
            finally:
                loop.in_threads[process] += 1

        return from_thread(arrived, *args, **named)

    with (
        mock.patch("anyio.to_thread.run_sync", run_sync),
        mock.patch("anyio.from_thread.run", run),
    ):
        yield
