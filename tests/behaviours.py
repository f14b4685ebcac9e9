"""Handlers that behave in every way a handler can, for `system/test_both_runtimes.py`: none says where it runs."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anyio
from pydantic import BaseModel
from treadle.worker import Blocked, Context, Fail, SyncContext, handler, tool


class Odd(BaseException):
    """Not an Exception."""


class Files(BaseModel):
    names: list[str]


class Counted(BaseModel):
    count: int


@handler("both.raises")
async def raises(_context: Context, inputs: dict[str, Any]) -> Any:
    """Ends as `how` says."""
    match inputs["how"]:
        case "value-error":
            raise ValueError("no such thing")
        case "fail":
            raise Fail("never")
        case "fail-retryable":
            raise Fail("later", retryable=True)
        case "group":
            raise ExceptionGroup("several", [Fail("one"), ValueError("two")])
        case "odd":
            raise Odd("odd")
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator-exit":
            raise GeneratorExit
        case "stop-iteration":
            raise StopIteration(1)
        case "cancelled":
            raise asyncio.CancelledError
        case "set":
            return {"a": [1, {2}]}
        case "large":
            return "x" * (2 << 20)
        case "surrogate":
            return "\ud800"
        case "blocked-badly":
            raise Blocked("", lease_s=60)
        case "in-a-task":
            async with anyio.create_task_group() as group:
                group.start_soon(fails)
    return inputs["how"]


async def fails() -> None:
    """Fails, in a task."""
    raise LookupError("in a task")


@handler("both.raises_in_thread")
def raises_in_thread(_context: SyncContext, inputs: dict[str, Any]) -> Any:
    """Likewise, as a plain function."""
    match inputs["how"]:
        case "stop-iteration":
            raise StopIteration(1)
        case "exit":
            raise SystemExit(3)
        case "coroutine":
            return fails()
    return inputs["how"]


@handler("both.typed")
async def typed(context: Context, inputs: Files) -> Counted:
    """Takes and gives typed values, and saves on the way."""
    for number in range(len(inputs.names)):
        await context.checkpoint({"done": number + 1})
    return Counted(count=context.checkpoint_state["done"])


@handler("both.folder")
async def folder(context: Context, _inputs: dict[str, Any]) -> dict[str, Any]:
    """What it has of its own, with something left in it that is to be removed."""
    where = context.folder
    left = {"mode": where.stat().st_mode & 0o777, "files": [one.name for one in where.iterdir()], "path": str(where)}
    (where / "inner").mkdir()
    (where / "inner" / "left").touch()
    return left if where == context.folder else {}


@handler("both.folder_in_thread")
def folder_in_thread(context: SyncContext, _inputs: dict[str, Any]) -> str:
    """Likewise."""
    (context.folder / "left").touch()
    return str(context.folder)


@handler("both.slow")
async def slow(_context: Context, _inputs: dict[str, Any]) -> None:
    """Longer than it may."""
    await asyncio.sleep(60)


@handler("both.slow_and_saves")
async def slow_and_saves(context: Context, _inputs: dict[str, Any]) -> str:
    """Cleans up where it is cancelled, and then returns something after all."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "cleaned up " + context.item
    return "slept"


@handler("both.slow_in_thread")
def slow_in_thread(context: SyncContext, _inputs: dict[str, Any]) -> None:
    """Longer than it may, with checkpoints."""
    for number in range(1_000):
        time.sleep(0.02)
        context.checkpoint({"number": number})


@tool("both.upper")
def upper(word: str) -> str:
    """Marked where the handlers are."""
    return word.upper()


@handler("both.uses_a_tool")
async def uses_a_tool(context: Context, inputs: dict[str, Any]) -> Any:
    """What the tool says."""
    return await context.tool("both.upper")(inputs["word"])
