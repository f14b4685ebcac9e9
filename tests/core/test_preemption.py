"""Who is asked for a slot, and for whom: the rule in tables, its promises as properties, and small worlds that live by it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.shared.model import STARTS_EPOCH_MS, Capability, GroupId, LeaseId, Usage
from treadle.worker.core.fairness import Standing
from treadle.worker.core.preemption import (
    PENDING_MAX,
    Preempt,
    Running,
    Share,
    Waiting,
    parting_of,
    preempt,
    share_of,
    swaps_ahead,
)

M_MS = 30_000
INDEX = Capability("index")


def path(group: str, virtual_ms: float, *, account: str = "acme", weight: float = 1.0) -> tuple[Share, ...]:
    """Class, account and Group, the first two where they are the same for all."""
    return Share("c:standard", 0.0, 1.0), Share(f"a:{account}", 0.0, 1.0), Share(group, virtual_ms, weight)


def a_run(
    lease: str = "l1", group: str = "busy", virtual_ms: float = 100_000, *, lasted_ms: int = M_MS, width: int = 1
) -> Running:
    return Running(LeaseId(lease), width, lasted_ms, path(group, virtual_ms))


def one_waits(virtual_ms: float = 0, *, width: int = 1, group: str = "new") -> Waiting:
    return Waiting(GroupId(group), INDEX, width, path(group, virtual_ms))


def asked(waiting: Waiting, *runs: Running, pending: tuple[tuple[Share, ...], ...] = ()) -> Preempt | None:
    return preempt(waiting, runs, pending, minimum_run_ms=M_MS)


# --- the rule ---


@pytest.mark.parametrize(
    ("virtual_ms", "most"),
    [(M_MS - 1, None), (M_MS, 1), (2 * M_MS - 1, 1), (2 * M_MS, 2), (1_000 * M_MS, PENDING_MAX)],
)
def test_a_run_is_asked_once_its_side_is_a_whole_swap_ahead(virtual_ms: int, most: int | None) -> None:
    """Of equal weights a swap is one minimum run; each slot that is waited for already asks for one more."""
    found = asked(one_waits(), a_run(virtual_ms=virtual_ms))
    assert (found.most if found else None) == most


def test_a_run_that_has_not_run_for_the_minimum_is_not_asked_whatever_its_side_had() -> None:
    assert asked(one_waits(), a_run(virtual_ms=1e9, lasted_ms=M_MS - 1)) is None
    assert asked(one_waits(), a_run(virtual_ms=1e9, lasted_ms=M_MS)) is not None


def test_of_several_the_one_whose_side_had_most_is_asked_then_the_oldest_run_then_the_first_lease() -> None:
    runs = [
        a_run("l3", "busy", 70_000),
        a_run("l2", "busier", 90_000),
        a_run("l4", "busier", 90_000, lasted_ms=M_MS + 1),
        a_run("l1", "busier", 90_000),
    ]
    order = []
    while found := asked(one_waits(), *runs):
        order.append(found.lease)
        runs = [run for run in runs if run.lease != found.lease]
    assert order == ["l4", "l1", "l2", "l3"]


def test_a_group_takes_nothing_from_itself() -> None:
    assert asked(one_waits(group="busy"), a_run(virtual_ms=1e9)) is None


def test_a_run_of_a_group_that_is_not_known_here_is_left_alone() -> None:
    assert asked(one_waits(), replace(a_run(), path=())) is None


def test_a_run_too_narrow_for_what_is_waited_for_is_not_asked() -> None:
    """Several of them would be needed: that is a reservation's, which asks nobody."""
    assert asked(one_waits(width=2), a_run(virtual_ms=1e9, width=1)) is None
    assert asked(one_waits(width=2), a_run(virtual_ms=1e9, width=2)) is not None


def test_a_wide_run_moves_more_and_needs_a_larger_lead() -> None:
    assert asked(one_waits(), a_run(virtual_ms=4 * M_MS - 1, width=4)) is None
    assert asked(one_waits(), a_run(virtual_ms=4 * M_MS, width=4)) is not None


def test_what_counts_is_where_the_paths_part() -> None:
    """Groups of two accounts are compared as their accounts are, whatever the Groups themselves have had."""
    rich = (Share("c:standard", 0, 1), Share("a:acme", 5 * M_MS, 1), Share("one", 0, 1))
    poor = (Share("c:standard", 0, 1), Share("a:beta", 0, 1), Share("two", 1e9, 1))
    assert parting_of(rich, poor) == (rich[1], poor[1])
    found = preempt(
        Waiting(GroupId("two"), INDEX, 1, poor), [Running(LeaseId("l"), 1, M_MS, rich)], (), minimum_run_ms=M_MS
    )
    assert found == Preempt(LeaseId("l"), GroupId("two"), INDEX, 5)
    lower = (Share("c:low", 0, 1), *rich[1:])
    assert parting_of(lower, poor) == (lower[0], poor[0])


def test_what_was_asked_for_its_siblings_in_the_same_account_counts_against_a_group() -> None:
    """Else an account of a hundred new Missions would be given a hundred slots at once."""
    others = tuple((Share("c:standard", 0, 1), Share("a:beta", 0, 1), Share(f"g{n}", 0, 1)) for n in range(2))
    poor = Waiting(GroupId("g9"), INDEX, 1, (Share("c:standard", 0, 1), Share("a:beta", 0, 1), Share("g9", 0, 1)))
    asked_ = [preempt(poor, [a_run()], others[:n], minimum_run_ms=M_MS) for n in range(3)]
    assert asked_ == [None] * 3, "acme is as far as beta"
    ahead = (Share("c:standard", 0, 1), Share("a:acme", 2 * M_MS, 1), Share("busy", 0, 1))
    runs = [Running(LeaseId("l"), 1, M_MS, ahead)]
    found = [preempt(poor, runs, others[:n], minimum_run_ms=M_MS) for n in range(3)]
    assert [one and one.most for one in found] == [2, 1, None]


def test_without_a_minimum_run_any_lead_is_enough_and_none_is_not() -> None:
    assert preempt(one_waits(), [a_run(virtual_ms=1, lasted_ms=0)], (), minimum_run_ms=0) is not None
    assert preempt(one_waits(), [a_run(virtual_ms=0, lasted_ms=0)], (), minimum_run_ms=0) is None


def test_a_group_that_waits_counts_from_where_it_entered_and_one_that_runs_from_what_it_had() -> None:
    standing = Standing(Usage(used_ms=100, served=False), 2.0, tag=80.0)
    now_ms = STARTS_EPOCH_MS
    assert share_of("g", standing, now_ms, waits=True) == Share("g", 80.0, 2.0)
    assert share_of("g", standing, now_ms, waits=False) == Share("g", 50.0, 2.0)
    served = replace(standing, usage=replace(standing.usage, served=True))
    assert share_of("g", served, now_ms, waits=True) == Share("g", 50.0, 2.0)


sides = st.tuples(st.floats(0, 1e9), st.floats(0.01, 100))


@given(one=sides, other=sides, minimum_run_ms=st.integers(1, 600_000), width=st.integers(1, 16))
def test_of_two_groups_at_most_one_may_ask_the_other(
    one: tuple[float, float], other: tuple[float, float], minimum_run_ms: int, width: int
) -> None:
    left, right = path("left", one[0], weight=one[1]), path("right", other[0], weight=other[1])
    there = swaps_ahead(left, right, minimum_run_ms=minimum_run_ms, width=width)
    back = swaps_ahead(right, left, minimum_run_ms=minimum_run_ms, width=width)
    assert there == -back
    assert not (there >= 1 and back >= 1)


@given(lead_ms=st.floats(0, 1e7), one=st.floats(0.01, 100), other=st.floats(0.01, 100))
def test_a_swap_that_is_worth_it_is_not_reversed_before_a_minimum_run_of_the_new_side(
    lead_ms: float, one: float, other: float
) -> None:
    """Whatever the weights: the new side runs alone for a minimum run less a moment, and the old one may not ask back."""
    ahead, behind = path("i", lead_ms, weight=one), path("j", 0, weight=other)
    if swaps_ahead(ahead, behind, minimum_run_ms=M_MS) >= 1:
        grown = path("j", (M_MS - 1) / other, weight=other)
        assert swaps_ahead(grown, ahead, minimum_run_ms=M_MS) < 1


# --- whole runs of it ---


@dataclass
class Slot:
    """One Capacity Slot of the small world, and the run in it."""

    group: str
    began_s: int
    until_s: int
    lease: str
    beneficiary: str = ""


@dataclass
class SmallWorld:
    """Slots, and Groups that always have something to take; time goes by whole seconds. Safe points come each `save_s`."""

    weights: dict[str, float]
    slots: int
    length_s: int = 1_000_000
    save_s: int = 5
    minimum_run_s: int = 30
    used_s: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    preemptions: list[tuple[int, str, str]] = field(default_factory=list)
    filled: list[Slot] = field(default_factory=list)
    number: int = 0

    def share(self, group: str) -> tuple[Share, ...]:
        standing = Standing(Usage(used_ms=1000 * self.used_s[group], served=True), self.weights[group])
        return (share_of(group, standing, STARTS_EPOCH_MS, waits=False),)

    def next_group(self, waited: list[str]) -> str:
        """Whose turn it is, those that wait for a slot already charged for it."""
        return min(
            self.weights,
            key=lambda group: ((self.used_s[group] + waited.count(group)) / self.weights[group], group),
        )

    def begin(self, group: str, now_s: int) -> None:
        self.number += 1
        self.filled.append(Slot(group, now_s, now_s + self.length_s, f"l{self.number:06}"))

    def second(self, now_s: int) -> None:
        for slot in list(self.filled):
            is_safe = now_s > slot.began_s and (now_s - slot.began_s) % self.save_s == 0
            if slot.until_s <= now_s or (slot.beneficiary and is_safe):
                self.filled.remove(slot)
                if slot.beneficiary:
                    if slot.until_s > now_s:
                        self.preemptions.append((now_s, slot.group, slot.beneficiary))
                    self.begin(slot.beneficiary, now_s)
        while len(self.filled) < self.slots:
            self.begin(self.next_group([slot.beneficiary for slot in self.filled]), now_s)
        while self.ask(now_s):
            pass
        for slot in self.filled:
            self.used_s[slot.group] += 1

    def ask(self, now_s: int) -> bool:
        waited = [slot.beneficiary for slot in self.filled if slot.beneficiary]
        group = self.next_group(waited)
        runs = [
            Running(LeaseId(slot.lease), 1, 1000 * (now_s - slot.began_s), self.share(slot.group))
            for slot in self.filled
            if not slot.beneficiary
        ]
        waiting = Waiting(GroupId(group), INDEX, 1, self.share(group))
        found = preempt(waiting, runs, (), minimum_run_ms=1000 * self.minimum_run_s)
        if found is None or waited.count(group) >= found.most:
            return False
        (slot,) = [slot for slot in self.filled if slot.lease == found.lease]
        slot.beneficiary = group
        return True

    def run(self, seconds: int) -> SmallWorld:
        for now_s in range(seconds):
            self.second(now_s)
            assert len(self.filled) == self.slots
        return self


def reversals(preemptions: list[tuple[int, str, str]], within_s: int) -> list[tuple[int, str, str]]:
    """Those that take back, sooner than a minimum run later, what another one gave."""
    return [
        late
        for number, late in enumerate(preemptions)
        for early in preemptions[:number]
        if late[0] - early[0] < within_s and (late[1], late[2]) == (early[2], early[1])
    ]


def test_br_71_two_equal_items_on_one_slot_change_places_no_more_often_than_each_minimum_run() -> None:
    """10 minutes, progress saved each 5 s, M = 30 s: the other scheduler did 119."""
    world = SmallWorld({"a": 1.0, "b": 1.0}, slots=1).run(600)
    assert len(world.preemptions) == 9
    assert reversals(world.preemptions, 30) == []
    assert world.used_s == {"a": 315, "b": 285}
    assert len(SmallWorld({"a": 1.0, "b": 1.0}, slots=1, minimum_run_s=0).run(600).preemptions) == 60


def test_br_71_three_groups_on_two_slots_do_not_loop() -> None:
    """The reports' case, for 1,000 ticks: B is not readmitted to preempt A again at once."""
    world = SmallWorld({"a": 1.0, "b": 1.0, "c": 2.0}, slots=2).run(1_000)
    assert 0 < len(world.preemptions) <= 2 * 1_000 // 30
    assert reversals(world.preemptions, 30) == []


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=2, max_size=5),
    slots=st.integers(1, 4),
    save_s=st.integers(1, 12),
    length_s=st.sampled_from([7, 45, 1_000_000]),
    minimum_run_s=st.sampled_from([5, 30]),
)
def test_preemptions_are_bounded_by_slots_times_time_over_the_minimum_run(
    weights: list[float], slots: int, save_s: int, length_s: int, minimum_run_s: int
) -> None:
    groups = {f"g{number}": weight for number, weight in enumerate(weights)}
    world = SmallWorld(groups, slots, length_s, save_s, minimum_run_s).run(400)
    assert len(world.preemptions) <= slots * 400 / minimum_run_s


@settings(deadline=None, max_examples=60)
@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=5),
    newcomers=st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=3),
    at_s=st.integers(0, 300),
    slots=st.integers(1, 4),
    save_s=st.integers(1, 12),
    length_s=st.sampled_from([45, 1_000_000]),
    minimum_run_s=st.sampled_from([5, 10, 30]),
)
def test_l6_a_new_group_waits_no_longer_than_the_bound_behind_runs_that_never_end(
    weights: list[float],
    newcomers: list[float],
    at_s: int,
    slots: int,
    save_s: int,
    length_s: int,
    minimum_run_s: int,
) -> None:
    """(b) with preemption: M + s + a tick + ((1.5 M + s) G + (M / 2) W / w) / D, whoever else comes at the same time."""
    world = SmallWorld({f"g{number}": weight for number, weight in enumerate(weights)}, slots, length_s, save_s)
    world.minimum_run_s = minimum_run_s
    world.run(at_s)
    level = min(world.used_s[group] / weight for group, weight in world.weights.items())
    waiting = {f"new{number}": weight for number, weight in enumerate(newcomers)}
    for group, weight in waiting.items():
        world.used_s[group] = level * weight  # type: ignore[assignment]  # a tag is no whole number
    world.weights |= waiting
    groups, every = len(world.weights), sum(world.weights.values())
    bounds = {
        group: minimum_run_s
        + save_s
        + 1
        + ((1.5 * minimum_run_s + save_s) * groups + minimum_run_s / 2 * every / weight) / slots
        for group, weight in waiting.items()
    }
    for waited_s in range(int(max(bounds.values())) + 1):
        world.second(at_s + waited_s)
        started = {slot.group for slot in world.filled}
        bounds = {group: bound for group, bound in bounds.items() if group not in started}
        assert all(waited_s < bound for bound in bounds.values())
    assert not bounds


def test_a_group_that_never_ends_an_item_still_gives_the_others_their_share() -> None:
    """Endless runs: without preemption the first Groups would keep the slots for ever."""
    world = SmallWorld({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, slots=2, save_s=5).run(1_200)
    shares = [world.used_s[group] / 2_400 for group in world.weights]
    assert max(shares) - min(shares) <= 0.06, shares
