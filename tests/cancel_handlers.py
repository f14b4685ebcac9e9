"""One handler for each runtime that does as its inputs say, for `system/test_cancelling.py`."""

from __future__ import annotations

import time
from typing import Any

import anyio
from fleet_handlers import FOLDER, note
from treadle.worker import Blocked, Context, SyncContext, handler

PACE_S = 0.01


@handler("cancel.task")
async def in_a_task(context: Context, inputs: dict[str, Any]) -> int:
    """On the event loop: it is cancelled at its next await."""
    note(context, "begin")
    try:
        match inputs["does"]:
            case "waits" | "keeps":
                await anyio.sleep(3_600)
            case "saves":
                while True:
                    await context.checkpoint({"saved": True})
                    note(context, "saved")
                    await anyio.sleep(PACE_S)
            case "sleeps":
                await anyio.sleep(inputs["s"])
            case does:
                _at_once(does)
    finally:
        note(context, "out")
    return context.attempt


def _in_python(context: SyncContext, inputs: dict[str, Any]) -> int:
    note(context, "begin")
    try:
        match inputs["does"]:
            case "waits":
                while not context.why_stopped:
                    time.sleep(PACE_S)
                context.checkpoint({"saved": True})
            case "keeps":
                while not context.cancelled:
                    time.sleep(PACE_S)
                context.checkpoint({"saved": True})
            case "saves":
                while True:
                    context.checkpoint({"saved": True})
                    note(context, "saved")
                    time.sleep(PACE_S)
            case "sleeps":
                time.sleep(inputs["s"])
            case does:
                _at_once(does)
    finally:
        note(context, "out")
    return context.attempt


@handler("cancel.thread")
def in_a_thread(context: SyncContext, inputs: dict[str, Any]) -> int:
    """In a thread: it ends at its next checkpoint."""
    return _in_python(context, inputs)


@handler("cancel.process", runtime="process", environment=(FOLDER,))
def in_a_process(context: SyncContext, inputs: dict[str, Any]) -> int:
    """In a process of its own."""
    return _in_python(context, inputs)


def _at_once(does: str) -> None:
    if does == "asks":
        raise Blocked("which?", needs={"of": "one"})
    if does == "fails":
        raise ValueError("as it was told")
