"""A Worker process for the benchmarks: URL, name, slots, lease TTL and a folder for its evidence. Not a test.

It leaves evidence where the store does not see it: how many items ran and how long their handlers were at it, in a mapped file;
each start that is timed, as a line of a log.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
from treadle.shared.model import AgentId
from treadle.shared.processes import follow_owner
from treadle.worker import Context, Worker, handler
from treadle.worker.effects.file import FileGate
from treadle.worker.effects.sqlite import SqliteGate
from treadle.worker.loading import collect

UVLOOP = find_spec("uvloop") is not None

RAN = struct.Struct("QQ")
"""How many ran; nanoseconds they took."""
_, URL, NAME, SLOTS, TTL_S, FOLDER = sys.argv if len(sys.argv) == 6 else ("", "", "", "1", "1", ".")


def _mapped() -> mmap.mmap:
    descriptor = os.open(Path(FOLDER) / f"ran-{NAME}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, RAN.size)
    return mmap.mmap(descriptor, RAN.size)


_DATABASE, _FILE = SqliteGate(Path(FOLDER) / f"{NAME}.db"), FileGate(Path(FOLDER) / f"{NAME}.txt")
_counter = _mapped() if NAME else None
_ran = _took_ns = 0


def _log(*words: object) -> None:
    with (Path(FOLDER) / "log").open("a") as log:
        log.write(" ".join(map(str, words)) + "\n")


def _note(took_ns: int = 0) -> None:
    global _ran, _took_ns
    _ran += 1
    _took_ns += took_ns
    assert _counter is not None
    RAN.pack_into(_counter, 0, _ran, _took_ns)


@handler("noop")
async def noop(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    _note()


@handler("checkpoint")
async def checkpoint(context: Context, inputs: dict[str, Any]) -> None:
    began_ns = time.perf_counter_ns()
    await context.checkpoint({"next": inputs["i"]})
    _note(time.perf_counter_ns() - began_ns)


@handler("effect.no-gate")
async def effect(context: Context, inputs: dict[str, Any]) -> None:
    began_ns = time.perf_counter_ns()
    async with context.effect("do") as effect:
        effect.result = inputs["i"]
    _note(time.perf_counter_ns() - began_ns)


@handler("effect.sqlite")
async def effect_at_sqlite(context: Context, inputs: dict[str, Any]) -> None:
    began_ns = time.perf_counter_ns()
    async with context.effect("do", at=_DATABASE) as effect:
        effect.at.execute("CREATE TABLE IF NOT EXISTS done (i INTEGER)")
        effect.at.execute("INSERT INTO done VALUES (?)", (inputs["i"],))
    _note(time.perf_counter_ns() - began_ns)


@handler("effect.file")
async def effect_at_a_file(context: Context, inputs: dict[str, Any]) -> None:
    began_ns = time.perf_counter_ns()
    async with context.effect("do", at=_FILE) as effect:
        effect.at.write_text(f"{inputs['i']}\n")
    _note(time.perf_counter_ns() - began_ns)


@handler("stamp")
async def stamp(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    _log("stamp", inputs["i"], time.monotonic())


@handler("slow")
async def slow(context: Context, inputs: dict[str, Any]) -> None:
    _log("start", context.item, time.monotonic(), NAME)
    await anyio.sleep(inputs["s"])
    _log("end", context.item, time.monotonic(), NAME)


async def _work() -> None:
    worker = Worker(
        collect(sys.modules[__name__]), endpoint=URL, name=AgentId(NAME), slots=int(SLOTS), lease_ttl_s=float(TTL_S)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.ready.wait()
        _log("ready", NAME, time.monotonic())


if __name__ == "__main__":
    follow_owner()
    anyio.run(_work, backend_options={"use_uvloop": UVLOOP})
