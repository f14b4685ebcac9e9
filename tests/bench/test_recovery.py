"""A Worker is killed in the middle of an item: how long until another one begins it again, at a lease TTL of 1 s."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bench.conftest import Crew
from bench.measuring import Results
from treadle.coordinator import Client
from treadle.shared.processes import kill_tree

TTL_S = 1.0


@pytest.mark.timeout(120)
async def test_recovery(emptied: Callable[[], str], crew: Crew, results: Results, rounds: range) -> None:
    for _ in rounds:
        url = emptied()
        for name in ("one", "two"):
            crew.start(url, name, slots=1, ttl_s=TTL_S)
        async with Client.connect(url, actor="bench") as client:
            await client.enqueue("slow", {"s": 3.0})

        def starts() -> list[list[str]]:
            return [words for words in crew.log() if words[0] == "start"]

        crew.wait(lambda: len(starts()) == 1, "the item began", 20)
        victim = crew.children.pop(starts()[0][3])
        killed_s = time.monotonic()
        kill_tree(victim.identity)
        victim.wait(5)
        crew.wait(lambda: len(starts()) == 2, "the item began again", 20)
        results.add(f"recovery after kill -9, TTL {TTL_S:g} s", {"seconds": float(starts()[1][2]) - killed_s})
        crew.stop()
