"""What is disclosed of a run's end holds as often as it says, and tells of nobody else (WRK-012, S23, R38)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from builders import NOW_MS
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.disclosure import CapacityState, Disclosure
from treadle.worker.core.forecast import RUNS_KEPT, SURE, History, Runs, Waits, forecast, is_material

Draw = Callable[[random.Random], int]
LENGTHS: dict[str, Draw] = {
    "alike": lambda chance: round(chance.gauss(20_000, 2_000)),
    "evenly spread": lambda chance: chance.randint(1_500, 60_000),
    "of long tail": lambda chance: 1_200 + round(chance.lognormvariate(9, 1.2)),
    "without memory": lambda chance: 1_001 + round(chance.expovariate(1 / 15_000)),
    "of two kinds": lambda chance: round(
        chance.gauss(3_000, 300) if chance.random() < 0.7 else chance.gauss(90_000, 9_000)
    ),
}
FIRST_MS = 1_000


def test_a_worker_that_has_seen_nothing_says_that_the_end_is_unknown() -> None:
    assert forecast(History(), Runs(NOW_MS - 5_000), NOW_MS, is_full=False) == Disclosure(
        NOW_MS - 5_000, NOW_MS - 5_000, 0, 0, CapacityState.AVAILABLE
    )


def test_a_worker_that_is_new_to_a_group_gives_its_typical_run_and_claims_nothing() -> None:
    assert History().end(1_000, typical_ms=4_000) == (4_000, 0)
    assert History().end(4_000, typical_ms=4_000) == (0, 0), "it has lasted longer than is typical"
    assert History([2_000]).end(3_000, typical_ms=4_000) == (4_000, 0), "no run here took so long"


@pytest.mark.parametrize(("runs", "confidence"), [(1, 50), (2, 66), (3, 75), (4, 80), (8, 88), (9, 80), (64, 80)])
def test_few_runs_give_little_confidence(runs: int, confidence: int) -> None:
    history = History(range(10_000, 10_000 + 1_000 * runs, 1_000))
    end_ms, said = history.end(1_000)
    assert said == confidence
    assert end_ms <= 10_000 + 1_000 * (runs - 1)


def test_what_has_lasted_longer_than_most_is_judged_by_the_rest() -> None:
    history = History(range(1_000, 65_000, 1_000))
    assert history.end(500) == (52_000, 80)
    assert history.end(60_000) == (64_000, 80), "of the four longer ones the last"
    assert history.end(63_500) == (64_000, 50)
    assert history.end(64_000) == (0, 0)


def test_runs_of_long_ago_are_forgotten() -> None:
    history = History([1_000_000] * 500)
    for _ in range(RUNS_KEPT):
        history.add(2_000)
    assert len(history) == RUNS_KEPT
    assert history.end(1_000) == (2_000, 80)


@given(st.lists(st.integers(1, 10**9), max_size=200), st.integers(0, 10**9), st.integers(0, 10**9))
def test_an_end_lies_ahead_and_no_confidence_is_far_above_what_is_aimed_at(
    runs: list[int], lasted_ms: int, typical_ms: int
) -> None:
    end_ms, confidence = History(runs).end(lasted_ms, typical_ms=typical_ms)
    assert end_ms == 0 or end_ms > lasted_ms
    assert 0 <= confidence < SURE + 9, "one rank above, of nine"
    assert confidence == 0 or end_ms in runs[-RUNS_KEPT:]
    assert end_ms or not confidence


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("seen", [1, 2, 3, 7, 64])
def test_forecasts_at_confidence_c_hold_in_c_of_the_cases_within_five_points(lengths: str, seen: int) -> None:
    """2,000 trials a case, seed 5: so many runs seen, the next one disclosed after its first second."""
    chance, draw = random.Random(5), LENGTHS[lengths]
    held: dict[int, list[bool]] = {}
    for _ in range(2_000):
        end_ms, confidence = History(draw(chance) for _ in range(seen)).end(FIRST_MS)
        held.setdefault(confidence, []).append(draw(chance) <= end_ms)
    (claimed,) = held
    assert claimed == {1: 50, 2: 66, 3: 75, 7: 87, 64: SURE}[seen]
    assert abs(100 * sum(held[claimed]) / len(held[claimed]) - claimed) <= 5


def simulated(draw: Draw, *, slots: int, seed: int, runs: int) -> dict[int, list[bool]]:
    """A Worker of so many slots, always busy: what it disclosed of each run, by confidence, and whether it held.

    Each run is disclosed a second after its start, and again whenever it is late; what ended is what the history has.
    """
    chance, history = random.Random(seed), History()
    moments = [(0, slot, "start", 0, 0) for slot in range(slots)]
    held: dict[int, list[bool]] = {}
    ended = 0
    while ended < runs:
        now_ms, slot, what, start_ms, length_ms = heapq.heappop(moments)
        if what == "start":
            length_ms = draw(chance)
            heapq.heappush(moments, (now_ms + length_ms, slot, "end", now_ms, length_ms))
            heapq.heappush(moments, (now_ms + FIRST_MS, slot, "disclose", now_ms, length_ms))
        elif what == "end":
            history.add(length_ms)
            ended += 1
            heapq.heappush(moments, (now_ms, slot, "start", 0, 0))
        elif now_ms < start_ms + length_ms:
            said = forecast(history, Runs(start_ms), now_ms, is_full=True)
            held.setdefault(said.confidence, []).append(start_ms + length_ms <= said.end_ms)
            if said.end_ms:
                heapq.heappush(moments, (said.end_ms + 1, slot, "disclose", start_ms, length_ms))
    return held


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_busy_workers_forecasts_hold_as_often_as_they_say_the_first_ones_and_the_late_ones_alike(
    lengths: str,
) -> None:
    """8,000 runs on 4 slots, seed 5: every confidence that was claimed 300 times or more."""
    held = simulated(LENGTHS[lengths], slots=4, seed=5, runs=8_000)
    claims = {confidence: kept for confidence, kept in held.items() if confidence and len(kept) >= 300}
    assert SURE in claims
    for confidence, kept in claims.items():
        assert abs(100 * sum(kept) / len(kept) - confidence) <= 5, f"{confidence} %, claimed {len(kept)} times"


def test_runs_of_one_length_end_in_time_more_often_than_is_claimed() -> None:
    """A quantile of values that are all the same is each of them: the claim is then too modest, and never too bold."""
    held = simulated(lambda chance: 5_000 + 0 * chance.randint(0, 1), slots=4, seed=5, runs=1_000)
    assert all(held[SURE])


# --- what enters ---


def test_what_runs_has_its_start_and_what_waits_a_window_until_its_start_by_deadline() -> None:
    history = History([4_000] * 9)
    assert forecast(history, Runs(NOW_MS - 1_000), NOW_MS, is_full=True) == Disclosure(
        NOW_MS - 1_000, NOW_MS - 1_000, NOW_MS + 3_000, 80, CapacityState.CONSTRAINED
    )
    assert forecast(history, Waits(NOW_MS + 9_000), NOW_MS, is_full=True) == Disclosure(
        NOW_MS, NOW_MS + 9_000, NOW_MS + 13_000, 80, CapacityState.QUEUED
    )


def test_a_clock_that_runs_ahead_makes_no_window_that_ends_before_it_begins() -> None:
    assert forecast(History(), Waits(NOW_MS - 1), NOW_MS, is_full=True).start_to_ms == NOW_MS
    assert forecast(History([4_000]), Runs(NOW_MS + 50), NOW_MS, is_full=True).end_ms == NOW_MS + 4_050


SAID = Disclosure(NOW_MS, NOW_MS, NOW_MS + 5_000, 80, CapacityState.AVAILABLE)


def test_only_an_item_that_is_late_or_was_unknown_is_disclosed_again() -> None:
    later, unknown = replace(SAID, end_ms=NOW_MS + 9_000), replace(SAID, end_ms=0, confidence=0)
    assert not is_material(SAID, later, NOW_MS + 5_000), "its end has not passed"
    assert not is_material(SAID, replace(SAID, capacity_state=CapacityState.CONSTRAINED), NOW_MS), "that changes often"
    assert is_material(SAID, later, NOW_MS + 5_001)
    assert is_material(SAID, unknown, NOW_MS + 5_001), "that nobody knows any more is news too"
    assert is_material(unknown, later, NOW_MS)
    assert not is_material(unknown, unknown, NOW_MS + 10**6), "and it is said once"


# --- the protocol's one instant ---


def test_r38_the_protocols_estimate_has_the_middle_of_the_window_and_the_end_that_holds_with_its_confidence() -> None:
    said = Disclosure(NOW_MS, NOW_MS + 10_001, NOW_MS + 60_000, 80, CapacityState.QUEUED, NOW_MS + 7)
    assert said.schedule_estimate() == {
        "estimatedStart": "2025-01-12T13:46:45.000Z",
        "estimatedCompletion": "2025-01-12T13:47:40.000Z",
        "confidence": 0.8,
        "capacityStatus": "queued",
        "lastCalculatedAt": "2025-01-12T13:46:40.007Z",
    }
    assert replace(said, end_ms=0, confidence=0).schedule_estimate() is None, (
        "it has no way to say that it does not know"
    )
