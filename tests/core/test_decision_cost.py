"""What a decision costs, as calls inside it: nothing for what is queued or has ended, little for what else is ready.

Counted and not timed, so that no machine decides it; the seconds are measured in tests/bench/test_decisions.py.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
from builders import AGENT, CAPABILITY, NOW_MS, a_usage, an_entry
from treadle.worker.core.schedule import View, decide
from treadle.worker.core.tree import Ready

SLOTS, TYPICAL_MS = 16, 300


def calls_of(act: Callable[[], object]) -> int:
    """How many functions are called, built-in ones too; none by a collection of garbage, which comes when it likes."""
    count = 0

    def seen(_frame: object, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def a_tree(groups: int, queued: int, *, used_ms: int = 0) -> Ready:
    """Groups of ten to an account, all served and level but for some milliseconds."""
    ready = Ready(AGENT, [CAPABILITY])
    ready.begin(0)
    ready.update(
        [
            an_entry(
                f"g{number}",
                queued // groups,
                account=f"account{number // 10}",
                usage=a_usage(used_ms=used_ms + 37 * number % 5_000, typical_ms=TYPICAL_MS, entry=1, served=True),
            )
            for number in range(groups)
        ],
        NOW_MS,
    )
    return ready


def cost(ready: Ready) -> int:
    view = View(ready, SLOTS)
    expected = decide(view, NOW_MS)  # what it keeps in mind is made now
    calls = calls_of(lambda: decide(view, NOW_MS))
    assert sum(take.most for take in expected if not take.fallback) == SLOTS
    return calls


def test_a_decision_costs_the_same_whatever_is_queued_and_whatever_has_ended() -> None:
    """A thousand items or a million, in a hundred Groups; new Groups, or such that have had a year of slot-time."""
    few = cost(a_tree(100, 10_000))
    assert cost(a_tree(100, 1_000_000)) == few
    # A key is less exact there: now and then a tie is looked at once more.
    assert cost(a_tree(100, 10_000, used_ms=31_536_000_000)) == pytest.approx(few, rel=0.01)


def test_a_decision_among_a_hundred_times_as_many_groups_costs_little_more() -> None:
    """The next of a heap, and not a look at each: far less than twice for a hundred times as many."""
    assert cost(a_tree(10_000, 1_000_000)) <= 1.5 * cost(a_tree(100, 10_000))


@pytest.mark.parametrize("groups", [10, 1_000])
def test_what_has_ended_is_forgotten(groups: int) -> None:
    """A thousand rounds of Groups that come, end and do not return leave nothing that a decision would walk over."""
    ready = a_tree(groups, 10 * groups)
    fresh = cost(ready)
    for number in range(1_000):
        gone = an_entry(f"gone{number}", 1, account="account0", usage=a_usage(entry=1, served=True))
        ready.update([gone], NOW_MS)
        ready.update([an_entry(gone.group, 0, account="account0")], NOW_MS)
    assert len(ready.standings()) == groups
    assert cost(ready) <= fresh + 10
