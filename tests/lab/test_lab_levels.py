"""Classes, accounts and Groups share service level by level, in the laboratory: windows, arrivals and seeds are stated."""

from __future__ import annotations

import random
from functools import partial

import pytest
from builders import NOW_MS
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.bounds import Node, apart_bound_ms
from lab.laboratory import Lab
from lab.measures import apart_ms, service_ms, shares, use, waits_ms
from treadle.shared.model import GroupId
from treadle.shared.policy import AccountRule, MissionRule, Policy, Rule

MINUTE_MS = 60_000


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("workers", "slots", "stale_ms"), [(1, 2, 0), (4, 4, 250)])
def test_an_account_with_a_hundred_missions_has_no_more_than_one_with_one(
    workers: int, slots: int, stale_ms: int, seed: int
) -> None:
    """1 s items, all there from the start, over 4 partitions; window: 5 minutes after 30 s."""
    lab = Lab(workers, slots, stale_ms=stale_ms, partitions=4, seed=seed)
    for number in range(100):
        lab.open(f"many-{number}", account="many", partition=number % 4, runs_ms=[1_000] * (4 * workers * slots))
    lab.open("one", account="one", partition=1, runs_ms=[1_000] * (340 * workers * slots))
    lab.run(NOW_MS + 330_000)
    had = shares(lab, NOW_MS + 30_000, lab.now_ms, lambda group: lab.books.lines[group].account)
    assert had["one"] == pytest.approx(0.5, abs=0.02)
    below = service_ms(lab, NOW_MS + 30_000, lab.now_ms)
    each = [below.get(f"many-{number}", 0) for number in range(100)]
    assert max(each) - min(each) <= 2_000 * workers * slots, "and its Missions share its half"


def test_l6_a_class_of_a_hundredth_of_the_weight_has_its_share_within_one_item() -> None:
    """100 to 1, one slot, 1 s items, 20 minutes: at every instant the low class is within one item of its hundredth."""
    lab = Lab(1, 1)
    lab.govern(Policy(version=1, classes=(("standard", 1.0), ("urgent", 100.0))))
    lab.open("low", runs_ms=[1_000] * 30)
    lab.open("high", priority_class="urgent", runs_ms=[1_000] * 1_300)
    lab.run(NOW_MS + 1_200_000)
    for second in range(101, 1_200, 7):
        had = service_ms(lab, NOW_MS, NOW_MS + second * 1_000)
        assert had.get("low", 0) == pytest.approx(second * 1_000 / 101, abs=1_000)


def test_a_class_never_waits_for_another_whatever_that_has_to_do() -> None:
    """Classes are weights: an item of the low class that comes at any moment starts within its share of waiting."""
    lab = Lab(1, 2, seed=5)
    lab.govern(Policy(version=1, classes=(("standard", 1.0), ("urgent", 9.0))))
    lab.open("high", priority_class="urgent", runs_ms=[500] * 3_000)
    lab.open("low")
    lab.each(20_000, lambda: lab.add("low", [500]), until_ms=NOW_MS + 400_000)
    lab.run(NOW_MS + 400_000)
    assert max(waits_ms(lab, ["low"], until_ms=lab.now_ms)) <= 5_000


def test_weights_at_each_level_multiply() -> None:
    """Accounts 1 to 3, in the second Groups 1 to 2, 2 x 2 slots: 25, 25 and 50 percent; window: 4 minutes after 30 s."""
    lab = Lab(2, 2, stale_ms=200, partitions=2, seed=3)
    rules = (Rule("big", AccountRule(weight=3.0)),)
    lab.govern(Policy(version=1, accounts=rules))
    lab.open("a", account="small", runs_ms=[700] * 2_000)
    lab.open("b", account="big", partition=1, runs_ms=[300] * 4_000)
    lab.open("c", account="big", weight=2, runs_ms=[1_100] * 2_000)
    lab.run(NOW_MS + 270_000)
    had = shares(lab, NOW_MS + 30_000, lab.now_ms)
    assert [had[name] for name in "abc"] == pytest.approx([0.25, 0.25, 0.5], abs=0.02)


@pytest.mark.parametrize("level", ["class", "account", "group"])
def test_a_new_weight_counts_at_once_and_neither_bursts_nor_starves(level: str) -> None:
    """1:1, after 2 minutes 1:3 by policy, later 1:1 again; shares of each half minute are those of its weights."""
    lab = Lab(2, 1, stale_ms=200, seed=4)
    lab.open("a", account="a", runs_ms=[900] * 2_000)
    lab.open(
        "b",
        account="b" if level == "account" else "a",
        runs_ms=[400] * 4_000,
        priority_class="hot" if level == "class" else "standard",
    )

    def weighing(weight: float) -> Policy:
        match level:
            case "class":
                return Policy(version=1, classes=(("standard", 1.0), ("hot", weight)))
            case "account":
                return Policy(version=1, accounts=(Rule("b", AccountRule(weight=weight)),))
            case _:
                return Policy(version=1, missions=(Rule("*/b", MissionRule(weight=weight)),))

    for at, weight in enumerate((1.0, 3.0, 1.0)):
        lab.govern(weighing(weight))
        begun = lab.now_ms
        lab.for_s(120)
        for half in range(4):
            had = shares(lab, begun + half * 30_000, begun + (half + 1) * 30_000)
            assert had["b"] == pytest.approx(weight / (1 + weight), abs=0.06), (at, half)


@settings(max_examples=25)
@given(st.integers(0, 1 << 30))
def test_s21_no_two_accounts_come_apart_by_more_than_the_bound(seed: int) -> None:
    """(a) at the level of accounts, their Groups in two partitions; L is the longest run of any of an account's Groups."""
    dice = random.Random(seed)
    workers, slots = dice.choice([(1, 1), (1, 3), (3, 1), (2, 2)])
    lab = Lab(workers, slots, partitions=2, seed=seed, draw=1)
    accounts = {name: dice.choice([1.0, 1.0, 2.0, 5.0]) for name in ("a", "b", "c")}
    lab.govern(
        Policy(version=1, accounts=tuple(Rule(name, AccountRule(weight=weight)) for name, weight in accounts.items()))
    )
    longest = dict.fromkeys(accounts, 0)
    for account in accounts:
        for number in range(dice.randint(1, 3)):
            runs = [dice.choice([100, 400, 1_500]) for _ in range(dice.randint(1, 3))]
            longest[account] = max(longest[account], *runs)
            name = f"{account}-{number}"
            lab.open(name, account=account, partition=dice.randrange(2), weight=dice.choice([1.0, 3.0]))
            many = runs * (workers * slots * 20_000 // sum(runs) + 1)
            lab.at(NOW_MS + dice.choice([0, 0, 3_000, 7_777]), partial(lab.add, name, many))
    lab.run(NOW_MS + 15_000)
    nodes = {name: Node(weight, longest[name]) for name, weight in accounts.items()}
    found = apart_ms(lab, accounts, lambda group: lab.books.lines[GroupId(group)].account)
    for (one, other), apart in found.items():
        bound = apart_bound_ms(nodes[one], nodes[other], list(nodes.values()), slots=workers * slots)
        assert apart <= bound, (one, other)


WEIGHTS = {"a": 1, "b": 1, "c": 2, "d": 4}


def thirty_two(*, in_phase: bool, seed: int, budgets: bool = True) -> Lab:
    """32 Workers of one slot; Groups of weight 1:1:2:4 in one partition, 60 s items, counters 1 s old; 5 minutes."""
    lab = Lab(32, 1, stale_ms=1_000, in_phase=in_phase, seed=seed)
    for worker in lab.workers:
        worker.has_budgets = budgets
    for name, weight in WEIGHTS.items():
        lab.open(name, weight=weight, runs_ms=[60_000] * 200)
    lab.for_s(300)
    return lab


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_s21_many_workers_with_old_counters_share_by_weight_in_the_first_five_minutes(seed: int) -> None:
    """Every slot is decided anew at one instant, each by counters that know nothing of the 31 others' picks."""
    lab = thirty_two(in_phase=False, seed=seed)
    had = shares(lab, NOW_MS, lab.now_ms)
    assert [had[name] for name in WEIGHTS] == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.03)
    assert use(lab, NOW_MS, lab.now_ms) == 1


def test_trap_all_workers_in_phase_on_the_same_old_counters_without_budgets() -> None:
    """All read the directory at the same instants: with budgets it does not matter, without they all choose the same."""
    kept, broken = (thirty_two(in_phase=True, seed=1, budgets=budgets) for budgets in (True, False))
    assert [*shares(kept, NOW_MS, kept.now_ms).values()] == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.03)
    off = [
        abs(one - weight / 8)
        for one, weight in zip(shares(broken, NOW_MS, broken.now_ms).values(), WEIGHTS.values(), strict=True)
    ]
    assert max(off) > 0.06


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_s21_many_workers_share_by_account_over_partitions(seed: int) -> None:
    """Accounts of weight 1:1:2:4, each with a Group in each of 4 partitions; items of 30 to 90 s; 5 minutes."""
    lab = Lab(32, 1, stale_ms=1_000, partitions=4, seed=seed)
    lab.govern(
        Policy(version=1, accounts=tuple(Rule(name, AccountRule(weight=weight)) for name, weight in WEIGHTS.items()))
    )
    for name in WEIGHTS:
        for partition in range(4):
            runs_ms = [lab.random.randint(30_000, 90_000) for _ in range(60)]
            lab.open(f"{name}{partition}", account=name, partition=partition, runs_ms=runs_ms)
    lab.for_s(300)
    had = shares(lab, NOW_MS, lab.now_ms, lambda group: group[0])
    assert [*had.values()] == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.03)
    assert use(lab, NOW_MS, lab.now_ms) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_trap_a_worker_that_a_budget_stopped_and_that_reads_one_partition_only_misjudges_accounts(seed: int) -> None:
    """The same with items of 60 s, which all end at one instant: by weight over 5 minutes, and no minute is one account's."""

    def run(*, reads_all: bool) -> tuple[list[float], float]:
        lab = Lab(32, 1, stale_ms=1_000, partitions=4, seed=seed)
        lab.reads_all = reads_all
        rules = tuple(Rule(name, AccountRule(weight=weight)) for name, weight in WEIGHTS.items())
        lab.govern(Policy(version=1, accounts=rules))
        for name in WEIGHTS:
            for partition in range(4):
                lab.open(f"{name}{partition}", account=name, partition=partition, runs_ms=[60_000] * 60)
        lab.for_s(300)
        minutes = [
            shares(lab, NOW_MS + begun, NOW_MS + begun + MINUTE_MS, lambda group: group[0])
            for begun in range(0, 5 * MINUTE_MS, MINUTE_MS)
        ]
        had = shares(lab, NOW_MS, lab.now_ms, lambda group: group[0])
        return [had[name] for name in WEIGHTS], max(max(minute.values()) for minute in minutes)

    had, largest = run(reads_all=True)
    assert had == pytest.approx([0.125, 0.125, 0.25, 0.5], abs=0.03)
    assert largest < 0.75
    assert run(reads_all=False)[1] == 1


def capped(seed: int) -> tuple[Lab, Policy]:
    """4 Workers x 2, three equal Groups, one of which may run one item at a time; its policy without that cap."""
    lab = Lab(4, 2, stale_ms=250, seed=seed)
    lab.is_work_conserving = False
    lab.govern(Policy(version=1, missions=(Rule("*/capped", MissionRule(slots=1)),)))
    for name in ("capped", "b", "c"):
        lab.open(name, runs_ms=[5_000] * 9_000)
    return lab, Policy(version=2)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capped_group_leaves_the_rest_to_the_others_and_never_runs_more_than_its_cap(seed: int) -> None:
    """10 minutes; its eighth but for its waits, the others share the rest equally, and no slot is idle."""
    lab, _ = capped(seed)
    lab.for_s(600)
    had = shares(lab, NOW_MS, lab.now_ms)
    assert 0.08 < had["capped"] <= 0.125
    assert had["b"] == pytest.approx(had["c"], abs=0.01)
    assert use(lab, NOW_MS, lab.now_ms) == 1
    running = 0
    for _, group, width in lab.changes:
        running += width if group == "capped" else 0
        assert running <= 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_capped_group_that_is_released_after_an_hour_does_not_burst(seed: int) -> None:
    """From the release on it has a third of the slots and one draw of each of them more, in 10 s as in 10 minutes."""
    lab, free = capped(seed)
    lab.for_s(3_600)
    lab.govern(free)
    begun = lab.now_ms
    lab.for_s(600)
    for window_ms in (10_000, 60_000, 600_000):
        had = service_ms(lab, begun, begun + window_ms)["capped"]
        assert had <= 8 * window_ms / 3 + 8 * 5_000
    assert shares(lab, begun, lab.now_ms)["capped"] == pytest.approx(1 / 3, abs=0.02)
