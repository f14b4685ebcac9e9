"""Processes that a handler forks off: none of them is a Worker, whatever it was a copy of.

Such a process ends where it comes back out of the handler. Until then it shares the Worker's connections, and must not use one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def prepare(in_child: Callable[[], None]) -> None:
    """Has every process forked from here on obey signals as a fresh one does, and calls `in_child` in it."""
    masks = threading.local()

    def hold() -> None:  # one that came before the child is made to obey it would be lost
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        with suppress(ValueError):  # not in the main thread
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGUSR2, signal.SIG_DFL)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
        in_child()
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=restore)


def end_if_forked(pid: int, name: str) -> None:
    """Ends this process at once where it is not `pid`: the run goes on in its parent."""
    if os.getpid() == pid:
        return
    said = (
        f"treadle-worker: {name}: process {os.getpid()}, forked by a handler of process {pid}, came back to the Worker and "
        "is ended; end it in the handler with os._exit, or start a program with subprocess\n"
    )
    with suppress(OSError):
        os.write(2, said.encode())
    os._exit(0)


@coroutine
def watched(inner: Awaitable[T], pid: int, name: str) -> Generator[Any, Any, T]:
    """Awaits `inner`; a forked child that gets to an await of it, or to its end, ends there."""
    steps = inner.__await__()
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            asked = steps.send(sent) if thrown is None else steps.throw(thrown)
        except StopIteration as done:
            end_if_forked(pid, name)
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            end_if_forked(pid, name)
            raise
        end_if_forked(pid, name)
        sent, thrown = None, None
        try:
            sent = yield asked
        except BaseException as error:  # a cancellation, for the handler to see
            thrown = error
