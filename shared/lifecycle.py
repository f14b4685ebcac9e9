"""The one table of states: which Event moves a WorkItem or a Mission from where to where, and who may cause it.

The rules are protocol.md, section 2. `tests/store/test_every_transition.py` tries every call of the function library in
every state against this table, and docs/lifecycle.md is drawn from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .model import Event, EventKind, ItemState, MissionState


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


class Given(StrEnum):
    """What must be true of an item besides its state."""

    PARKED = "it is parked"
    RETRYING = "it waits for another attempt"
    OWNED = "it still belongs to a Worker"
    OWNERLESS = "it belongs to nobody"
    DEPENDENT = "it waits for other items"
    LATE = "its lease or start-by deadline is over"
    NAMED = "its offer names that Worker"
    UNAPPROVED = "it waits for Approval"


@dataclass(frozen=True, slots=True)
class Move:
    """One row: `cause` takes the state from any of `sources` to `target`."""

    cause: EventKind
    sources: frozenset[ItemState | None]
    target: ItemState
    who: Who
    by: frozenset[str] = frozenset()
    """The calls of the store (`library.DOORS`) that ask for it: in any other state they are refused."""
    then: frozenset[str] = frozenset()
    """The calls in which it may follow another row."""
    given: Given | None = None
    unless: tuple[Given, ...] = ()


def _row(
    cause: EventKind,
    sources: Iterable[ItemState | None],
    target: ItemState,
    who: Who,
    *,
    by: str = "",
    then: str = "",
    given: Given | None = None,
    unless: tuple[Given, ...] = (),
) -> Move:
    return Move(cause, frozenset(sources), target, who, frozenset(by.split()), frozenset(then.split()), given, unless)


_S = ItemState
_K = EventKind
_OWNED = (_S.QUEUED, _S.ACTIVE)
_UNFINISHED = (_S.OPEN, _S.OFFERED, _S.QUEUED, _S.ACTIVE, _S.BLOCKED, _S.SUBMITTED)

ITEM_MOVES: tuple[Move, ...] = (
    _row(_K.AUTHORIZED, (None,), _S.OPEN, Who.SUBMITTER, by="create add fire"),
    _row(
        *(_K.OFFERED, (_S.OPEN,), _S.OFFERED, Who.POLICY),
        by="tick",
        then="create add fire submit release yield unblock tick close_session install_session end_membership approve",
    ),
    _row(_K.OFFERED, (_S.FAILED,), _S.OFFERED, Who.POLICY, by="tick", then="fail", given=Given.RETRYING),
    _row(_K.OFFERED, (_S.OFFERED,), _S.OFFERED, Who.POLICY, by="tick", then="decline"),
    _row(_K.OFFERED, (_S.OPEN,), _S.OFFERED, Who.COMMAND, by="retry", given=Given.PARKED),
    _row(_K.OFFERED, (_S.FAILED,), _S.OFFERED, Who.COMMAND, by="retry", unless=(Given.UNAPPROVED,)),
    _row(
        *(_K.OFFERED, (_S.OPEN, _S.OFFERED, _S.FAILED), _S.OFFERED, Who.COMMAND),
        by="offer",
        then="offer",
        unless=(Given.DEPENDENT, Given.UNAPPROVED),
    ),
    _row(_K.OFFERED, (_S.BLOCKED,), _S.OFFERED, Who.COMMAND, by="offer", given=Given.OWNERLESS),
    _row(_K.ACCEPTED, (_S.OFFERED,), _S.QUEUED, Who.OFFERED, by="take accept"),
    _row(_K.OFFER_DECLINED, (_S.OFFERED,), _S.OFFERED, Who.OFFERED, by="decline", given=Given.NAMED),
    *(
        _row(_K.REPRIORITISED, (state,), state, Who.COMMAND, by="prioritise")
        for state in (_S.OPEN, _S.OFFERED, _S.QUEUED, _S.ACTIVE, _S.BLOCKED)
    ),
    _row(_K.REPRIORITISED, (_S.FAILED,), _S.FAILED, Who.COMMAND, by="prioritise", given=Given.RETRYING),
    _row(_K.STARTED, (_S.QUEUED,), _S.ACTIVE, Who.OWNER, by="start", then="take"),
    _row(_K.SCHEDULE_DISCLOSED, (_S.QUEUED,), _S.QUEUED, Who.OWNER, by="disclose"),
    _row(_K.SCHEDULE_DISCLOSED, (_S.ACTIVE,), _S.ACTIVE, Who.HOLDER, by="disclose"),
    _row(_K.PROGRESSED, (_S.ACTIVE,), _S.ACTIVE, Who.HOLDER, by="progress"),
    _row(_K.PROGRESS_SAVED, (_S.ACTIVE,), _S.ACTIVE, Who.HOLDER, by="save"),
    _row(_K.PREEMPTION_REQUESTED, (_S.ACTIVE,), _S.ACTIVE, Who.HOLDER, by="ask_yield"),
    _row(_K.PREEMPTION_OVERDUE, (_S.ACTIVE,), _S.ACTIVE, Who.TIMER, by="tick"),
    _row(_K.CHECKPOINTED, (_S.ACTIVE,), _S.QUEUED, Who.HOLDER, by="yield"),
    _row(_K.BLOCKED, (_S.ACTIVE,), _S.BLOCKED, Who.HOLDER, by="block"),
    _row(_K.UNBLOCKED, (_S.BLOCKED,), _S.QUEUED, Who.COMMAND, by="unblock", given=Given.OWNED),
    _row(_K.UNBLOCKED, (_S.BLOCKED,), _S.OPEN, Who.COMMAND, by="unblock", then="unblock", given=Given.OWNERLESS),
    _row(
        *(_K.RELEASED, (_S.BLOCKED,), _S.BLOCKED, Who.SESSION),
        by="close_session install_session tick end_membership",
        given=Given.OWNED,
    ),
    _row(_K.LAPSED, (_S.BLOCKED,), _S.BLOCKED, Who.TIMER, by="tick", then="unblock", given=Given.OWNED),
    _row(
        _K.RELEASED,
        _OWNED,
        _S.OPEN,
        Who.OWNER,
        by="release close_session tick end_membership",
        then="yield install_session",
    ),
    _row(_K.LAPSED, _OWNED, _S.OPEN, Who.TIMER, by="tick"),
    _row(_K.LAPSED, _OWNED, _S.OPEN, Who.TIMER, by="offer", given=Given.LATE),
    _row(_K.REQUEUED, _OWNED, _S.QUEUED, Who.SESSION, by="install_session"),
    _row(_K.SUBMITTED, (_S.ACTIVE,), _S.SUBMITTED, Who.HOLDER, by="submit"),
    _row(_K.RESULT_ACCEPTED, (_S.SUBMITTED,), _S.VERIFIED, Who.POLICY, then="submit"),
    _row(_K.FAILED, (_S.ACTIVE,), _S.FAILED, Who.HOLDER, by="fail"),
    _row(_K.FAILED, _UNFINISHED, _S.FAILED, Who.COMMAND, by="fail_item"),
    _row(
        *(_K.RETRIES_ENDED, (_S.FAILED,), _S.FAILED, Who.COMMAND),
        by="fail_item cancel tick",
        given=Given.RETRYING,
    ),
    _row(_K.EXPIRED, (_S.FAILED,), _S.FAILED, Who.TIMER, by="tick"),
    _row(_K.PARKED, (_S.OPEN,), _S.OPEN, Who.POLICY, by="tick", then="release install_session create add submit tick"),
    _row(_K.EXECUTION_APPROVED, (_S.OPEN,), _S.OPEN, Who.COMMAND, by="approve", given=Given.UNAPPROVED),
    _row(_K.EXECUTION_APPROVED, (_S.FAILED,), _S.FAILED, Who.COMMAND, by="approve", given=Given.UNAPPROVED),
    _row(_K.CANCELLED, _UNFINISHED, _S.CANCELLED, Who.COMMAND, by="cancel tick"),
)
"""A failed item leaves only by a new offer: of its retry contract, or of a command. Parking holds an open item back.
A blocked item whose ownership ends stays blocked: a closed, silent or replaced session's, or one whose blocked lease is over.

A `tick` carries out what a timer or an ended Mission asks for; no Worker and no person asks it for one item.
`work.expired` says that a failed item of a Mission that grows is kept no longer: no offer can follow.
"""

MISSION_MOVES: dict[EventKind, tuple[frozenset[MissionState | None], MissionState]] = {
    EventKind.MISSION_CREATED: (frozenset({None}), MissionState.ACTIVE),
    EventKind.MISSION_SUBMITTED: (frozenset({MissionState.ACTIVE}), MissionState.AWAITING_APPROVAL),
    EventKind.MISSION_APPROVED: (frozenset({MissionState.AWAITING_APPROVAL}), MissionState.APPROVED),
    EventKind.MISSION_TERMINATED: (frozenset({MissionState.ACTIVE}), MissionState.FAILED),
    EventKind.MISSION_CANCELLED: (frozenset({MissionState.ACTIVE}), MissionState.CANCELLED),
    EventKind.MISSION_SEALED: (frozenset({MissionState.ACTIVE}), MissionState.ACTIVE),
    EventKind.MEMBERSHIP_ENDED: (frozenset({MissionState.ACTIVE}), MissionState.ACTIVE),
    EventKind.MEMBERSHIP_CHANGED: (frozenset({MissionState.ACTIVE}), MissionState.ACTIVE),
}

MISSION_CALLS: dict[EventKind, frozenset[str]] = {
    EventKind.MISSION_CREATED: frozenset({"create"}),
    EventKind.MISSION_SUBMITTED: frozenset({"submit", "seal"}),
    EventKind.MISSION_APPROVED: frozenset({"submit", "seal"}),
    EventKind.MISSION_TERMINATED: frozenset({"submit", "fail", "fail_item", "cancel", "seal", "tick"}),
    EventKind.MISSION_CANCELLED: frozenset({"cancel"}),
    EventKind.MISSION_SEALED: frozenset({"seal"}),
    EventKind.MEMBERSHIP_ENDED: frozenset({"end_membership"}),
    EventKind.MEMBERSHIP_CHANGED: frozenset({"admit"}),
}
"""The calls of the store in which each of them happens."""

GROUP_CALLS: dict[EventKind, frozenset[str]] = {
    EventKind.SNAPSHOT_CREATED: frozenset({"snapshot"}),
    EventKind.GROUP_REPAIRED: frozenset({"repair"}),
    EventKind.GROUP_ARCHIVED: frozenset({"archived"}),
}
"""Events of a Group itself, which move neither its Mission nor an item, and the calls in which they happen."""

QUIET_KINDS = frozenset(
    {
        *(_K.PROGRESSED, _K.SCHEDULE_DISCLOSED, _K.OFFER_DECLINED, _K.REPRIORITISED),
        *(_K.PREEMPTION_REQUESTED, _K.PREEMPTION_OVERDUE, _K.SNAPSHOT_CREATED, _K.GROUP_ARCHIVED),
    }
)
"""Kinds that bear no state: one whose data cannot be read is quarantined and counts as processed (S12)."""

TERMINAL_ITEMS = frozenset({_S.VERIFIED, _S.FAILED, _S.CANCELLED})
TERMINAL_MISSIONS = frozenset({MissionState.APPROVED, MissionState.FAILED, MissionState.CANCELLED})

_OWNED_NEXT = {
    (source, move.cause): move.target
    for move in ITEM_MOVES
    if move.given is not Given.OWNERLESS
    for source in move.sources
}
_OWNERLESS_NEXT = {
    (source, move.cause): move.target for move in ITEM_MOVES if move.given is Given.OWNERLESS for source in move.sources
}


def next_state(state: ItemState | None, cause: EventKind, *, ownerless: bool = False) -> ItemState:
    """The state after `cause`; ValueError where the table has no such row.

    `ownerless`: of an item whose ownership was over, which matters only where the table has a row for each (`is_ownerless`).
    """
    first, second = (_OWNERLESS_NEXT, _OWNED_NEXT) if ownerless else (_OWNED_NEXT, _OWNERLESS_NEXT)
    target = first.get((state, cause)) or second.get((state, cause))
    if target is None:
        raise ValueError(f"no transition: {state or 'nothing'} by {cause}")
    return target


def is_ownerless(event: Event) -> bool:
    """Whether an Event says of its item that nobody owned it: an unblocking without a start-by deadline."""
    return event.kind is EventKind.UNBLOCKED and event.get("start_by_ms") == "0"
