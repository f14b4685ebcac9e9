"""Shares over minutes and hours, in the laboratory: each test states its window, arrivals and seeds.

The figures stand in docs/scheduling.md.
"""

from __future__ import annotations

from functools import partial

import pytest
from builders import NOW_MS
from lab.laboratory import Lab
from lab.measures import quantile, service_ms, shares, use, waits_ms

MINUTE_MS = 60_000
FLEETS = [(1, 4, 0), (4, 1, 250), (2, 4, 1_000), (8, 4, 1_000)]
"""Workers, slots of each, and how old their counters may be."""


def endless(lab: Lab, run_ms: int, span_ms: int) -> list[int]:
    """Items that would fill all slots for the span."""
    slots = sum(worker.slots for worker in lab.workers)
    return [run_ms] * (slots * (span_ms // run_ms + 2))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("workers", "slots", "stale_ms"), FLEETS)
def test_br69_equal_groups_of_long_and_of_short_items_have_equal_slot_seconds(
    workers: int, slots: int, stale_ms: int, seed: int
) -> None:
    """16 s against 1 s items, all there from the start; window: 10 minutes after a minute."""
    lab = Lab(workers, slots, stale_ms=stale_ms, seed=seed)
    lab.open("long", runs_ms=endless(lab, 16_000, 11 * MINUTE_MS))
    lab.open("short", runs_ms=endless(lab, 1_000, 11 * MINUTE_MS))
    lab.run(NOW_MS + 11 * MINUTE_MS)
    assert shares(lab, NOW_MS + MINUTE_MS, lab.now_ms)["long"] == pytest.approx(0.5, abs=0.02)
    assert use(lab, NOW_MS, lab.now_ms) == 1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("workers", "slots", "stale_ms"), FLEETS)
def test_weights_1_2_5_are_shares_of_1_2_5(workers: int, slots: int, stale_ms: int, seed: int) -> None:
    """Items of 1, 3 and 16 s, all there from the start; window: 10 minutes after a minute."""
    lab = Lab(workers, slots, stale_ms=stale_ms, seed=seed)
    for weight, run_ms in ((1, 16_000), (2, 1_000), (5, 3_000)):
        lab.open(f"w{weight}", weight=weight, runs_ms=endless(lab, run_ms, 11 * MINUTE_MS))
    lab.run(NOW_MS + 11 * MINUTE_MS)
    had = shares(lab, NOW_MS + MINUTE_MS, lab.now_ms)
    for weight in (1, 2, 5):
        assert had[f"w{weight}"] == pytest.approx(weight / 8, abs=0.02)


@pytest.mark.parametrize(("seed", "stale_ms"), [(1, 0), (2, 0), (3, 500)])
def test_one_group_of_a_hundred_that_floods_costs_the_others_one_longest_run(seed: int, stale_ms: int) -> None:
    """100,000 items of 500 ms at once in one Group; 99 Groups that send 500 ms each 8 to 16 s; 4 Workers x 4, 2 minutes.

    Besides, a Worker without a free slot hears of a new Group when it looks next: `stale_ms` comes on top.
    """
    lab = Lab(4, 4, stale_ms=stale_ms, partitions=4, seed=seed)
    for number in range(99):
        name = f"g{number}"
        lab.open(name, partition=number % 4)

        def send(name: str = name) -> None:
            lab.add(name, [500])
            lab.at(lab.now_ms + lab.random.randint(8_000, 16_000), send)

        lab.at(NOW_MS + lab.random.randint(1_000, 16_000), send)
    lab.open("flood", partition=1, runs_ms=[500] * 100_000)
    lab.run(NOW_MS + 2 * MINUTE_MS)
    waited = waits_ms(lab, [f"g{number}" for number in range(99)], until_ms=lab.now_ms)
    assert len(waited) > 600
    assert quantile(waited, 0.99) <= 500 + 50 + stale_ms
    assert use(lab, NOW_MS, lab.now_ms) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_group_that_offered_half_its_share_for_an_hour_does_not_burst(seed: int) -> None:
    """One slot, two equal Groups; one sends a 5 s item each 20 s for an hour, then floods: 50 % and no more."""
    lab = Lab(1, 1, seed=seed)
    hour_ms = 60 * MINUTE_MS
    lab.open("steady", runs_ms=[5_000] * 1_600)
    lab.open("shy")
    lab.each(20_000, lambda: lab.add("shy", [5_000]), until_ms=NOW_MS + hour_ms)
    lab.run(NOW_MS + hour_ms)
    assert shares(lab, NOW_MS, lab.now_ms)["shy"] == pytest.approx(0.25, abs=0.01)
    lab.add("shy", [5_000] * 400)
    lab.for_s(600)
    for window_ms in (20_000, 60_000, 600_000):
        had = service_ms(lab, NOW_MS + hour_ms, NOW_MS + hour_ms + window_ms)
        assert had["shy"] <= window_ms / 2 + 5_000, "its share and one item"
    assert shares(lab, NOW_MS + hour_ms, lab.now_ms)["shy"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_narrow_group_of_great_weight_takes_what_it_can_and_leaves_the_rest_by_weight(seed: int) -> None:
    """16 slots; 90 % of the weight can run on one of them only: it has that one, the others share 15 as 1 to 1."""
    lab = Lab(15, 1, stale_ms=250, seed=seed)
    lab.join(1, ("index", "narrow"))
    lab.open("narrow", weight=18, capability="narrow", runs_ms=[1_000] * 400)
    for name in ("a", "b"):
        lab.open(name, runs_ms=endless(lab, 1_000, 6 * MINUTE_MS))
    lab.run(NOW_MS + 6 * MINUTE_MS)
    had = shares(lab, NOW_MS + MINUTE_MS, lab.now_ms)
    assert had["narrow"] == pytest.approx(0.0625 * 0.95, abs=0.005)
    assert had["a"] == pytest.approx(had["b"], abs=0.01)
    assert use(lab, NOW_MS, lab.now_ms) == 1


def test_br67_one_item_behind_a_thousand_is_among_the_next_two_starts() -> None:
    """A thousand items, then one of another Group of equal weight, on two slots: a lone Group uses both until then."""
    for run_ms in (2, 40, 1_000):
        lab = Lab(1, 2)
        lab.open("a", runs_ms=[run_ms] * 1_000)
        lab.open("b")
        lab.for_s(run_ms / 100)
        assert use(lab, NOW_MS, lab.now_ms) == 1
        before = len(lab.changes)
        lab.add("b", [run_ms])
        lab.for_s(run_ms / 100)
        started = [group for _, group, width in lab.changes[before:] if width > 0]
        assert "b" in started[:2]


def test_a_worker_that_joins_and_one_that_crashes_leave_the_shares_as_they_are() -> None:
    """2 Workers x 4, later 8; one joins, one crashes and its leases lapse after 10 s; weights 1:2:5, 60 s."""
    for workers in (2, 8):
        lab = Lab(workers, 4, stale_ms=1_000, seed=workers)
        for weight, run_ms in ((1, 700), (2, 150), (5, 400)):
            lab.open(f"w{weight}", weight=weight, runs_ms=endless(lab, run_ms, 2 * MINUTE_MS))
        lab.at(NOW_MS + 15_000, partial(lab.join, 4))
        lab.at(NOW_MS + 30_000, partial(lab.crash, lab.workers[0], 10_000))
        lab.for_s(60)
        had = shares(lab, NOW_MS, lab.now_ms)
        for weight in (1, 2, 5):
            assert had[f"w{weight}"] == pytest.approx(weight / 8, rel=0.05)


def test_the_same_seed_is_the_same_history() -> None:
    """And another seed is another one: ends of one instant, sweeps and wakes are drawn from it."""

    def history(seed: int) -> list[tuple[int, str, int]]:
        lab = Lab(4, 2, stale_ms=300, partitions=2, seed=seed)
        for number in range(6):
            lab.open(f"g{number}", partition=number % 2, weight=1 + number % 3, runs_ms=[100 + 37 * number] * 200)
        lab.for_s(20)
        return [(one.end_ms, one.item, one.worker) for one in lab.ended]

    assert history(3) == history(3)
    assert history(3) != history(4)
