"""The CPU time of a decision: three levels, budgets and quotas on, 16 free slots, few Groups or many, few queued items or many.

A decision is one planned item. A draw of several items counts as that many; fall-backs, two a call as in a steady drain, do
not count, though their cost does. `yardstick ns` is the time of one fixed piece of plain Python in the same round: on a busy
machine compare with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from bench.measuring import Results
from builders import AGENT, CAPABILITY, NOW_MS, a_usage, an_entry
from treadle.shared.model import NodeUsage
from treadle.shared.policy import AccountRule, MissionRule, Policy, Rule
from treadle.worker.core.schedule import FALLBACKS_MIN, View, decide
from treadle.worker.core.tree import Ready

SLOTS = 16
PARTITIONS = 16
CALLS = 300
TYPICAL_MS = 20
POLICY = Policy(
    version=1,
    classes=(("standard", 1.0), ("gold", 5.0)),
    accounts=(Rule("account1*", AccountRule(weight=2.0, slots=10_000)),),
    missions=(Rule("*/g1*", MissionRule(slots=1_000)),),
)


def a_tree(groups: int, queued: int) -> Ready:
    """Groups of ten to an account, in two classes and 16 partitions, a third of them with something running."""
    accounts = max(1, groups // 10)
    classes = [("standard", "gold")[number % 2] for number in range(accounts)]
    names = [f"a:{priority_class}:account{number}" for number, priority_class in enumerate(classes)]
    ready = Ready(AGENT, [CAPABILITY])
    ready.begin(0)
    ready.govern(POLICY, NOW_MS)
    for partition in range(PARTITIONS):
        nodes = [
            NodeUsage(partition, name, a_usage(used_ms=1_000 * (number % 7), typical_ms=TYPICAL_MS))
            for number, name in enumerate([*names, "c:standard", "c:gold"])
        ]
        ready.service(nodes, NOW_MS)
    entries = []
    for number in range(groups):
        running = number % 3 == 0
        usage = a_usage(
            used_ms=number * 37 % 5_000,
            running=int(running),
            estimate_ms=TYPICAL_MS * running,
            typical_ms=TYPICAL_MS,
            entry=1,
            entry_ms=NOW_MS,
            served=True,
        )
        account = number % accounts
        entries.append(
            an_entry(
                f"g{number}",
                queued // groups,
                partition=number % PARTITIONS,
                weight=1.0 + number % 3,
                account=f"account{account}",
                priority_class=classes[account],
                usage=usage,
            )
        )
    ready.update(entries, NOW_MS)
    return ready


def yardstick_s() -> float:
    """Seconds of CPU of one turn of a loop that builds a tuple and looks into a dict."""
    known = dict.fromkeys(range(100), 1)
    began_s = time.process_time()
    for number in range(100_000):
        known[(number, 1)[0] % 100] += 1
    return (time.process_time() - began_s) / 100_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("groups", "queued"), [(1, 1_000), (100, 100_000), (10_000, 1_000_000), (100, 1_000), (100, 1_000_000)]
)
def test_decisions(results: Results, rounds: range, scaled: Callable[[int], int], groups: int, queued: int) -> None:
    ready = a_tree(groups, queued)
    view = View(ready, SLOTS, fallbacks=FALLBACKS_MIN)
    expected = decide(view, NOW_MS)
    calls = scaled(CALLS)
    for _ in rounds:
        planned, began_s = 0, time.process_time()
        for _ in range(calls):
            actions = decide(view, NOW_MS)
            planned += sum(take.most for take in actions if not take.fallback)
        used_s = time.process_time() - began_s
        assert actions == expected
        assert planned == SLOTS * calls
        figures = {"decisions/s of CPU": planned / used_s, "us a call": 1e6 * used_s / calls}
        results.add(
            f"decisions, {groups:,} Groups, {queued:,} items queued", {**figures, "yardstick ns": 1e9 * yardstick_s()}
        )
