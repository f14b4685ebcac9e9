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
from contextlib import suppress
from typing import Any, NoReturn

from treadle.shared.redaction import show

from .exits import Exit
from .outlets import say
from .roster import DRAIN
from .signals import Signals
from .slots.errand import UNWIND_S
from .slots.failures import failure_of
from .slots.forks import end_if_forked, prepare
from .worker import Worker

BREAKS_MAX = 100
"""After so many ends of the loop by handlers the process ends without more ado."""
RUNNING_SHOWN_MAX = 8
_log = logging.getLogger("treadle.worker")


class Process:
    """This process, as the one Worker it is."""

    def __init__(self, worker: Worker, *, grace_s: float, patience_s: float) -> None:
        self._worker = worker
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._signals = Signals()
        self._presses: list[int] = []
        self._breaks = 0
        self.left = 0
        """Threads and tasks of handlers that are left when `work` is over: `leave` ends the process without them."""

    def listen(self) -> None:
        """From here on the first SIGTERM or SIGINT stops the Worker, and a second ends this process at once.

        DRAIN stops it, however often it comes, and so does SIGHUP: a terminal that closes may send it twice. `nohup` is heeded.
        Not by the event loop's own signal handling: a handler that blocks the loop would keep all of them from being heard.
        """
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(_unhandled)
        prepare(self._loop.stop)
        threading.Thread(target=self._obey, name="treadle-insist", daemon=True).start()
        hangs_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        self._signals.listen((signal.SIGTERM, signal.SIGINT, DRAIN, *hangs_up))

    def work(self) -> None:
        """Runs the Worker until it is stopped, or its patience with handlers is over.

        Raises what ended it otherwise; SystemExit where a handler did.
        """
        try:
            self._until_done(self._worker.run())
        finally:
            self.left = self._worker.handlers_left
            if not self.left:
                self._close()
        if self._breaks:
            raise SystemExit(Exit.UNFORESEEN)

    def leave(self, error: BaseException | None) -> None:
        """Has this process end without handlers that will not: their items went on elsewhere, or are over.

        At once where some are left; else in a moment, where the interpreter waits for a thread that one has started.
        """
        status: int = Exit.DONE
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else Exit.UNFORESEEN
        elif error is not None:
            status = Exit.UNFORESEEN
        if self.left:
            if error is not None and not isinstance(error, SystemExit):
                show(error)
            _end_without(f"{self.left} handlers", status)
        threading.Thread(target=_end_without_threads, args=(status,), name="treadle-end", daemon=True).start()

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
            raise SystemExit(Exit.UNFORESEEN)
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
                Exit.UNFORESEEN,
            )
        if not goes_on or self._breaks > BREAKS_MAX:
            os._exit(Exit.UNFORESEEN)
        self._signals.tell()
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

    def _stop(self) -> None:
        if not self._explains:
            _log.info("stopping: nothing more is taken, handlers may reach a safe point; a second signal ends at once")
        self._worker.stop()

    @property
    def _explains(self) -> bool:
        """Whether somebody at a terminal pressed Ctrl-C, who is told more than a log is."""
        return self._presses == [signal.SIGINT] and os.isatty(2)

    def _obey(self) -> None:
        """Does as it is told, in a thread of its own, since the loop may be blocked just now.

        Ends this process where a handler will neither return nor be cancelled: its work is given back.
        """
        over_s: float | None = None
        is_told = False
        status = Exit.DONE
        while (told := self._signals.next(over_s)) is not None:
            if over_s is None:
                over_s = time.monotonic() + self._patience_s
            if told == 0:
                status = Exit.UNFORESEEN
                continue
            is_press = told in (signal.SIGTERM, signal.SIGINT)
            if is_press:
                self._presses.append(told)
            if len(self._presses) > 1:
                os._exit(Exit.SIGNALLED + told)
            if told == signal.SIGINT and self._explains:
                say(self._explanation())
            if is_press or not is_told:  # DRAIN once: a storm of it would leave the loop nothing else to do
                is_told = True
                with suppress(RuntimeError):  # the loop is closed: it is about to end
                    self._loop.call_soon_threadsafe(self._stop)
        running = ", ".join(self._worker.running[:RUNNING_SHOWN_MAX]) or "none is at work"
        back = "what it held is given back" if self._worker.abandon() else "its leases lapse by themselves"
        say(f"treadle-worker: a handler will not end ({running}); ended without it, {back}\n")
        os._exit(status)

    def _explanation(self) -> str:
        running = self._worker.running
        more = f" and {len(running) - RUNNING_SHOWN_MAX} more" if len(running) > RUNNING_SHOWN_MAX else ""
        if running:
            what = (
                f"At work: {', '.join(running[:RUNNING_SHOWN_MAX])}{more}.\n  Within {self._grace_s:g} s each may end or reach "
                "a checkpoint; what has not is stopped then, and given back at its last checkpoint. No failure is counted."
            )
        else:
            what = "Nothing is at work."
        return (
            f"\ntreadle-worker: stopping; nothing more is taken. {what}\n  Press Ctrl-C again to end at once: what is at work "
            "goes on elsewhere, from its last checkpoint, when its lease is over.\n"
        )


def _end_without_threads(status: int) -> None:
    """Of those that handlers have started: the interpreter would wait for all that are no daemons, however long."""
    time.sleep(UNWIND_S)
    if left := sum(not one.daemon and one is not threading.main_thread() for one in threading.enumerate()):
        _end_without(f"{left} threads of handlers", status)


def _end_without(whom: str, status: int) -> NoReturn:
    _log.warning("ended without %s that would not end", whom)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # it drops what it cannot write
    os._exit(status)


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(
        context.get("exception"), KeyboardInterrupt | SystemExit
    ):  # that it ended the loop is said already
        loop.default_exception_handler(context)


def _is_stop(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and str(error).startswith("Event loop stopped before")
