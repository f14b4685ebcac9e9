"""The arithmetic of virtual time: charged as used, frozen at entry, first in the order at any time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from builders import NOW_MS, a_usage
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.model import STARTS_EPOCH_MS, Usage
from treadle.worker.core.fairness import (
    COLD_MS,
    Order,
    Standing,
    entry_tag,
    entry_virtual_time,
    estimate_ms,
    next_typical,
    pick_key,
    virtual_time,
)

weights = st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0])
later = st.integers(NOW_MS, NOW_MS + 100_000)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    running = draw(st.integers(0, 5))
    starts = [draw(st.integers(NOW_MS - 50_000, NOW_MS)) - STARTS_EPOCH_MS for _ in range(running)]
    return Usage(
        used_ms=draw(st.integers(0, 200_000)),
        running=running,
        starts_ms=sum(starts),
        estimate_ms=running * draw(st.integers(1, 20_000)),
        typical_ms=draw(st.integers(0, 20_000)),
        offset=draw(st.integers(0, 100_000)),
        entry=draw(st.integers(1, 3)),
        entry_ms=NOW_MS - draw(st.integers(0, 5_000)),
        served=draw(st.booleans()),
    )


# --- rule 1 ---


def test_service_is_charged_as_it_is_used() -> None:
    usage = a_usage(used_ms=600, running=2, offset=50)
    assert virtual_time(usage, 3.0, NOW_MS) == 50 + 600 / 3
    assert virtual_time(usage, 3.0, NOW_MS + 30) == 50 + 660 / 3


def test_a_pick_is_charged_its_estimate_until_the_run_is_longer() -> None:
    usage = a_usage(running=1, estimate_ms=400)
    assert pick_key(usage, 2.0, NOW_MS) == 200
    assert pick_key(usage, 2.0, NOW_MS + 399) == 200
    assert pick_key(usage, 2.0, NOW_MS + 500) == 250
    assert pick_key(usage, 2.0, NOW_MS, planned_ms=400) == 400


def test_a_start_in_the_future_gives_no_credit() -> None:
    """The Worker's estimate of the store's time may lie a little behind a start."""
    assert virtual_time(a_usage(running=3), 1.0, NOW_MS - 5_000) == 0


@given(usages(), weights, later, later)
def test_neither_virtual_time_nor_key_falls_while_time_goes_on(usage: Usage, weight: float, a: int, b: int) -> None:
    early, late = sorted((a, b))
    assert virtual_time(usage, weight, early) <= virtual_time(usage, weight, late)
    for tag in (0.0, 150_000.0):
        standing = Standing(usage, weight, tag)
        assert standing.key(early) <= standing.key(late)


@given(usages(), weights, later, st.integers(0, 50_000), st.integers(0, 50_000))
def test_a_key_is_never_below_virtual_time_and_planning_never_lowers_it(
    usage: Usage, weight: float, now_ms: int, planned_ms: int, more_ms: int
) -> None:
    key = pick_key(usage, weight, now_ms, planned_ms=planned_ms)
    assert key >= virtual_time(usage, weight, now_ms)
    assert pick_key(usage, weight, now_ms, planned_ms=planned_ms + more_ms) >= key


# --- rule 6 ---


def test_the_first_run_is_the_estimate_and_later_ones_are_blended_in() -> None:
    assert next_typical(0, 1_000) == 1_000
    assert next_typical(1_000, 2_000) == 1_200
    assert next_typical(1_000, 0) == 800


def test_a_measured_estimate_is_never_cold_again() -> None:
    typical = 50
    for _ in range(100):
        typical = next_typical(typical, 0)
        assert typical >= 1
    assert next_typical(0, 0) == 1


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_an_estimate_settles_on_runs_that_are_all_alike(typical: int, run_ms: int) -> None:
    for _ in range(200):
        closer = next_typical(typical, run_ms)
        assert abs(closer - run_ms) <= abs(typical - run_ms), "it never moves away"
        typical = closer
    assert abs(typical - run_ms) <= 2


def test_a_cold_run_is_charged_little_but_not_nothing() -> None:
    assert estimate_ms(0) == COLD_MS > 0
    assert estimate_ms(0, cold_ms=70) == 70
    assert estimate_ms(900, cold_ms=70) == 900


# --- rules 2 and 3 ---


def standing(used_ms: int, *, served: bool, tag: float = 0.0) -> Standing:
    return Standing(a_usage(used_ms=used_ms, served=served), 1.0, tag)


def test_the_level_is_the_least_key_of_the_served() -> None:
    nodes = [standing(700, served=True), standing(500, served=True), standing(0, served=False, tag=300)]
    assert entry_virtual_time(nodes, NOW_MS, last_pick=9_999) == 500


def test_without_served_nodes_the_level_is_the_least_frozen_tag() -> None:
    nodes = [standing(0, served=False, tag=300), standing(0, served=False, tag=200)]
    assert entry_virtual_time(nodes, NOW_MS, last_pick=9_999) == 200


def test_with_nothing_ready_the_level_is_that_of_the_last_pick() -> None:
    assert entry_virtual_time([], NOW_MS, last_pick=42) == 42


def test_what_was_missed_is_not_saved_up_and_what_was_used_is_not_forgiven() -> None:
    assert entry_tag(standing(10, served=True), NOW_MS, level=500) == 500
    assert entry_tag(standing(900, served=True), NOW_MS, level=500) == 900


def test_what_only_left_a_cap_is_put_before_the_level_by_one_run() -> None:
    node = Standing(a_usage(used_ms=10, typical_ms=300), 2.0)
    assert entry_tag(node, NOW_MS, level=500, left_a_cap=True) == 350


@given(usage=usages(), weight=weights, other=weights, level=st.integers(0, 500_000), tag=st.integers(0, 500_000))
def test_a_change_of_weight_keeps_the_service_by_which_a_node_is_behind_the_level_or_ahead_of_it(
    usage: Usage, weight: float, other: float, level: int, tag: int
) -> None:
    """Rule 7: virtual time by weight is service. So with twice the weight it is half as far from V, and waits as long."""
    before = Standing(usage, weight, tag=tag)
    after = before.weighing(other, NOW_MS, level=level)
    behind = (level - before.virtual_time(NOW_MS)) * weight
    assert (level - after.virtual_time(NOW_MS)) * other == pytest.approx(behind, abs=1e-3)
    assert (level - after.tag) * other == pytest.approx((level - tag) * weight, abs=1e-3)
    assert after.weight == other


def test_a_tag_counts_until_the_node_is_served() -> None:
    """Then the script has put it into the offset."""
    assert standing(10, served=False, tag=500).key(NOW_MS) == 500
    assert standing(10, served=False, tag=500).key(NOW_MS, planned_ms=30) == 530
    assert standing(10, served=True, tag=500).key(NOW_MS) == 10


# --- the order ---


@dataclass(eq=False)
class Mover:
    """A node whose place rises at its own speed."""

    name: str
    base: int
    speed: int

    def place(self, now_ms: int) -> tuple[int, str]:
        return (self.base + self.speed * now_ms, self.name)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), min_size=1, max_size=8),
    st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(["push", "remove", "wait"]), st.integers(0, 60)), max_size=60
    ),
    st.data(),
)
def test_the_first_of_an_order_are_the_least_at_any_time(
    kinds: list[tuple[int, int]], steps: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    movers = [Mover(str(number), base, speed) for number, (base, speed) in enumerate(kinds)]
    order: Order[Mover, tuple[int, str]] = Order(Mover.place)
    inside: set[Mover] = set()
    now_ms = 0
    for number, step, amount in steps:
        mover = movers[number % len(movers)]
        if step == "push":
            mover.base = amount - mover.speed * now_ms  # an update may also put it back
            order.push(mover, now_ms)
            inside.add(mover)
        elif step == "remove":
            order.remove(mover)
            inside.discard(mover)
        else:
            now_ms += amount
        looked_at = data.draw(st.integers(0, len(movers)))
        found = [entry for index in range(looked_at) if (entry := order.at(index, now_ms))]
        expected = sorted(mover.place(now_ms) for mover in inside)[:looked_at]
        assert [place for place, *_ in found] == expected
        assert [mover.place(now_ms) for *_, mover in found] == expected
        first = order.first(now_ms)
        assert (first[0] if first else None) == min((mover.place(now_ms) for mover in inside), default=None)
        assert len(order) == len(inside)


@pytest.mark.parametrize("count", [1, 100])
def test_an_order_keeps_no_more_than_it_needs(count: int) -> None:
    order: Order[Mover, tuple[int, str]] = Order(Mover.place)
    movers = [Mover(str(number), number, 0) for number in range(count)]
    for _ in range(1_000):
        for mover in movers:
            order.push(mover, 0)
            order.at(3, 0)
    assert order.waste() <= 64 + count


def test_an_order_of_many_is_right_however_much_of_it_was_looked_at() -> None:
    """Far more than stand in its row, which is filled by looking, cut when it is long, and filled again."""
    order: Order[Mover, tuple[int, str]] = Order(Mover.place)
    movers = [Mover(str(number), number * 7919 % 1_009, 0) for number in range(500)]
    for mover in movers:
        order.push(mover, 0)
    for step in range(300):
        ordered = sorted(mover.place(0) for mover in movers)
        for index in (0, step, 3):
            entry = order.at(index, 0)
            assert entry is not None
            assert entry[0] == ordered[index]
        movers[step].base = step * 31 % 97
        order.push(movers[step], 0)
    assert order.at(500, 0) is None
