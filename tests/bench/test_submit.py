"""Submitting: how fast the SDK and the store take work in, by the size of a Group."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from bench.loads import submit
from bench.measuring import Counters, Results


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("groups", "each"), [(1, 10_000), (100, 100), (2_000, 1)])
async def test_submit(
    emptied: Callable[[], str],
    admin: redis.Redis,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
    groups: int,
    each: int,
) -> None:
    groups = scaled(groups)
    for _ in rounds:
        url = emptied()
        await submit(url, 1, 1, first="before")  # opens the store
        before = Counters.now(admin)
        await submit(url, groups, each)
        figures = before.until(Counters.now(admin), groups * each)
        figures.pop("worker us")
        results.add(f"submit, {groups:,} Groups of {each:,}", figures)
