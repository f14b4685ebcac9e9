"""The handlers of `test_slots.py`: each gives the time of its own first line."""

from __future__ import annotations

import time
from typing import Any

from treadle.worker import Context, SyncContext, handler


@handler("starts.loop")
async def on_the_loop(_context: Context, _inputs: dict[str, Any]) -> float:
    """The machine's monotonic clock, which all processes share."""
    return time.monotonic()


@handler("starts.thread")
def in_a_thread(_context: SyncContext, _inputs: dict[str, Any]) -> float:
    """Likewise."""
    return time.monotonic()
