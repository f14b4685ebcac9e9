"""Handlers as nobody should write them: each harms its Worker in a way of its own, at its first attempt."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from fleet_handlers import block, chain, note, sleep, stubborn
from treadle.worker import Context, Stopped, SyncContext, handler

__all__ = ["block", "chain", "sleep", "stubborn"]


class Odd:
    """Nothing that could be stored."""


@handler("bad.task")
async def task(context: Context, inputs: dict[str, Any]) -> Any:
    """Does what `how` says; from the second attempt on just returns."""
    note(context, "begin")
    how = inputs["how"]
    if context.attempt > 1:
        return context.attempt
    if how == "sleeps on the loop":
        time.sleep(inputs["for_s"])  # noqa: ASYNC251
    elif how == "returns what cannot be stored":
        return {"deep": [1, {"er": Odd()}]}
    elif how == "ignores its cancellation":
        while not Path("go").exists():  # noqa: ASYNC240
            with suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep(0.1)
    else:
        harm(how)
    return context.attempt


@handler("bad.thread")
def thread(context: SyncContext, inputs: dict[str, Any]) -> Any:
    """The same, in a thread."""
    note(context, "begin")
    how = inputs["how"]
    if context.attempt > 1:
        return context.attempt
    if how == "sleeps":
        time.sleep(inputs["for_s"])
    elif how == "ignores its cancellation":
        while not Path("go").exists():
            time.sleep(0.1)
    elif how == "returns what cannot be stored":
        return {"deep": [1, {"er": Odd()}]}
    else:
        harm(how)
    return context.attempt


def harm(how: str) -> None:
    if how == "forks children and exits":
        for _ in range(3):
            subprocess.Popen(["sleep", "0.5"])
        sys.exit(3)
    elif how == "writes 100 MB to stdout":
        for _ in range(100):
            os.write(1, b"x" * 1_000_000)
    elif how == "raises a message of 10 MB":
        raise ValueError("m" * 10_000_000)
    elif how == "raises what cannot be printed":
        raise ValueError("\x1b[2J\ud800\x00 \u202e")
    elif how == "raises what cannot say itself":
        raise _MuteError
    elif how == "opens 10,000 files":
        files = [Path(os.devnull).open() for _ in range(10_000)]  # noqa: SIM115
        raise AssertionError(f"{len(files)} were opened")
    elif how == "ends the process":
        os._exit(1)
    elif how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "allocates for ever":
        kept = []
        while True:
            kept.append(b"x" * 50_000_000)


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@handler("bad.lock")
async def lock(context: Context, inputs: dict[str, Any]) -> int:
    """Holds the interpreter lock for `for_s` at its first attempt, as a C library might, and then tries to go on."""
    note(context, "begin")
    if context.attempt > 1:
        return context.attempt
    ctypes.PyDLL(None).usleep(int(1_000_000 * inputs["for_s"]))
    note(context, "after")
    try:
        await anyio.sleep(3_600)
    finally:
        note(context, "out", is_lost=context.cancelled, why=context.why_stopped)
    return 0


@handler("bad.shielded")
async def shielded(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    """Lets no cancellation reach it, and saves until that is refused."""
    note(context, "begin")
    if context.attempt > 1:
        return context.attempt
    with anyio.CancelScope(shield=True):
        for number in range(10_000):
            try:
                await context.checkpoint({"number": number})
            except Stopped as stopped:
                note(context, "refused", is_lost=context.cancelled, why=context.why_stopped, said=str(stopped))
                raise
            await anyio.sleep(0.05)
    return 0
