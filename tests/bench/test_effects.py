"""What an effect costs, without a gate and at one, beside a Checkpoint: one slot, and one of them in each item."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from bench.conftest import Crew
from bench.loads import drained, submit
from bench.measuring import Results

CASES = {
    "noop": "nothing",
    "checkpoint": "one checkpoint",
    "effect.no-gate": "one effect, no gate",
    "effect.sqlite": "one effect at SQLite",
    "effect.file": "one effect at a file",
}
ITEMS = 200
LIMIT_S = 30.0


@pytest.mark.timeout(900)
async def test_effects(
    emptied: Callable[[], str],
    admin: redis.Redis,
    crew: Crew,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
) -> None:
    items = scaled(ITEMS)
    for _ in rounds:
        for capability, case in CASES.items():  # alternating, so that each meets the same neighbours
            url = emptied()
            await submit(url, 1, items, capability)
            pid = crew.start(url, slots=1)
            figures = drained(admin, crew, pid, items, limit_s=LIMIT_S)
            results.add(f"one slot, {case}", {"in the handler ms": crew.took_ms(), **figures})
            crew.stop()
