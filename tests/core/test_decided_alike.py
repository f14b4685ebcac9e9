"""The same log of what was told gives the same decisions, in any process and whatever the hashes of its strings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from builders import AGENT, CAPABILITY, NOW_MS, Run, TinyStore
from treadle.shared.model import Capability, DirectoryEntry, GroupId, NodeUsage, Usage
from treadle.worker.core.schedule import View, decide
from treadle.worker.core.tree import Ready

Log = list[tuple[list[NodeUsage], list[DirectoryEntry], int, int]]
"""What was told, when, and how many slots were free then."""


def recorded() -> tuple[Log, str]:
    """A Worker's log of a minute with 40 Groups of 7 accounts in 2 classes, and what it decided."""
    store, ready, log, decided = TinyStore(), Ready(AGENT, [CAPABILITY]), Log(), ""
    running: list[tuple[int, int]] = []
    runs: list[Run] = []
    for number in range(40):
        priority_class = ["standard", "gold"][number % 2]
        lengths = [50 + 37 * number] * (3 + number % 5)
        account = f"account{number % 7}"
        store.add(f"g{number}", lengths, NOW_MS, partition=number % 4, account=account, priority_class=priority_class)
    for step in range(120):
        now_ms = NOW_MS + 500 * step
        while running and running[0][0] <= now_ms:
            end_ms, key = running.pop(0)
            store.end(runs[key], end_ms)
        if step % 10 == 0:
            store.add(f"late{step}", [200] * 5, now_ms, account=f"account{step % 3}")
        told = (store.nodes(), store.changes(), now_ms, 8 - len(running))
        log.append(told)
        decided += play(ready, [told])
        actions = decide(View(ready, told[3]), now_ms)
        for run in store.take(actions, told[3], now_ms):
            running.append((now_ms + run.run_ms, len(runs)))
            runs.append(run)
        running.sort()
    return log, decided


def play(ready: Ready, log: Log) -> str:
    """The decisions that a log leads to, in full."""
    lines = []
    for nodes, entries, now_ms, free in log:
        ready.service(nodes, now_ms)
        ready.update(entries, now_ms)
        lines.append(f"{decide(View(ready, free), now_ms)} {ready.levels(now_ms)}\n")
    return "".join(lines)


def read(text: str) -> Log:
    return [
        (
            [NodeUsage(one["partition"], one["node"], Usage(**one["usage"])) for one in nodes],
            [
                DirectoryEntry(
                    **{
                        **one,
                        "group": GroupId(one["group"]),
                        "capability": Capability(one["capability"]),
                        "usage": Usage(**one["usage"]),
                    }
                )
                for one in entries
            ],
            now_ms,
            free,
        )
        for nodes, entries, now_ms, free in json.loads(text)
    ]


def test_a_recorded_log_is_decided_alike_in_every_process() -> None:
    log, decided = recorded()
    assert decided.count("Take(") > 200
    text = json.dumps(
        [([asdict(n) for n in nodes], [asdict(e) for e in entries], *rest) for nodes, entries, *rest in log]
    )
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent.parent)}
        replayed = subprocess.run(
            [sys.executable, __file__],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=60,
        )
        assert replayed.stdout == decided, f"PYTHONHASHSEED={seed}"


if __name__ == "__main__":
    sys.stdout.write(play(Ready(AGENT, [CAPABILITY]), read(sys.stdin.read())))
