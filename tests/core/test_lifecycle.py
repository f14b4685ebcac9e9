"""The table of states is whole and consistent: what it says is all there is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from treadle.shared import projection
from treadle.shared.lifecycle import (
    GROUP_CALLS,
    ITEM_MOVES,
    MISSION_MOVES,
    QUIET_KINDS,
    TERMINAL_ITEMS,
    TERMINAL_MISSIONS,
    Given,
    next_state,
)
from treadle.shared.model import EVENT_FIELDS, EXTENSION_KINDS, EventKind, ItemState, MissionState
from treadle.worker.core.queues import ENDS_A_RUN

NO_ROW_YET: frozenset[ItemState] = frozenset()
"""States of the protocol that no row leads to so far; a row that comes shortens this list."""
NO_MISSION_ROW_YET: frozenset[MissionState] = frozenset()

EVERY_STATE: tuple[ItemState | None, ...] = (None, *ItemState)


def reachable(edges: Mapping[ItemState | None, set[ItemState]], start: ItemState | None) -> set[ItemState]:
    found: set[ItemState] = set()
    frontier = [start]
    while frontier:
        new = edges.get(frontier.pop(), set()) - found
        found |= new
        frontier.extend(new)
    return found


def edges() -> dict[ItemState | None, set[ItemState]]:
    found: dict[ItemState | None, set[ItemState]] = {}
    for move in ITEM_MOVES:
        for source in move.sources:
            found.setdefault(source, set()).add(move.target)
    return found


def test_each_cause_leads_from_a_state_to_one_target_whoever_causes_it() -> None:
    rows = [
        (move.cause, source, move.given, call) for move in ITEM_MOVES for source in move.sources for call in move.by
    ]
    assert len(rows) == len(set(rows))
    targets: dict[object, set[ItemState]] = {}
    for move in ITEM_MOVES:
        for source in move.sources:
            ownerless = move.cause is EventKind.UNBLOCKED and move.given is Given.OWNERLESS
            targets.setdefault((source, move.cause, ownerless), set()).add(move.target)
    assert {pair: found for pair, found in targets.items() if len(found) > 1} == {}


def test_s12_a_kind_that_may_be_left_out_moves_nothing_and_no_reader_takes_a_step_for_it() -> None:
    moved = {move.cause for move in ITEM_MOVES if move.sources != {move.target}}
    assert not QUIET_KINDS & (moved | MISSION_MOVES.keys() | {EventKind(kind) for kind in projection._STEPS})
    assert not QUIET_KINDS & ENDS_A_RUN


def test_only_an_unblocking_asks_whether_somebody_owns_the_item() -> None:
    assert next_state(ItemState.BLOCKED, EventKind.UNBLOCKED) is ItemState.QUEUED
    assert next_state(ItemState.BLOCKED, EventKind.UNBLOCKED, ownerless=True) is ItemState.OPEN
    assert next_state(ItemState.QUEUED, EventKind.STARTED, ownerless=True) is ItemState.ACTIVE


def test_a_blocked_item_whose_ownership_ends_stays_blocked() -> None:
    for cause in (EventKind.LAPSED, EventKind.RELEASED):
        assert next_state(ItemState.BLOCKED, cause) is ItemState.BLOCKED


def test_every_state_is_reached_from_nothing() -> None:
    assert reachable(edges(), None) == set(ItemState) - NO_ROW_YET


def test_every_state_that_is_not_terminal_can_end() -> None:
    for state in set(ItemState) - TERMINAL_ITEMS - NO_ROW_YET:
        assert reachable(edges(), state) & TERMINAL_ITEMS, f"{state} never ends"


def test_terminal_states_have_no_way_out_of_the_table() -> None:
    """A failed item leaves by a new offer only (protocol 2); verified and cancelled never."""
    left = [move for move in ITEM_MOVES if move.sources & TERMINAL_ITEMS and move.target not in TERMINAL_ITEMS]
    assert {move.cause for move in left} == {EventKind.OFFERED}
    assert {source for move in left for source in move.sources} & TERMINAL_ITEMS == {ItemState.FAILED}


def test_the_table_and_next_state_say_the_same_of_every_pair() -> None:
    unblocked = EventKind.UNBLOCKED
    owned = [move for move in ITEM_MOVES if move.cause is not unblocked or move.given is not Given.OWNERLESS]
    targets = {(source, move.cause): move.target for move in owned for source in move.sources}
    for cause in EventKind:
        for state in EVERY_STATE:
            if (state, cause) in targets:
                assert next_state(state, cause) is targets[state, cause]
            else:
                with pytest.raises(ValueError, match="no transition"):
                    next_state(state, cause)


def test_a_refused_transition_names_the_state_and_the_cause() -> None:
    with pytest.raises(ValueError, match=r"verified by work\.started"):
        next_state(ItemState.VERIFIED, EventKind.STARTED)
    with pytest.raises(ValueError, match=r"nothing by work\.submitted"):
        next_state(None, EventKind.SUBMITTED)


def test_an_item_goes_from_nothing_to_verified_by_the_main_road() -> None:
    state: ItemState | None = None
    seen = []
    for cause in (
        EventKind.AUTHORIZED,
        EventKind.OFFERED,
        EventKind.ACCEPTED,
        EventKind.STARTED,
        EventKind.PROGRESS_SAVED,
        EventKind.CHECKPOINTED,
        EventKind.STARTED,
        EventKind.SUBMITTED,
        EventKind.RESULT_ACCEPTED,
    ):
        state = next_state(state, cause)
        seen.append(state.value)
    assert seen == ["open", "offered", "queued", "active", "active", "queued", "active", "submitted", "verified"]


def test_only_the_lapse_the_release_and_the_new_session_take_an_item_back() -> None:
    """S19: whatever takes an item out of active without ending it leaves it open or queued, nowhere else."""
    back = {
        move.cause: move.target
        for move in ITEM_MOVES
        if ItemState.ACTIVE in move.sources and move.target in (ItemState.OPEN, ItemState.QUEUED)
    }
    assert back == {
        EventKind.CHECKPOINTED: ItemState.QUEUED,
        EventKind.RELEASED: ItemState.OPEN,
        EventKind.LAPSED: ItemState.OPEN,
        EventKind.REQUEUED: ItemState.QUEUED,
    }


def test_every_kind_has_its_fields_and_its_row() -> None:
    assert EVENT_FIELDS.keys() == set(EventKind)
    rows = {move.cause for move in ITEM_MOVES} | MISSION_MOVES.keys() | GROUP_CALLS.keys()
    assert rows == set(EventKind), "a kind without a row moves nothing, or its row is missing"
    assert all(kind in EVENT_FIELDS for kind in EXTENSION_KINDS)


def test_a_mission_reaches_every_state_and_leaves_no_terminal_one() -> None:
    found: set[MissionState | None] = {None}
    for _ in MissionState:
        found |= {target for sources, target in MISSION_MOVES.values() if sources & found}
    assert found - {None} == set(MissionState) - NO_MISSION_ROW_YET
    assert not {source for sources, _ in MISSION_MOVES.values() for source in sources} & TERMINAL_MISSIONS
