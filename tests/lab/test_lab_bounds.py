"""The bounds of docs/scheduling.md hold over all Workers: for any world, in all small ones, and where a climb goes worse.

(a) fairness and (d) no hoarding are one measure: intervals begin with each entry. (c) is checked after every event of
every laboratory (`Lab.check`), and so by each test of this folder.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.searching import all_small, any_world, climb
from lab.worlds import Small

SPAN_MS = 12_000


def worlds() -> st.SearchStrategy[Small]:
    return st.integers(0, 1 << 30).map(lambda seed: any_world(random.Random(seed), SPAN_MS))


@settings(max_examples=40)
@given(worlds())
def test_s21_no_two_groups_that_stay_ready_come_apart_by_more_than_the_bound(world: Small) -> None:
    """(a), (d): whatever comes and goes, over every interval in which both are ready, from each entry on."""
    assert world.worst_apart() <= 1


@settings(max_examples=40)
@given(worlds())
def test_l6_no_item_waits_longer_than_its_groups_weight_allows(world: Small) -> None:
    """(b), without preemption."""
    assert world.worst_wait() <= 1


def test_s21_no_small_world_breaks_a_bound() -> None:
    """All of them: estimates that are cold, too large and too small, one slot or two, entries at two instants."""
    reached = [(world.worst_apart(lab), world.worst_wait(lab)) for world in all_small() if (lab := world.run())]
    assert len(reached) == 192
    assert max(apart for apart, _ in reached) <= 1
    assert max(wait for _, wait in reached) <= 1
    assert max(apart for apart, _ in reached) > 0.4, "the search looks where it hurts"


@pytest.mark.parametrize("seed", [1, 2])
def test_s21_a_climb_towards_unfairness_finds_no_world_beyond_the_bound(seed: int) -> None:
    reached, world = climb(Small.worst_apart, seed=seed, steps=15, span_ms=SPAN_MS)
    assert reached <= 1, world


@pytest.mark.parametrize("seed", [1, 2])
def test_l6_a_climb_towards_long_waits_finds_no_world_beyond_the_bound(seed: int) -> None:
    reached, world = climb(Small.worst_wait, seed=seed, steps=15, span_ms=SPAN_MS)
    assert reached <= 1, world
