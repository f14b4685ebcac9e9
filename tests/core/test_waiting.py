"""What is owned and does not run: for a slot no longer than a second in vain, blocked until it is unblocked or lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, CAPABILITY, GROUP, ITEM, NOW_MS, SESSION, an_event
from treadle.shared.model import EventKind, Grant, ItemId, ItemState, Lease, LeaseId
from treadle.worker.core.queues import Held
from treadle.worker.core.waiting import GIVE_BACK_S, Waiting

LEASE = Lease(LeaseId("l-1"), GROUP, ITEM, AGENT, SESSION, 1, 3, NOW_MS + 10_000, 1, "r")
BLOCKED = Held(GROUP, ITEM, ItemState.BLOCKED, 1, NOW_MS, number=3)
UNBLOCKED = replace(BLOCKED, state=ItemState.QUEUED, start_by_ms=NOW_MS + 9)


def a_grant(
    item: str = ITEM, *, width: int = 1, lease: Lease | None = None, start_by_ms: int = NOW_MS + 60_000
) -> Grant:
    return Grant(0, GROUP, ItemId(item), CAPABILITY, width, 1, start_by_ms, 4, lease, 0, (), b"inputs", b"")


def never(grant: Grant) -> bool:
    """Nothing is held back."""
    del grant
    return False


def names(grants: list[Grant]) -> list[str]:
    return [grant.item for grant in grants]


def test_what_came_first_is_started_first_and_nothing_overtakes_what_is_too_wide() -> None:
    waiting = Waiting()
    for item, width in (("a", 1), ("b", 2), ("c", 1)):
        waiting.add(a_grant(item, width=width), 0.0)
    assert names(list(waiting.startable(2, never))) == ["a"]
    assert len(waiting) == 2
    assert names(list(waiting.startable(3, never))) == ["b", "c"]


def test_what_is_held_back_stays_and_hinders_nobody() -> None:
    waiting = Waiting()
    for item in "abc":
        waiting.add(a_grant(item), 0.0)
    assert names(list(waiting.startable(1, lambda grant: grant.item == "a"))) == ["b"]
    assert names(waiting.overdue(9.0, NOW_MS, [], lambda grant: grant.item == "a")) == ["c"]
    assert names(waiting.everything()) == ["a"]


def test_an_item_that_waited_for_a_second_is_given_back_and_a_younger_one_is_not() -> None:
    waiting = Waiting()
    waiting.add(a_grant("a"), 0.0)
    waiting.add(a_grant("b"), 0.5)
    assert waiting.overdue(GIVE_BACK_S - 0.01, NOW_MS, [], never) == []
    assert names(waiting.overdue(GIVE_BACK_S, NOW_MS, [(CAPABILITY, 5.0)], never)) == ["a"]
    assert names(waiting.everything()) == ["b"]
    assert not waiting


@pytest.mark.parametrize(
    ("typical_s", "lasted_s", "waits"),
    [
        (10.0, 1.0, False),
        (10.0, 9.5, True),
        (10.0, 15.0, True),
        (10.0, 21.0, False),
        (0.05, 0.02, True),
        (None, 0.0, False),
    ],
)
def test_it_waits_on_where_a_slot_is_expected_to_be_free_soon(
    typical_s: float | None, lasted_s: float, waits: bool
) -> None:
    waiting = Waiting()
    if typical_s is not None:
        waiting.ran(CAPABILITY, typical_s)
    waiting.add(a_grant(), 0.0)
    assert bool(waiting.overdue(2.0, NOW_MS, [(CAPABILITY, lasted_s)], never)) is not waits


def test_whatever_is_expected_its_start_by_time_is_not_used_up() -> None:
    waiting = Waiting()
    waiting.ran(CAPABILITY, 1.0)
    waiting.add(a_grant(start_by_ms=NOW_MS + 999), 0.0)
    assert len(waiting.overdue(2.0, NOW_MS, [(CAPABILITY, 0.5)], never)) == 1


def test_a_blocked_item_waits_for_a_slot_once_it_is_unblocked_without_its_bodies() -> None:
    waiting = Waiting()
    waiting.block(a_grant(lease=LEASE), BLOCKED, 0.0)
    assert waiting.has_blocked
    assert not waiting
    waiting.follow(an_event(EventKind.UNBLOCKED, 9, by="ann"), UNBLOCKED, 1.0)
    (grant,) = waiting.startable(1, never)
    assert (grant.lease, grant.inputs, grant.start_by_ms) == (None, b"", NOW_MS + 9)
    assert not waiting.has_blocked


def test_an_answer_that_came_before_the_run_was_told_of_its_end_is_not_missed() -> None:
    waiting = Waiting()
    waiting.block(a_grant(lease=LEASE), UNBLOCKED, 0.0)
    assert len(waiting) == 1


def test_a_log_that_is_read_late_does_not_start_a_blocked_item_by_its_acceptance() -> None:
    waiting = Waiting()
    waiting.block(a_grant(lease=LEASE), None, 0.0)
    waiting.follow(an_event(EventKind.ACCEPTED, 5), replace(UNBLOCKED, number=0), 1.0)
    assert not waiting
    assert waiting.has_blocked


def test_a_blocked_item_that_is_lost_is_forgotten() -> None:
    waiting = Waiting()
    waiting.block(a_grant(lease=LEASE), BLOCKED, 0.0)
    waiting.follow(an_event(EventKind.LAPSED, 3, by="timer"), None, 1.0)
    assert waiting.has_blocked, "that was an ownership before this one"
    waiting.follow(an_event(EventKind.LAPSED, 9, by="timer"), None, 1.0)
    assert not waiting.has_blocked
