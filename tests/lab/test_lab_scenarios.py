"""Scenarios of fairness from public bug reports, each with the whole of what is right (BR-67, BR-69)."""

from __future__ import annotations

import pytest
from builders import NOW_MS
from lab.laboratory import Lab
from lab.measures import apart_ms, service_ms, use


@pytest.mark.parametrize(("run_ms", "apart"), [(1_000, 2), (40, 4)])
def test_br67_over_any_window_two_groups_are_within_one_item_of_their_halves(run_ms: int, apart: int) -> None:
    """A thousand items, two slots, and from some moment on a hundred of another Group, while both have something waiting.

    Over any part of that time each has its half, less or more one item: together they are two items apart at most. Items
    that are short are drawn four at a time, and so apart.
    """
    lab = Lab(1, 2)
    lab.open("a", runs_ms=[run_ms] * 1_000)
    lab.for_s(run_ms * 7.3 / 1_000)
    lab.open("b", runs_ms=[run_ms] * 100)
    lab.for_s(run_ms * 90 / 1_000)
    assert run_ms <= apart_ms(lab, {"a": 1.0, "b": 1.0})["a", "b"] <= apart * run_ms
    assert use(lab, NOW_MS, lab.now_ms) == 1


def test_br69_items_of_ten_seconds_and_of_one_are_within_one_item_of_their_halves_for_a_thousand_seconds() -> None:
    """Four slots, both there from the start: at every instant looked at each is within one 10 s item of half of all."""
    lab = Lab(1, 4)
    lab.open("long", runs_ms=[10_000] * 400)
    lab.open("short", runs_ms=[1_000] * 4_000)
    lab.for_s(1_000)
    for second in range(10, 1_001, 7):
        had = service_ms(lab, NOW_MS, NOW_MS + second * 1_000)
        assert had["long"] == pytest.approx(2 * second * 1_000, abs=10_000), second


def test_br69_a_group_that_was_idle_has_banked_nothing() -> None:
    """The short items come in the 500th second only: from then on they have half of the slots, and one item more."""
    lab = Lab(1, 4)
    lab.open("long", runs_ms=[10_000] * 400)
    lab.for_s(500)
    since_ms = lab.now_ms
    lab.open("short", runs_ms=[1_000] * 4_000)
    lab.for_s(500)
    for second in range(20, 501, 7):
        had = service_ms(lab, since_ms, since_ms + second * 1_000)
        assert had["short"] <= 2 * second * 1_000 + 10_000, second
        assert had["short"] >= 2 * second * 1_000 - 4 * 10_000, "it waits for the runs that it found, and for no more"
