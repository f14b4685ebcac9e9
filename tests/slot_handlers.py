"""Handlers that run in processes of their own and treat them badly, for `system/test_slot_processes.py`."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet_handlers import note
from treadle.worker import Blocked, Context, Fail, Limits, SyncContext, handler

__all__ = ["Limits"]

EVIDENCE = ("FLEET_EVIDENCE",)
AWAY = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"


@handler("slot.says", runtime="process", environment=EVIDENCE)
async def says(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a run sees of itself."""
    note(context, "begin")
    print("said on stdout")
    print("said on stderr", file=sys.stderr)
    context.logger.warning("said in the log")
    logging.getLogger("lib").error("said by a library")
    await context.checkpoint({"step": 1})
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "cwd": str(Path.cwd()),
        "folder": str(context.folder),
        "temporary": tempfile.gettempdir(),
        "files": os.listdir(),  # noqa: PTH208
        "environment": dict(os.environ),
        "umask": os.umask(0o022),
        "mission": context.mission,
        "item": context.item,
        "inputs": inputs,
        "state": context.checkpoint_state,
        "results": dict(context.results),
    }


@handler("slot.threaded", runtime="process")
def threaded(context: SyncContext, _inputs: dict[str, Any]) -> int:
    """A plain function: its process has one thread for it."""
    context.checkpoint({"step": 1})
    Path("written").touch()
    os.environ["LEFT"] = "behind"
    os.chdir("/")
    return os.getpid()


def _away() -> int:
    """A process that left its parent, its group and its session, and ignores SIGTERM."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        child = subprocess.Popen([sys.executable, "-S", "-c", AWAY])
        os.write(write, str(child.pid).encode())
        os._exit(0)
    os.wait()
    found = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    return found


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@handler("slot.bad", runtime="process", environment=EVIDENCE)
async def bad(context: Context, inputs: dict[str, Any]) -> Any:
    """Treats its process as `how` says."""
    how = inputs["how"]
    note(context, "begin")
    match how:
        case "ignores cancellation":
            while True:
                with suppress(BaseException):
                    await asyncio.sleep(3_600)
        case "forks and exits":
            note(context, "away", child=_away())
            os._exit(0)
        case "forks and returns":
            return _away()
        case "prints 100 MB":
            line = b"x" * 1023 + b"\n"
            for _ in range(100 * 1024):
                os.write(1, line)
        case "unserialisable":
            return {"a": [1, {2, 3}]}
        case "10 MB message":
            raise ValueError("m" * 10_000_000)
        case "unprintable":
            raise Unprintable
        case "control characters":
            raise ValueError("\x1b[2J\udcff")
        case "10,000 files":
            files = [os.open("/dev/null", os.O_RDONLY) for _ in range(10_000)]
            return len(files)
        case "sleeps":
            time.sleep(inputs["s"])  # noqa: ASYNC251 - as it should not be written
        case "os._exit(1)":
            os._exit(1)
        case "exits":
            sys.exit(3)
        case "killed":
            os.kill(os.getpid(), 9)
        case "stops":
            raise StopIteration(1)
        case "blocked":
            if context.resolution is None:
                raise Blocked("which one?", needs={"of": [1, 2]})
            return context.resolution
        case "fails":
            raise Fail("never")
        case "closes its files":
            os.closerange(3, 100)
            time.sleep(3_600)  # noqa: ASYNC251 - as it should not be written
        case "cancels itself":
            raise asyncio.CancelledError
        case "loop.stop()":
            asyncio.get_running_loop().stop()
            await asyncio.sleep(3_600)
    return how


@handler("slot.asked", runtime="process", environment=EVIDENCE)
def asked(context: SyncContext, _inputs: dict[str, Any]) -> str:
    """Looks whether its slot is asked for, and ends by itself then."""
    note(context, "begin")
    while not context.why_stopped:
        time.sleep(0.01)
    return context.why_stopped


@handler("slot.secret", runtime="process", environment=EVIDENCE)
async def secret(context: Context, _inputs: dict[str, Any]) -> list[str]:
    """Where its secret can be seen besides its context."""
    word = context.credentials["key"]
    print("printed", word)
    context.logger.info("logged %s", word)
    places = ["/proc/self/environ", "/proc/self/cmdline"]
    found = [place for place in places if word.encode() in Path(place).read_bytes()]  # noqa: ASYNC240
    return found + [name for name, value in os.environ.items() if word in value]


@handler("slot.allocates", runtime="process", limits=Limits(memory_mb=256))
async def allocates(_context: Context, _inputs: dict[str, Any]) -> int:
    """More than it may have."""
    return len(bytearray(1 << 30))


@handler("slot.computes", runtime="process", limits=Limits(cpu_s=1))
def computes(_context: SyncContext, _inputs: dict[str, Any]) -> None:
    """For ever."""
    while True:
        pass


@handler("slot.few_files", runtime="process", limits=Limits(open_files=64))
def few_files(_context: SyncContext, _inputs: dict[str, Any]) -> None:
    """Opens more files than it may."""
    for _ in range(100):
        os.open("/dev/null", os.O_RDONLY)


@handler("slot.steps", runtime="process", environment=EVIDENCE)
async def steps(context: Context, inputs: dict[str, Any]) -> int:
    """Goes on from its Checkpoint, step by step."""
    step = int(context.checkpoint_state.get("step", 0))
    note(context, "begin", step=step, child=_away() if inputs.get("away") else 0)
    while step < inputs["steps"]:
        await asyncio.sleep(inputs["pace_s"])
        step += 1
        await context.checkpoint({"step": step})
        note(context, "step", step=step)
    return step
