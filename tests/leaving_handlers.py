"""A handler that leaves its process other than it was, for `core/test_slot_leavings.py`."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from treadle.worker import Fail, handler


def _less(what: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (100, hard))


CHANGES: dict[str, Any] = {
    "closed standard output": lambda: os.close(1),
    "another standard output": lambda: os.dup2(os.open("/dev/null", os.O_WRONLY), 1),
    "signals held back": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "a limit": lambda: _less(resource.RLIMIT_NOFILE),
    "priority": lambda: os.nice(1),
    "sys.stdout": lambda: setattr(sys, "stdout", io.StringIO()),
    "logging": lambda: logging.disable(),
    "log handlers": lambda: logging.root.handlers.clear(),
    "tracing": lambda: sys.setprofile(lambda *_: None),
    "recursion": lambda: sys.setrecursionlimit(5_000),
    "sockets": lambda: socket.setdefaulttimeout(5),
    "garbage": gc.disable,
    "a thread": lambda: threading.Thread(target=time.sleep, args=(3_600,), daemon=True).start(),
    "nothing": lambda: None,
    "signal handlers": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "umask": lambda: os.umask(0o7),
    "the current folder": lambda: os.chdir("/"),
    "environment": lambda: os.environ.clear(),
}
KEPT = ("nothing", "signal handlers", "umask", "the current folder", "environment")


@handler("leaving", runtime="process")
async def leaving(_context: Any, inputs: dict[str, Any]) -> int:
    """In the main thread, where signals are."""
    CHANGES[inputs["how"]]()
    return os.getpid()


@handler("leaving.fails", runtime="process")
async def fails(_context: Any, inputs: dict[str, Any]) -> None:
    """With a task that has something to clean up, and takes its time for it."""
    begun = asyncio.Event()

    async def holds() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            touch(inputs["cleaned"])

    HELD.append(asyncio.create_task(holds()))
    await begun.wait()
    raise Fail("as it should")


def touch(path: str) -> None:
    Path(path).touch()


HELD: list[object] = []
