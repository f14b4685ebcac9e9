"""What the Workers of the compose cluster can do: one handler, slow enough to be interrupted.

Mounted at /app, as all of this folder; put your own in its place.
"""

from __future__ import annotations

import hashlib
from typing import Any

import anyio
from treadle.worker import Context, handler


def link(value: str, number: int) -> str:
    """One step: left out, done twice or out of order, it gives another value for ever after."""
    return hashlib.sha256(f"{value} {number}".encode()).hexdigest()


@handler("cluster.chain")
async def chain(context: Context, inputs: dict[str, Any]) -> str:
    """`steps` links of a hash chain, one each `pace_s` seconds, saved after each: a takeover goes on where it stopped."""
    value: str = context.checkpoint_state.get("value", context.item)
    for number in range(context.checkpoint_state.get("done", 0) + 1, inputs["steps"] + 1):
        await anyio.sleep(inputs["pace_s"])
        value = link(value, number)
        await context.checkpoint({"done": number, "value": value})
    context.logger.info("chain of %s steps ends in %s", inputs["steps"], value[:12])
    return value
