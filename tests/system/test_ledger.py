"""The checker of histories sees what is wrong: each of its checks, on a history that was bent for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import ledger
from fleet import Line, chain
from fleet_handlers import link, seed_of
from ledger import History, faults_of
from treadle.shared import codec
from treadle.shared.answers import ItemView, MissionView
from treadle.shared.model import (
    EVENT_FIELDS,
    Capability,
    Event,
    EventKind,
    GroupId,
    ItemId,
    ItemState,
    MissionId,
    MissionState,
)

K = EventKind
STATE = {"done": 1, "value": link(seed_of("a", {}), 1)}
DIGEST = codec.digest(codec.pack(STATE, field="state", limit=codec.CHECKPOINT_MAX))
VALUE = link(str(STATE["value"]), 2)


def log_of(rows: Sequence[tuple[EventKind, str, str, dict[str, object]]]) -> list[Event]:
    """Events 100 ms apart, from (kind, item, by, data)."""
    return [
        Event(
            GroupId("m"),
            1,
            seq,
            kind,
            1_000_000 + 100 * seq,
            ItemId(item) if item else None,
            by,
            tuple(str(data.get(name, 0)) for name in EVENT_FIELDS[kind]),
        )
        for seq, (kind, item, by, data) in enumerate(rows, start=1)
    ]


def started(by: str, epoch: int, lease: str, number: int, seq: int) -> tuple[EventKind, str, str, dict[str, object]]:
    """A start whose lease is granted for 200 ms."""
    data = {"epoch": epoch, "lease": lease, "expires_ms": 1_000_000 + 100 * seq + 200, "number": number}
    return (K.STARTED, "a", by, data)


ROWS: list[tuple[EventKind, str, str, dict[str, object]]] = [
    (K.MISSION_CREATED, "", "ann", {}),
    (K.AUTHORIZED, "a", "ann", {}),
    (K.OFFERED, "a", "policy", {}),
    (K.ACCEPTED, "a", "one@1", {"epoch": 1}),
    started("one@1", 1, "l1", 1, 5),
    (K.PROGRESS_SAVED, "a", "one@1", {"epoch": 1, "number": 1, "digest": DIGEST}),
    (K.LAPSED, "a", "timer", {"epoch": 1, "agent": "one", "what": "lease", "at_ms": 1_000_700}),
    (K.OFFERED, "a", "policy", {}),
    (K.ACCEPTED, "a", "two@1", {"epoch": 2}),
    started("two@1", 2, "l2", 2, 10),
    (K.SUBMITTED, "a", "two@1", {"epoch": 2}),
    (K.RESULT_ACCEPTED, "a", "policy", {"epoch": 2}),
    (K.MISSION_SUBMITTED, "", "policy", {}),
    (K.MISSION_APPROVED, "", "policy", {}),
]


def line(attempt: int, what: str, at_s: float, **more: object) -> Line:
    return Line("m", "a", attempt, "one" if attempt == 1 else "two", attempt, what, at_s, more)


def history() -> History:
    """One item, begun by one Worker, saved once, lapsed, and ended by another."""
    view = MissionView(
        MissionId("m"), GroupId("m"), 0, MissionState.APPROVED, "o", "ann", "ann", 1.0, 0, 1, 0, 1, 1, 0, 0, 14
    )
    item = ItemView(MissionId("m"), ItemId("a"), ItemState.VERIFIED, Capability("fleet.chain"), None, 2, 2, 0)
    lines = [line(1, "begin", 1.0, state={}), line(1, "step", 2.0, number=1), line(2, "begin", 3.0, state=STATE)]
    return History([chain("a", steps=2)], log_of(ROWS), view, [item], lines, {"a": VALUE})


def bent(at: int, **data: object) -> Callable[[History], History]:
    """The history with other data in Event `at` (from 1); `by` replaces who caused it."""

    def bend(good: History) -> History:
        rows = list(ROWS)
        kind, item, by, old = rows[at - 1]
        rows[at - 1] = (kind, item, str(data.pop("by", by)), old | data)
        return replace(good, events=log_of(rows))

    return bend


def without(*ats: int) -> Callable[[History], History]:
    """The history with Events left out, all later ones numbered down."""
    return lambda good: replace(good, events=log_of([row for at, row in enumerate(ROWS, 1) if at not in ats]))


def with_lines(*lines: Line) -> Callable[[History], History]:
    return lambda good: replace(good, lines=[*good.lines, *lines])


BENT: list[tuple[Callable[[History], list[str]], Callable[[History], History]]] = [
    (ledger.sequences_contiguous, lambda good: replace(good, events=[*good.events[:5], *good.events[6:]])),
    (
        ledger.sequences_contiguous,
        lambda good: replace(good, events=[replace(good.events[0], at_ms=2**50), *good.events[1:]]),
    ),
    (ledger.nothing_lost, without(11, 12)),
    (ledger.nothing_lost, without(14)),
    (ledger.nothing_lost, lambda good: replace(good, events=log_of([*ROWS[:12], ROWS[11], *ROWS[12:]]))),
    (ledger.nothing_lost, lambda good: replace(good, events=log_of([*ROWS[:12], ROWS[7], *ROWS[12:]]))),
    (ledger.nothing_lost, lambda good: replace(good, items=[replace(good.items[0], state=ItemState.ACTIVE)])),
    (ledger.nothing_lost, lambda good: replace(good, items=[])),
    (ledger.nothing_lost, lambda good: replace(good, work=[*good.work, chain("b")])),
    (ledger.nothing_lost, lambda good: replace(good, view=replace(good.view, state=MissionState.ACTIVE))),
    (ledger.never_two_live_leases, without(7, 8, 9)),
    (ledger.never_two_live_leases, bent(7, at_ms=1_000_699)),
    (ledger.never_two_live_leases, bent(7, at_ms=1_001_001)),
    (ledger.never_two_live_leases, bent(10, lease="l1")),
    (ledger.epochs_strictly_increase, bent(9, epoch=1)),
    (ledger.epochs_strictly_increase, bent(9, epoch=3)),
    (ledger.epochs_strictly_increase, bent(10, number=1)),
    (ledger.epochs_strictly_increase, bent(11, epoch=1)),
    (ledger.epochs_strictly_increase, bent(11, by="one@1")),
    (ledger.epochs_strictly_increase, bent(11, by="two@2")),
    (ledger.resumed_from_last_saved, bent(6, number=2)),
    (ledger.resumed_from_last_saved, bent(6, digest="other")),
    (ledger.resumed_from_last_saved, without(6)),
    (ledger.resumed_from_last_saved, with_lines(line(2, "begin", 3.5, state=STATE))),
    (ledger.resumed_from_last_saved, with_lines(line(3, "begin", 3.5, state=STATE))),
    (ledger.dependencies_first, lambda good: replace(good, work=[chain("a", after=("b",)), chain("b")])),
    (ledger.runs_apart, with_lines(line(1, "step", 3.5, number=2))),
    (ledger.results_right, lambda good: replace(good, results={"a": STATE["value"]})),
    (ledger.results_right, lambda good: replace(good, results={})),
]


def test_a_good_history_raises_no_alarm() -> None:
    assert faults_of(history()) == []


def test_every_bent_history_is_seen_by_the_check_it_was_bent_for() -> None:
    for number, (check, bend) in enumerate(BENT):
        found = faults_of(bend(history()))
        assert any(fault.startswith(f"{check.__name__}: ") for fault in found), f"{number}, {check.__name__}: {found}"
    assert {check for check, _ in BENT} == set(ledger.CHECKS), "every check has a bent example"
