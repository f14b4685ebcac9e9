"""What the Workers of the system tests do; each says what it did in one JSON line at once, so a kill -9 loses none.

A line is one append to a file of the process, in the folder `FLEET_EVIDENCE` names; `at_s` is the machine's monotonic
clock, which all processes share.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from treadle.worker import Blocked, Context, SyncContext, handler

FOLDER = "FLEET_EVIDENCE"


def note(context: Context | SyncContext, what: str, **more: object) -> None:
    """Write down one thing that happened in a run."""
    line = {
        "mission": context.mission,
        "item": context.item,
        "attempt": context.attempt,
        "worker": context.worker,
        "pid": os.getpid(),
        "what": what,
        "at_s": time.monotonic(),
        **more,
    }
    file = Path(os.environ[FOLDER]) / f"{context.worker}-{os.getpid()}.jsonl"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def seed_of(item: str, results: Mapping[str, Any]) -> str:
    """What a chain begins with: its own name and what the items before it ended with."""
    return hashlib.sha256(json.dumps([item, sorted(results.items())]).encode()).hexdigest()


def link(value: str, number: int) -> str:
    """One step: done twice, left out or done out of order, it gives another value for ever after."""
    return hashlib.sha256(f"{value} {number}".encode()).hexdigest()


def pace_s(context: Context, inputs: Mapping[str, Any]) -> float:
    """`pace_s`, or `again_s` from the second attempt on: what is to be interrupted is slow, what comes after it is not."""
    return float(inputs["pace_s"] if context.attempt == 1 else inputs["again_s"])


@handler("fleet.chain")
async def chain(context: Context, inputs: dict[str, Any]) -> str:
    """`steps` links of a hash chain, one each `pace_s`, saved after each."""
    state = context.checkpoint_state
    note(context, "begin", state=state)
    value = state.get("value") or seed_of(context.item, context.results)
    try:
        for number in range(state.get("done", 0) + 1, inputs["steps"] + 1):
            await anyio.sleep(pace_s(context, inputs))
            value = link(value, number)
            note(context, "step", number=number)
            await context.checkpoint({"done": number, "value": value})
        note(context, "return")
    except anyio.get_cancelled_exc_class():
        note(context, "cancelled", is_lost=context.cancelled)
        raise
    finally:
        note(context, "out")
    return value


@handler("fleet.ask")
async def ask(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - it asks whatever it is given
    """Saves, and asks a person; answered, it gives the answer and what it had saved."""
    if not context.checkpoint_state:
        note(context, "asks")
        await context.checkpoint({"asked": context.item})
    if context.resolution is None:
        raise Blocked(f"{context.item}?", needs={"of": context.item})
    return {"resolution": context.resolution, "saved": context.checkpoint_state}


@handler("fleet.sleep")
async def sleep(context: Context, inputs: dict[str, Any]) -> int:
    """Sleeps `pace_s` in one piece: no safe point before the end."""
    note(context, "begin", state=context.checkpoint_state)
    try:
        await anyio.sleep(pace_s(context, inputs))
        note(context, "return")
    except anyio.get_cancelled_exc_class():
        note(context, "cancelled", is_lost=context.cancelled)
        raise
    finally:
        note(context, "out")
    return context.attempt


@handler("fleet.block")
async def block(context: Context, inputs: dict[str, Any]) -> int:
    """Blocks the event loop itself for `block_s` seconds, then saves and returns, as no handler should."""
    note(context, "begin", state=context.checkpoint_state)
    time.sleep(inputs["block_s"])  # noqa: ASYNC251 - the point of it
    await context.checkpoint({"blocked": True})
    note(context, "return")
    return context.attempt


@handler("fleet.stubborn")
async def stubborn(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001 - it takes no heed of anything
    """Catches its own cancellation, again and again."""
    note(context, "begin", state=context.checkpoint_state)
    while True:
        try:
            await anyio.sleep(3_600)
        except anyio.get_cancelled_exc_class():
            note(context, "cancelled", is_lost=context.cancelled)


@handler("fleet.thread")
def in_a_thread(context: SyncContext, inputs: dict[str, Any]) -> int:
    """A plain function: `steps` of `pace_s`, saved after each."""
    note(context, "begin", state=context.checkpoint_state)
    try:
        for number in range(context.checkpoint_state.get("done", 0) + 1, inputs["steps"] + 1):
            time.sleep(inputs["pace_s"])
            note(context, "step", number=number)
            context.checkpoint({"done": number})
        note(context, "return")
    finally:
        note(context, "out")
    return context.attempt


@handler("fleet.deadly")
async def deadly(context: Context, inputs: dict[str, Any]) -> None:
    """Ends its whole process at once, before anything of the run could be said to anybody."""
    note(context, "begin", state=context.checkpoint_state)
    if inputs.get("by") == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(9)
