"""A handler that speaks past its context, straight into its line, for `core/test_slot_garbage.py`."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from treadle.worker import Context, handler
from treadle.worker.slots.piped import Line


@handler("garbage", runtime="process")
async def garbage(_context: Context, inputs: dict[str, Any]) -> str:
    """Says `raw`, `times` times, and returns, or waits for its end."""
    (line,) = [one for one in gc.get_objects() if type(one) is Line]
    for _ in range(inputs.get("times", 1)):
        line._link.sendall(inputs["raw"])
    if inputs.get("waits", True):
        await asyncio.sleep(3_600)
    return "done"
