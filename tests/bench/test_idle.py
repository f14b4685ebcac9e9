"""One Worker with 1,000 Groups in which nothing is to be done: what it costs, and how soon work in one of them begins."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
import pytest
import redis
from bench.conftest import Crew
from bench.measuring import Counters, Results, percentile
from treadle.coordinator import Client, MissionSpec, WorkSpec

GROUPS, JOBS, GAP_S, SETTLE_S, IDLE_S = 1_000, 100, 0.02, 2.0, 15.0


@pytest.mark.timeout(300)
async def test_idle(
    emptied: Callable[[], str],
    admin: redis.Redis,
    crew: Crew,
    results: Results,
    rounds: range,
    scaled: Callable[[int], int],
) -> None:
    groups, jobs = scaled(GROUPS), min(JOBS, scaled(GROUPS))
    for _ in rounds:
        url = emptied()
        async with Client.connect(url, actor="bench") as client:
            missions = [
                await client.submit(MissionSpec(id=f"g{n}", objective="idle", open=True, work=[]))
                for n in range(groups)
            ]
            pid = crew.start(url)
            await anyio.sleep(SETTLE_S)
            before = Counters.now(admin, pid)
            await anyio.sleep(IDLE_S)
            after = Counters.now(admin, pid)
            wall_s = after.at_s - before.at_s
            connections = int(admin.info("clients")["connected_clients"])
            sent: list[float] = []
            for number in range(jobs):
                sent.append(time.monotonic())
                await missions[number].add([WorkSpec(id="i", capability="stamp", inputs={"i": number})])
                await anyio.sleep(GAP_S)
        crew.wait(lambda: sum(words[0] == "stamp" for words in crew.log()) == jobs, "all items began", 30)
        delays = [1000 * (float(w[2]) - sent[int(w[1])]) for w in crew.log() if w[0] == "stamp"]
        results.add(
            f"idle, {groups:,} Groups",
            {
                "Worker CPU %": 100 * (after.worker_s - before.worker_s) / wall_s,
                "server CPU %": 100 * (after.server_s - before.server_s) / wall_s,
                "commands/s": (after.commands - before.commands) / wall_s,
                "connections": connections - 2,  # this test's own two
                "delivery p50 ms": percentile(delays, 0.5),
                "delivery p99 ms": percentile(delays, 0.99),
            },
        )
        crew.stop()
