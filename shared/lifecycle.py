"""The one table of states: which Event moves a WorkItem or a Mission from where to where, and who may cause it.

The rules are protocol.md, section 2. The function library is checked against this table by a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .model import EventKind, ItemState, MissionState


class Who(StrEnum):
    """Who may cause a transition."""

    SUBMITTER = "submitter"
    OWNER = "owner"
    """The Worker that holds the item's current Ownership Epoch."""
    HOLDER = "holder"
    """The owner, citing the item's current Lease ID."""
    OFFERED = "offered Worker"
    POLICY = "policy"
    """A standing instruction stored with the Mission."""
    TIMER = "timer"
    SESSION = "new session"
    COMMAND = "Coordinator or owner"
    """By a command of the Mission's Coordinator or owner."""


@dataclass(frozen=True, slots=True)
class Move:
    """One row: `cause` takes the state from any of `sources` to `target`."""

    cause: EventKind
    sources: frozenset[ItemState | None]
    target: ItemState
    who: Who


def _row(cause: EventKind, sources: Iterable[ItemState | None], target: ItemState, who: Who) -> Move:
    return Move(cause, frozenset(sources), target, who)


_S = ItemState
_UNFINISHED = (_S.OPEN, _S.OFFERED, _S.QUEUED, _S.ACTIVE, _S.BLOCKED, _S.SUBMITTED)

ITEM_MOVES: tuple[Move, ...] = (
    _row(EventKind.AUTHORIZED, (None,), _S.OPEN, Who.SUBMITTER),
    _row(EventKind.OFFERED, (_S.OPEN, _S.FAILED), _S.OFFERED, Who.POLICY),
    _row(EventKind.ACCEPTED, (_S.OFFERED,), _S.QUEUED, Who.OFFERED),
    _row(EventKind.STARTED, (_S.QUEUED,), _S.ACTIVE, Who.OWNER),
    _row(EventKind.PROGRESS_SAVED, (_S.ACTIVE,), _S.ACTIVE, Who.HOLDER),
    _row(EventKind.CHECKPOINTED, (_S.ACTIVE,), _S.QUEUED, Who.HOLDER),
    _row(EventKind.RELEASED, (_S.QUEUED, _S.ACTIVE), _S.OPEN, Who.OWNER),
    _row(EventKind.LAPSED, (_S.QUEUED, _S.ACTIVE), _S.OPEN, Who.TIMER),
    _row(EventKind.REQUEUED, (_S.QUEUED, _S.ACTIVE), _S.QUEUED, Who.SESSION),
    _row(EventKind.SUBMITTED, (_S.ACTIVE,), _S.SUBMITTED, Who.HOLDER),
    _row(EventKind.RESULT_ACCEPTED, (_S.SUBMITTED,), _S.VERIFIED, Who.POLICY),
    _row(EventKind.FAILED, (_S.ACTIVE,), _S.FAILED, Who.HOLDER),
    _row(EventKind.FAILED, _UNFINISHED, _S.FAILED, Who.COMMAND),
    _row(EventKind.RETRIES_ENDED, (_S.FAILED,), _S.FAILED, Who.COMMAND),
    _row(EventKind.PARKED, (_S.OPEN,), _S.OPEN, Who.POLICY),
    _row(EventKind.CANCELLED, _UNFINISHED, _S.CANCELLED, Who.COMMAND),
)
"""A failed item leaves only by a new offer: of its retry contract, or of a command. Parking holds an open item back."""

MISSION_MOVES: dict[EventKind, tuple[frozenset[MissionState | None], MissionState]] = {
    EventKind.MISSION_CREATED: (frozenset({None}), MissionState.ACTIVE),
    EventKind.MISSION_SUBMITTED: (frozenset({MissionState.ACTIVE}), MissionState.AWAITING_APPROVAL),
    EventKind.MISSION_APPROVED: (frozenset({MissionState.AWAITING_APPROVAL}), MissionState.APPROVED),
    EventKind.MISSION_TERMINATED: (frozenset({MissionState.ACTIVE}), MissionState.FAILED),
    EventKind.MISSION_CANCELLED: (frozenset({MissionState.ACTIVE}), MissionState.CANCELLED),
    EventKind.MISSION_SEALED: (frozenset({MissionState.ACTIVE}), MissionState.ACTIVE),
}

TERMINAL_ITEMS = frozenset({_S.VERIFIED, _S.FAILED, _S.CANCELLED})
TERMINAL_MISSIONS = frozenset({MissionState.APPROVED, MissionState.FAILED, MissionState.CANCELLED})

_NEXT = {(source, move.cause): move.target for move in ITEM_MOVES for source in move.sources}


def next_state(state: ItemState | None, cause: EventKind) -> ItemState:
    """The state after `cause`; ValueError where the table has no such row."""
    try:
        return _NEXT[state, cause]
    except KeyError:
        raise ValueError(f"no transition: {state or 'nothing'} by {cause}") from None
