"""Handlers that keep the thread of their Worker, or talk, for `system/test_life.py`."""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from typing import Any

import anyio
from fleet_handlers import note
from treadle.worker import Context, SyncContext, handler


@handler("life.waits_in_c")
async def waits_in_c(context: Context, inputs: dict[str, Any]) -> None:
    """As behind a driver's query: the main thread runs no line of Python any more, and threads run on."""
    del inputs
    note(context, "begin")
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
    libc.pthread_mutex_init(mutex, None)
    for _ in range(2):
        libc.pthread_mutex_lock(mutex)


@handler("life.talks")
async def talks(context: Context, inputs: dict[str, Any]) -> int:
    """Prints and logs more than any buffer holds, again and again."""
    note(context, "begin")
    for number in range(inputs["steps"]):
        print("said " * 4_000, flush=True)
        print("said " * 4_000, file=sys.stderr)
        context.logger.info("said")
        logging.getLogger("library").error("said")
        await anyio.sleep(inputs["pace_s"])
        note(context, "step", number=number)
    return context.attempt


@handler("life.beats", runtime="process", environment=("FLEET_EVIDENCE",))
def beats(context: SyncContext, inputs: dict[str, Any]) -> None:
    """In a process of its own: says all the time that it is there."""
    del inputs
    note(context, "begin")
    while True:
        time.sleep(0.02)
        note(context, "beat")
