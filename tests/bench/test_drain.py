"""Draining no-op items with one Worker of 16 slots: many in few Groups, few in many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from bench.conftest import Crew
from bench.loads import drained, submit
from bench.measuring import Results

LIMIT_S = 20.0
"""How long one round is measured at most: what is left then is left."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("groups", "each"), [(1, 10_000), (100, 200), (10_000, 2)])
async def test_drain(
    emptied: Callable[[], str],
    admin: redis.Redis,
    crew: Crew,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
    groups: int,
    each: int,
) -> None:
    if groups > each:
        groups = scaled(groups)
    else:
        each = scaled(each)
    for _ in rounds:
        url = emptied()
        await submit(url, groups, each)
        pid = crew.start(url)
        results.add(f"drain, {groups:,} Groups of {each:,}", drained(admin, crew, pid, groups * each, limit_s=LIMIT_S))
        crew.stop()
