"""What changes while all runs, weights, caps, capacity, Workers: it counts from the next decision on, and nobody is owed.

Between two changes the bound (a) holds as if the world had always been so, over every interval that begins with the change.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from lab.bounds import Node, apart_bound_ms
from lab.laboratory import Lab
from lab.measures import service_ms
from lab.workers import LabWorker
from treadle.shared.policy import MissionRule, Policy, Rule

SPAN_MS = 8_000
RUNS_MS = {"a": (100, 400), "b": (1_000,), "c": (300, 300, 900)}


class Changing(Lab):
    """A laboratory in which a Worker may have less slots than it uses: then it is given nothing until it has drained."""

    used: dict[LabWorker, int]

    def change(self) -> None:
        """Whoever has a free slot decides anew."""
        self._is_news = True

    def check(self) -> None:
        before, self.used = getattr(self, "used", {}), {worker: worker.slots - worker.free for worker in self.workers}
        for worker, used in self.used.items():
            assert used <= max(worker.slots, before.get(worker, 0)), "nothing is started beyond the slots there are"
            if self.is_work_conserving and worker.is_alive and worker.free > 0:
                assert not self.books.takeable(worker.capabilities), "no slot is free while something waits"


def policy(version: int, weights: Mapping[str, float], caps: Mapping[str, int]) -> Policy:
    rules = [Rule(f"*/{name}", MissionRule(weight=weight, slots=caps.get(name))) for name, weight in weights.items()]
    return Policy(version=version, missions=tuple(rules))


def apart_ms(lab: Lab, weights: Mapping[str, float], since_ms: int, until_ms: int) -> float:
    """The most by which the service by weight of two Groups, ready throughout, came apart within a span."""
    one, other = weights
    running = dict.fromkeys(weights, 0)
    lag = low = high = 0.0
    last_ms = since_ms
    for at_ms, group, width in [*lab.changes, (until_ms, one, 0)]:
        if at_ms > last_ms:
            lag += (at_ms - last_ms) * (running[one] / weights[one] - running[other] / weights[other])
            low, high, last_ms = min(low, lag), max(high, lag), at_ms
        if group in running:
            running[group] += width
    return high - low


def reached(seed: int) -> float:
    """A world that changes ten times; the largest part of the bound that two Groups without a cap reached between two."""
    dice = random.Random(seed)
    workers, slots = dice.choice([(1, 1), (1, 4), (2, 2), (4, 1)])
    lab = Changing(workers, slots, draw=1, seed=seed)
    weights = {name: dice.choice([1.0, 2.0, 5.0]) for name in RUNS_MS}
    caps: dict[str, int] = {}
    lab.govern(policy(1, weights, caps))
    for name, runs in RUNS_MS.items():
        lab.open(name, runs_ms=runs * (12 * SPAN_MS * 8 // sum(runs)))
    worst = 0.0
    for version in range(2, 12):
        since_ms = lab.now_ms
        lab.is_work_conserving = not caps
        lab.change()
        lab.for_s(dice.randint(100, SPAN_MS) / 1_000)
        alive = [worker for worker in lab.workers if worker.is_alive]
        nodes = {name: Node(weight, max(RUNS_MS[name])) for name, weight in weights.items()}
        for one, other in combinations([name for name in RUNS_MS if name not in caps], 2):
            most = sum(max(worker.slots, worker.slots - worker.free) for worker in alive)
            bound = apart_bound_ms(nodes[one], nodes[other], list(nodes.values()), slots=most)
            found = apart_ms(lab, {one: weights[one], other: weights[other]}, since_ms, lab.now_ms)
            worst = max(worst, found / bound)
        match dice.choice(["weight", "weight", "cap", "slots", "join", "crash"]):
            case "weight":
                weights[dice.choice(list(RUNS_MS))] = dice.choice([1.0, 2.0, 5.0])
            case "cap":
                name = dice.choice(list(RUNS_MS))
                if caps.pop(name, None) is None:
                    caps[name] = dice.randint(1, 2)
            case "slots":
                dice.choice(alive).slots = dice.randint(1, 4)
            case "join":
                lab.join(dice.randint(1, 2))
            case _ if len(alive) > 1:
                lab.crash(dice.choice(alive), 2_000)
            case _:
                pass
        lab.govern(policy(version, weights, caps))
    return worst


@settings(max_examples=12)
@given(st.integers(0, 1 << 30))
@example(162870604)  # a Worker comes between a new weight and the take that tells the lag
def test_s21_after_any_change_no_two_groups_come_apart_by_more_than_the_bound(seed: int) -> None:
    """Ten changes of weights, of caps, of a Worker's slots, Workers that join and crash; 0.1 to 8 s between two of them."""
    assert reached(seed) <= 1


def test_a_worker_with_less_slots_than_it_uses_drains_and_then_shares_what_is_left() -> None:
    """Four slots, later one, in the middle of eight runs: nothing is cut, nothing is started before three have ended."""
    lab = Changing(1, 4)
    for name in ("a", "b"):
        lab.open(name, runs_ms=[1_000] * 40)
    lab.for_s(1.5)
    (worker,) = lab.workers
    worker.slots = 1
    ended, begun = len(lab.ended), len(lab.changes)
    lab.for_s(0.6)
    assert len(lab.ended) - ended == 4
    assert [width for _, _, width in lab.changes[begun:]].count(1) == 1
    since_ms = lab.now_ms
    lab.for_s(20)
    had = service_ms(lab, since_ms, lab.now_ms)
    assert abs(had["a"] - had["b"]) <= 1_000
