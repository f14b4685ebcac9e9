"""From `enqueue` to the handler's first line, at 50 jobs a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
import pytest
import redis
from bench.conftest import Crew
from bench.measuring import Counters, Results, percentile
from treadle.coordinator import Client

JOBS, WARM, GAP_S = 400, 20, 0.02


@pytest.mark.timeout(300)
async def test_latency(
    emptied: Callable[[], str],
    admin: redis.Redis,
    crew: Crew,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
) -> None:
    jobs = scaled(JOBS)
    for _ in rounds:
        url = emptied()
        pid = crew.start(url)
        sent: list[float] = []
        before = Counters.now(admin, pid)
        async with Client.connect(url, actor="bench") as client:
            begun_s = anyio.current_time()
            for number in range(WARM + jobs):
                if number == WARM:
                    before = Counters.now(admin, pid)
                await anyio.sleep(max(0.0, begun_s + number * GAP_S - anyio.current_time()))
                sent.append(time.monotonic())
                await client.enqueue("stamp", {"i": number})
        crew.wait(lambda: sum(words[0] == "stamp" for words in crew.log()) == WARM + jobs, "all jobs began", 30)
        costs = before.until(Counters.now(admin, pid), jobs)
        started = {int(words[1]): float(words[2]) for words in crew.log() if words[0] == "stamp"}
        delays = [1000 * (started[number] - sent[number]) for number in range(WARM, WARM + jobs)]
        results.add(
            "latency of enqueue at 50/s",
            {
                "p50 ms": percentile(delays, 0.5),
                "p95 ms": percentile(delays, 0.95),
                "p99 ms": percentile(delays, 0.99),
                "worst ms": max(delays),
                **{name: costs[name] for name in ("server us", "worker us", "commands", "reads", "others %")},
            },
        )
        crew.stop()
