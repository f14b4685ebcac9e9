"""Handlers that say nothing of where they run, for `system/test_handlers_alike.py`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from pydantic import BaseModel, Field
from treadle.worker import Blocked, Context, Fail, SyncContext, handler

MIB = 1 << 20


class Picture(BaseModel):
    path: str
    size: int = Field(ge=1, le=4096)


class Thumbnail(BaseModel):
    path: str
    bytes: int


@handler("both.typed")
async def typed(context: Context, picture: Picture) -> Thumbnail:
    del context
    return Thumbnail(path=f"{picture.path}.{picture.size}", bytes=picture.size * 2)


@handler("both.typed-sync")
def typed_sync(context: SyncContext, picture: Picture) -> Thumbnail:
    context.checkpoint({"size": picture.size})
    return Thumbnail(path=picture.path, bytes=picture.size)


class NeedsArguments(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()
        """Nothing that could be pickled."""


@handler("both.raises")
async def raises(context: Context, inputs: dict[str, Any]) -> None:
    del context
    match inputs["what"]:
        case "arguments":
            raise NeedsArguments("this", "that")
        case "long":
            raise ValueError("m" * 10_000_000)
        case "surrogate":
            raise ValueError("lone \ud800 surrogate")
        case "control":
            raise ValueError("\x1b[2J cleared")
        case "final":
            raise Fail("never")
        case _:
            raise Blocked("what now", needs={"of": inputs["what"]})


@handler("both.returns")
async def returns(context: Context, inputs: dict[str, Any]) -> Any:
    del context
    made: dict[str, Any] = {
        "fits": {"items": [-(2**63), 2**63, {"id": 2**64 - 1}]},
        "large integer": {"items": [0, 1, 2, {"id": 2**64}]},
        "small integer": {"items": [0, 1, 2, {"id": -(2**63) - 1}]},
        "integer key": {"a": {1: 2}},
        "tuple key": {"a": {(1, 2): 0}},
        "twin keys": {"a": {b"k": 1, "k": 2}},
        "large": b"x" * (50 * MIB),
    }
    return made[inputs["what"]]


@handler("both.saves")
async def saves(context: Context, inputs: dict[str, Any]) -> str:
    await context.checkpoint({"state": b"x" * inputs["bytes"]})
    return "saved"


@handler("both.slow")
async def slow(context: Context, inputs: dict[str, Any]) -> str:
    del context
    await asyncio.sleep(inputs["s"])
    return "slept"


@handler("both.tries")
def tries(context: SyncContext, inputs: dict[str, Any]) -> list[int]:
    """Fails until its attempt is the one that is asked for."""
    context.progress(context.attempt, inputs["good"], milestone=f"attempt {context.attempt}")
    context.checkpoint({"seen": [*context.checkpoint_state.get("seen", []), context.attempt]})
    if context.attempt < inputs["good"]:
        raise Fail("not yet", retryable=True)
    time.sleep(0)
    return list(context.checkpoint_state["seen"])


@handler("both.leaves")
async def leaves(context: Context, inputs: dict[str, Any]) -> int:
    """Returns while something it has begun goes on, and will not end for a minute."""
    del context
    await leave(inputs["what"])
    return os.getpid()


@handler("both.leaves-sync")
def leaves_sync(context: SyncContext, inputs: dict[str, Any]) -> int:
    """Likewise."""
    del context
    anyio.from_thread.run(leave, inputs["what"])
    return os.getpid()


LEFT: list[object] = []
"""What nobody else holds would be collected."""


async def leave(what: str) -> None:
    loop, begun, end_s = asyncio.get_running_loop(), asyncio.Event(), time.monotonic() + 60

    def works() -> None:
        loop.call_soon_threadsafe(begun.set)
        while time.monotonic() < end_s:
            time.sleep(0.05)

    async def swallows() -> None:
        begun.set()
        while time.monotonic() < end_s:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    match what:
        case "a task that swallows its cancellation":
            LEFT.append(loop.create_task(swallows()))
        case "the executor of the loop":
            LEFT.append(loop.run_in_executor(None, works))
        case "an executor of its own":
            LEFT.append(executor := concurrent.futures.ThreadPoolExecutor(1))
            LEFT.append(executor.submit(works))
        case "a thread of anyio":
            LEFT.append(loop.create_task(anyio.to_thread.run_sync(works)))
        case "a thread":
            threading.Thread(target=works, name="left").start()
        case _:
            raise Fail(what)
    await begun.wait()
