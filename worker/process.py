"""A Worker as a process: its event loop, its signals, and an end that waits for no handler.

What a handler does to the loop itself (a task of its own that raises SystemExit, `loop.stop()`) ends the process, but in
order: the loop goes on until the work is given back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

from treadle.shared.redaction import show

from .slots.failures import failure_of
from .slots.forks import end_if_forked, prepare
from .slots.threads import UNWIND_S
from .worker import Worker

BREAKS_MAX = 100
"""After so many ends of the loop by handlers the process ends without more ado."""
EXIT_BROKEN = 1
_log = logging.getLogger("treadle.worker")


class Process:
    """This process, as the one Worker it is."""

    def __init__(self, worker: Worker, *, patience_s: float) -> None:
        self._worker = worker
        self._patience_s = patience_s
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._told = threading.Event()
        self._heard: list[int] = []
        self._breaks = 0
        self.left = 0
        """Threads and tasks of handlers that are left when `work` is over: `leave` ends the process without them."""

    def work(self) -> None:
        """Runs the Worker until it is stopped. Raises what ended it otherwise; SystemExit where a handler did.

        The first signal stops it, a second ends this process at once, and so does patience that is over. Not by the event
        loop's own signal handling: a handler that blocks the loop would keep both from being heard.
        """
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_unhandled)
        prepare(self._loop.stop)
        threading.Thread(target=self._insist, name="treadle-insist", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            self._until_done(self._worker.run())
        finally:
            self.left = self._worker.handlers_left
            if not self.left:
                self._close()
        if self._breaks:
            raise SystemExit(EXIT_BROKEN)

    def leave(self, error: BaseException | None) -> None:
        """Ends this process at once, without handlers that will not end: their items went on elsewhere, or failed."""
        _log.warning("ended without %d handlers that would not end", self.left)
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else EXIT_BROKEN
        elif error is not None:
            show(error)
            status = 1
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)

    def _until_done(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work, name="treadle-worker")
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except BaseException as error:
                end_if_forked(self._pid, "a handler")
                if not task.done():
                    self._broken(error)
        if task.cancelled():
            _log.error(
                "a handler cancelled the Worker's own tasks; its items go on elsewhere when their leases are over"
            )
            raise SystemExit(EXIT_BROKEN)
        task.result()

    def _broken(self, error: BaseException) -> None:
        """Says what ended the loop, and has the Worker give its work back; the loop is to be run on."""
        self._breaks += 1
        goes_on = isinstance(error, KeyboardInterrupt | SystemExit) or _is_stop(error)
        if self._breaks == 1 or not goes_on:
            what = "loop.stop()" if _is_stop(error) else str(failure_of(error, retryable=False))
            running = ", ".join(self._worker.running) or "none, so a task that one left behind"
            back = "their items are given back" if goes_on else "their items go on elsewhere when their leases are over"
            _log.error(
                "a handler ended the event loop (%s); running: %s; %s, and this Worker ends with status %d; a handler, and "
                "each task that it starts, must return or raise an Exception",
                what,
                running,
                back,
                EXIT_BROKEN,
            )
        if not goes_on or self._breaks > BREAKS_MAX:
            os._exit(EXIT_BROKEN)
        self._told.set()
        self._loop.call_soon(lambda: self._worker.stop(hurry=True))

    def _close(self) -> None:
        """Closes the loop; tasks that handlers left behind and threads that they still wait for get a moment."""
        try:
            strays = asyncio.all_tasks(self._loop)
            for task in strays:
                task.cancel()
            executor = self._loop.create_task(self._loop.shutdown_default_executor())
            _, strays = self._loop.run_until_complete(asyncio.wait([*strays, executor], timeout=UNWIND_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        except BaseException as error:  # one of them ends the loop: as good as one that will not end
            end_if_forked(self._pid, "a handler")
            _log.debug("the loop was ended by %r while it was closed", error)
            self.left = 1
        else:
            self.left = len(strays)
            if not strays:
                self._loop.close()

    def _on_signal(self, number: int, _frame: object) -> None:
        self._heard.append(number)
        if len(self._heard) > 1:
            os._exit(128 + number)
        self._told.set()
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        _log.info("stopping: nothing more is taken, handlers may reach a safe point; once more ends at once")
        self._worker.stop()

    def _insist(self) -> None:
        """Ends this process where a handler will neither return nor be cancelled: its work was given back or lapses."""
        self._told.wait()
        time.sleep(self._patience_s)
        os.write(2, b"treadle-worker: a handler will not end; ended without it, its item goes on elsewhere\n")
        os._exit(1)


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(
        context.get("exception"), KeyboardInterrupt | SystemExit
    ):  # that it ended the loop is said already
        loop.default_exception_handler(context)


def _is_stop(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and str(error).startswith("Event loop stopped before")
