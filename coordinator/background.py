"""An event loop in a thread of its own, for programs that have none: what a sync client runs on."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal
from treadle.shared.errors import Misuse

_T = TypeVar("_T")


class Background:
    """Runs coroutines of any thread on one event loop, between its start and its stop; of one process only."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        """What messages call whoever has this."""
        self._pid = os.getpid()
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._started: AbstractContextManager[BlockingPortal] = start_blocking_portal("asyncio", name="treadle-client")
        self._portal: BlockingPortal | None = self._started.__enter__()
        self._thread = self._portal.call(threading.get_ident)

    def run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The outcome of `call()` on the loop; waits for it, and gives it up where the waiting is interrupted."""
        if os.getpid() != self._pid:
            raise Misuse(
                f"{self._owner}: it was opened in process {self._pid} and is used in {os.getpid()}, which was forked from "
                "it: its connections and its thread did not come along; open another one after the fork"
            )
        portal = self._portal
        if portal is None:
            raise Misuse(f"{self._owner}: it is closed; make another one")
        try:
            future = portal.start_task_soon(call)
        except RuntimeError:  # stopped meanwhile, or this is its own thread
            raise Misuse(f"{self._owner}: it is closed, or is used on its own event loop") from None
        try:
            return future.result()
        except CancelledError:
            raise Misuse(f"{self._owner}: it was closed while this call was under way") from None
        except BaseException:  # KeyboardInterrupt for one: nobody waits for it any more
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and what still runs on it; twice is fine, and in a forked process there is nothing to end."""
        if os.getpid() != self._pid or threading.get_ident() == self._thread:
            return
        with self._lock:
            portal, self._portal = self._portal, None
            if portal is None:
                return
            with suppress(RuntimeError):
                portal.call(portal.stop, True)
            self._started.__exit__(None, None, None)
