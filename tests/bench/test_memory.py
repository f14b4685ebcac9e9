"""What a queued item takes of the server's memory, by the size of its Group."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from bench.loads import submit
from bench.measuring import Results

CASES = [(50, 100, 512), (2_000, 1, 512), (2_000, 1, 4096)]
"""Groups, items in each, and the server's `stream-node-max-bytes` (4096 is its default)."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("groups", "each", "node_bytes"), CASES)
async def test_memory(
    emptied: Callable[[], str],
    admin: redis.Redis,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
    groups: int,
    each: int,
    node_bytes: int,
) -> None:
    groups = scaled(groups)
    for _ in rounds:
        url = emptied()
        admin.config_set("stream-node-max-bytes", node_bytes)
        await submit(url, 1, 1, first="before")  # opens the store
        before = admin.info("memory")["used_memory"]
        await submit(url, groups, each)
        taken = admin.info("memory")["used_memory"] - before
        results.add(
            f"memory, {groups:,} Groups of {each:,}, stream nodes of {node_bytes:,} bytes",
            {"bytes an item": taken / (groups * each)},
        )
