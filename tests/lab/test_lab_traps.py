"""The traps of weighted fair queueing over stale counters: the rule as it is, and the variant that looks as good and fails.

Each test runs one world twice: as the code is, and with one rule broken on purpose. The first keeps its promise, the second
breaks it: whoever takes such a variant for a simplification is told here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from builders import NOW_MS
from lab.bounds import Node, apart_bound_ms
from lab.laboratory import Lab
from lab.measures import apart_ms, service_ms, shares
from lab.workers import LabWorker
from treadle.shared.model import GroupId, Usage
from treadle.shared.policy import MissionRule, Policy, Rule
from treadle.worker.core import fairness, tree
from treadle.worker.core.fairness import Standing, pick_key
from treadle.worker.core.nodes import Leaf, Level
from treadle.worker.core.tree import Ready


def share_since(lab: Lab, group: str, since_ms: int) -> float:
    return shares(lab, since_ms, lab.now_ms).get(group, 0.0)


def leaves(ready: Ready) -> list[Leaf]:
    last = [ready.path_of(group)[-1] for group in ready.standings()]
    return [node for node in last if isinstance(node, Leaf)]


# --- tags and the level ---


def test_trap_a_tag_that_is_read_again_at_each_decision_never_lets_the_waiting_group_win() -> None:
    def read_again(worker: LabWorker) -> None:
        for leaf in leaves(worker.ready):
            if leaf.is_listed and not leaf.standing.usage.served:
                level = leaf.level.virtual_time(worker.ready.tick(0))
                leaf.set(replace(leaf.standing, tag=max(leaf.standing.tag, level)))
                leaf.level.list(leaf, worker.ready.tick(0))

    def run(meddle: Callable[[LabWorker], None] | None) -> float:
        lab = Lab(1, 1)
        lab.meddle = meddle
        lab.open("a", runs_ms=[1_000] * 400)
        lab.for_s(10)
        lab.open("b", runs_ms=[1_000] * 400)
        lab.for_s(300)
        return share_since(lab, "b", NOW_MS + 10_000)

    assert run(None) == pytest.approx(0.5, abs=0.01)
    assert run(read_again) == 0


def test_trap_a_level_that_only_rises_starves_who_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was high for a moment, while a light Group ran alone; whoever enters later stands there, far before all others."""

    def run() -> float:
        lab = Lab(1, 1, stale_ms=20, in_phase=True)
        lab.open("light", weight=0.1, runs_ms=[1_000, 1_000])
        lab.at(NOW_MS + 1, partial(lab.open, "a", weight=10, runs_ms=[100] * 2_000))
        lab.at(NOW_MS + 900, partial(lab.open, "once", runs_ms=[100]))
        lab.at(NOW_MS + 5_000, partial(lab.open, "b", weight=10, runs_ms=[100] * 2_000))
        lab.for_s(65)
        return share_since(lab, "b", NOW_MS + 5_000)

    assert run() == pytest.approx(0.5, abs=0.02)
    reached: dict[Level, float] = {}
    as_it_is = Level.virtual_time

    def rising(level: Level, now_ms: int) -> float:
        reached[level] = max(reached.get(level, 0.0), as_it_is(level, now_ms))
        return reached[level]

    monkeypatch.setattr(Level, "virtual_time", rising)
    assert run() == 0


@pytest.fixture
def stream() -> Callable[[], float]:
    """A backlogged Group under an endless stream of one-item Groups, three of which wait at each moment; its share."""

    def run() -> float:
        lab = Lab(1, 1)
        lab.open("a", runs_ms=[1_000] * 400)
        lab.for_s(10)
        names = iter(range(10_000))

        def refill() -> None:
            waiting = sum(bool(line.queue) for line in lab.books.lines.values()) - 1
            for _ in range(max(0, 3 - waiting)):
                lab.open(f"one-{next(names)}", runs_ms=[1_000])

        lab.each(1_000, refill, until_ms=NOW_MS + 310_000)
        lab.for_s(300)
        return share_since(lab, "a", NOW_MS + 10_000)

    return run


def test_trap_a_level_over_all_ready_unserved_included_lets_a_stream_starve_a_backlogged_group(
    stream: Callable[[], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream() == pytest.approx(0.25, abs=0.03)
    monkeypatch.setattr(Level, "virtual_time", over_all)
    assert stream() < 0.05


def over_all(level: Level, now_ms: int) -> float:
    firsts = [first[0][0] for order in (level.served, level._tags) if (first := order.first(now_ms))]
    return min(firsts, default=level._last_pick)


def test_trap_a_level_over_another_pool_gives_a_newcomer_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that this Worker cannot start have had little: at their level a newcomer would be owed minutes."""
    as_it_is = Level.virtual_time

    def run(*, over_all_pools: bool) -> float:
        lab = Lab(1, 1)
        lab.join(1, ("render",))

        def with_others(level: Level, now_ms: int) -> float:
            others = [
                pick_key(line.counters.usage(), line.weight, now_ms) for line in lab.books.lines.values() if line.queue
            ]
            return min([as_it_is(level, now_ms), *others])

        if over_all_pools:
            monkeypatch.setattr(Level, "virtual_time", with_others)
        for number in range(20):
            lab.open(f"render-{number}", capability="render", runs_ms=[1_000] * 400)
        lab.open("a", runs_ms=[1_000] * 400)
        lab.for_s(120)
        lab.open("b", runs_ms=[1_000] * 400)
        lab.for_s(60)
        return shares(lab, NOW_MS + 120_000, lab.now_ms, lambda group: group[0])["b"] * 2

    assert run(over_all_pools=False) == pytest.approx(0.5, abs=0.02)
    assert run(over_all_pools=True) > 0.95


def test_trap_a_fluid_level_of_service_by_ready_weight_puts_a_newcomer_far_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slots filled by Groups that have nothing more to take count as service but not as weight: the level runs away."""

    def run(meddle: Callable[[Lab], None]) -> float:
        lab = Lab(1, 4)
        meddle(lab)
        for number in range(3):
            lab.open(f"long-{number}", runs_ms=[400_000])
        lab.open("a", runs_ms=[1_000] * 2_000)
        lab.for_s(120)
        lab.open("b", runs_ms=[1_000] * 2_000)
        lab.for_s(60)
        return service_of(lab, "b", NOW_MS + 120_000)

    def fluid(lab: Lab) -> None:
        state = {"at_ms": NOW_MS, "level": 0.0}

        def advance(worker: LabWorker) -> None:
            ready = [line.weight for line in lab.books.lines.values() if line.is_listed]
            state["level"] += (
                sum(run.work.width for run in worker.running) * (lab.now_ms - state["at_ms"]) / (sum(ready) or 1)
            )
            state["at_ms"] = lab.now_ms

        lab.meddle = advance
        monkeypatch.setattr(Level, "virtual_time", lambda *_: state["level"])

    assert run(lambda _: None) == pytest.approx(30_000, abs=1_500)
    assert run(fluid) <= 1_000


def service_of(lab: Lab, group: str, since_ms: int) -> int:
    return service_ms(lab, since_ms, lab.now_ms).get(group, 0)


def test_trap_a_clamp_on_idle_instead_of_not_ready_lets_one_that_always_runs_hoard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps one item running for a quarter of an hour, never idle and never with anything to take, then floods 4 slots."""

    def run() -> float:
        lab = Lab(1, 4)
        lab.open("a", runs_ms=[1_000] * 5_000)
        lab.open("shy")
        lab.each(1_000, lambda: lab.add("shy", [1_100]), until_ms=NOW_MS + 900_000)
        lab.run(NOW_MS + 900_000)
        lab.add("shy", [1_000] * 2_000)
        lab.for_s(60)
        return share_since(lab, "shy", NOW_MS + 905_000)

    assert run() == pytest.approx(0.5, abs=0.03)
    as_it_is = fairness.entry_tag

    def on_idle(node: Standing, now_ms: int, **of: Any) -> float:
        return node.virtual_time(now_ms) if node.usage.running else as_it_is(node, now_ms, **of)

    monkeypatch.setattr(tree, "entry_tag", on_idle)
    assert run() == 1


# --- estimates ---


def test_trap_without_a_charge_in_advance_all_free_slots_go_to_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 slots, weights 1:1:2:4, 60 s items: the whole first minute, at counters that are never stale."""

    def run() -> list[float]:
        lab = Lab(32, 1)
        for name, weight in (("a", 1), ("b", 1), ("c", 2), ("d", 4)):
            lab.open(name, weight=weight, runs_ms=[60_000] * 200)
        lab.for_s(60)
        had = shares(lab, NOW_MS, lab.now_ms)
        return sorted(had.values())

    assert run() == [0.125, 0.125, 0.25, 0.5]

    def used_only(usage: Usage, weight: float, now_ms: int, *, planned_ms: float = 0) -> float:
        return fairness.virtual_time(usage, weight, now_ms + 0 * round(planned_ms))

    monkeypatch.setattr(fairness, "pick_key", used_only)
    assert run()[:2] == [0, 0], "the light ones have nothing"


@pytest.mark.parametrize("cold_ms", [1_000, 60_000])
def test_trap_a_cold_estimate_above_the_shortest_run_costs_more_than_the_bound(cold_ms: int) -> None:
    """Items of 50 ms; a second Group enters while the first ones run: at a level that is charged in advance for a minute."""

    def run(cold: int) -> float:
        lab = Lab(4, 1, draw=1)
        lab.books.cold_ms = cold
        lab.open("a", runs_ms=[50] * 2_000)
        lab.at(NOW_MS + 10, partial(lab.open, "b", runs_ms=[50] * 2_000))
        lab.for_s(10)
        node = Node(1, 50)
        return apart_ms(lab, {"a": 1.0, "b": 1.0})["a", "b"] / apart_bound_ms(node, node, [node], slots=4)

    assert run(1) <= 1
    assert run(cold_ms) > 1


# --- weights, pools, many Workers ---


def test_trap_a_weight_that_is_doubled_without_keeping_the_lag_starves_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten minutes of service by weight 1 look like five by weight 2: it would be owed the next minutes."""

    def run() -> float:
        lab = Lab(1, 1)
        lab.open("a", runs_ms=[1_000] * 1_500)
        lab.open("b", runs_ms=[1_000] * 1_500)
        lab.for_s(1_200)
        lab.books.set_weight("b", 2.0, lab.now_ms)
        lab.for_s(60)
        return share_since(lab, "b", lab.now_ms - 60_000)

    assert run() == pytest.approx(2 / 3, abs=0.03)
    monkeypatch.setattr(Standing, "weighing", lambda node, weight, *_, **__: replace(node, weight=weight))
    assert run() > 0.95


@pytest.mark.parametrize("who", ["all", "a Worker that comes later"])
def test_trap_a_lag_that_only_its_worker_knows_starves_a_group_that_enters_later(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes by weight 10 look like a hundred by weight 1, wherever the lag was not kept: so the store is told of it."""

    def weighing(weight: float) -> Policy:
        return Policy(version=1, missions=(Rule("*/b", MissionRule(weight=weight)),))

    def run() -> float:
        lab = Lab(2, 1, stale_ms=200, seed=1)
        lab.govern(weighing(10))
        lab.open("a", runs_ms=[1_000] * 3_000)
        lab.open("b", runs_ms=[1_000] * 1_120)
        lab.for_s(600)
        lab.govern(weighing(1))
        lab.run(lab.now_ms + 1_000 * len(lab.books.lines[GroupId("b")].queue) + 10_000)
        assert not lab.books.lines[GroupId("b")].queue
        if who != "all":
            for worker in list(lab.workers):
                lab.join(1)
                lab.crash(worker, 500)
            lab.for_s(5)
        lab.add("b", [1_000] * 1_000)
        lab.for_s(120)
        return share_since(lab, "b", lab.now_ms - 120_000)

    assert run() == pytest.approx(0.5, abs=0.02)
    monkeypatch.setattr(Leaf, "offset_to_tell", lambda leaf, now_ms: (leaf.standing.offset_to_apply(now_ms), None))
    assert run() == 0


def test_trap_a_lift_that_pools_share_starves_an_account_in_the_younger_pool() -> None:
    """One account in two pools: lifted to the level of the old one, it would wait in the new one until that has caught up."""

    def run(*, is_shared: bool) -> float:
        lab = Lab(1, 1)
        other = lab.join(1, ("render",))

        def share_lifts(_: LabWorker) -> None:
            found = [node for one in lab.workers if (node := one.ready._inner.get("a:standard:p"))]
            highest = max((node.standing.shift for node in found), default=0.0)
            for node in found:
                node.set(replace(node.standing, shift=highest))
                if node.is_listed:
                    node.level.list(node, lab.now_ms)

        lab.meddle = share_lifts if is_shared else None
        lab.open("p-old", account="p")
        lab.open("q-old", account="q", runs_ms=[1_000] * 2_000)
        lab.for_s(900)
        lab.open("r-new", account="r", capability="render", runs_ms=[1_000] * 400)
        lab.for_s(5)
        lab.add("p-old", [1_000] * 400)
        lab.open("p-new", account="p", capability="render", runs_ms=[1_000] * 400)
        lab.for_s(60)
        assert other.running
        return service_of(lab, "p-new", NOW_MS + 905_000) / 60_000

    assert run(is_shared=False) > 0.15
    assert run(is_shared=True) == 0
