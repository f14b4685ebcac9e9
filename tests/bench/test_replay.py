"""A Group of 200,000 Events is folded from its start, and from a Snapshot near its end: Events a second, CPU an Event."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis
from bench.measuring import Results
from builders import GROUP
from lives import a_log, entry_of
from treadle.shared.projection import Projection
from treadle.shared.store import Store, keys, snapshots

EVENTS, ALIVE = 200_000, 500
CPU_US_MAX = 20
"""A fold of 50,000 Events a second on one core."""


def fill(url: str, store: Store, events: int) -> None:
    """Writes a legal log of a Group, with the record of its Mission."""
    base = store.base(store.partition_of(GROUP))
    with redis.Redis.from_url(url) as client:
        client.hset(keys.groups(base), GROUP, "active 1 acme standard 1 open")
        client.hset(keys.seqs(base), GROUP, events)
        named = {"total": 1, "verified": 0, "failed": 0, "cancelled": 0, "live": 1, "keep": 1, "state": "active"}
        client.hset(keys.mission(base, GROUP), mapping=named)
        log = a_log(1, events, alive=ALIVE)
        for start in range(0, events, 5_000):
            pipe = client.pipeline(transaction=False)
            for event in log[start : start + 5_000]:
                entry_id, fields = entry_of(event)
                pipe.xadd(keys.log(base, GROUP), fields, id=entry_id)
            pipe.execute()


async def timed(store: Store, *, from_start: bool) -> tuple[Projection, float, float]:
    """What a fold gives, its seconds, and those of this process's CPU."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    found = await snapshots.fold(store, GROUP, from_start=from_start)
    return found, time.perf_counter() - began_s, time.process_time() - cpu_s


@pytest.mark.timeout(300)
async def test_replay(
    emptied: Callable[[], str], results: Results, rounds: range, scaled: Callable[[int], int]
) -> None:
    events = scaled(EVENTS)
    url = emptied()
    store = await Store.connect(url)
    try:
        fill(url, store, events)
        case = f"replay of {events:,} Events"
        for _ in rounds:
            whole, wall_s, cpu_s = await timed(store, from_start=True)
            assert whole.through >= events
            cpu_us = cpu_s * 1e6 / whole.through
            results.add(case, {"events/s": whole.through / wall_s, "client CPU us/event": cpu_us})
            assert cpu_us < CPU_US_MAX, f"{cpu_us:.1f} us of CPU an Event, at most {CPU_US_MAX}"
        began_s = time.perf_counter()
        made = await snapshots.create(store, GROUP)
        results.add(f"{case}: Snapshot made, installed, log trimmed", {"seconds": time.perf_counter() - began_s})
        for _ in rounds:
            later, wall_s, _ = await timed(store, from_start=False)
            results.add(f"{case}: taken up from the Snapshot", {"ms": wall_s * 1000, "Snapshot KiB": made.size / 1024})
        # The Event of the Snapshot itself came after the whole replay; but for it they are equal, byte for byte.
        assert later.through == whole.through + 1
        later.through = whole.through
        assert later.digest() == whole.digest()
    finally:
        await store.aclose()
