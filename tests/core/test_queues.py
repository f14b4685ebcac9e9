"""The queues are a projection of the log: the same from what concerns the Agent as from all of it (R30, C10)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from builders import AGENT, GROUP, ITEM, NOW_MS, OTHER, SESSION, an_event
from hypothesis import given
from hypothesis import strategies as st
from lives import a_log
from treadle.shared.errors import Corrupt
from treadle.shared.lifecycle import ITEM_MOVES, TERMINAL_ITEMS, Given, Move, Who
from treadle.shared.model import EVENT_FIELDS, AgentId, Event, EventKind, GroupId, ItemId, ItemState
from treadle.shared.projection import Projection
from treadle.worker.core.queues import Held, Queues

K = EventKind


def queues_of(events: Iterable[Event]) -> Queues:
    queues = Queues(AGENT, SESSION)
    for event in events:
        queues.fold(event)
    return queues


def held(queues: Queues) -> Held:
    found = queues.get(GROUP, ITEM)
    assert found is not None
    return found


def test_an_accepted_item_is_queued_with_its_epoch_and_start_by() -> None:
    queues = queues_of([an_event(K.ACCEPTED, epoch=3, start_by_ms=NOW_MS + 5)])
    assert queues.queued(GROUP) == (Held(GROUP, ITEM, ItemState.QUEUED, 3, NOW_MS + 5),)
    assert queues.active() == ()


def test_a_started_item_is_active_under_its_lease() -> None:
    queues = queues_of([an_event(K.ACCEPTED), an_event(K.STARTED, 2, lease="l-9", expires_ms=NOW_MS + 9, number=4)])
    assert queues.queued(GROUP) == ()
    (active,) = queues.active()
    assert (active.lease_id, active.session_epoch) == ("l-9", SESSION)
    assert active.session_epoch == SESSION


def test_saved_progress_keeps_the_item_active_and_a_yield_queues_it_again() -> None:
    events = [an_event(K.ACCEPTED), an_event(K.STARTED, 2), an_event(K.PROGRESS_SAVED, 3, number=8)]
    saved = held(queues_of(events))
    assert (saved.state, saved.lease_id) == (ItemState.ACTIVE, "l-1")
    yielded = held(queues_of([*events, an_event(K.CHECKPOINTED, 4, number=9, start_by_ms=NOW_MS + 77)]))
    assert (yielded.state, yielded.start_by_ms) == (ItemState.QUEUED, NOW_MS + 77)
    assert (yielded.lease_id, yielded.session_epoch) == (None, 0)


@pytest.mark.parametrize(
    "ending",
    [
        an_event(K.RELEASED, 3),
        an_event(K.LAPSED, 3, by="timer"),
        an_event(K.SUBMITTED, 3),
        an_event(K.FAILED, 3),
        an_event(K.ACCEPTED, 3, by=f"{OTHER}@1", epoch=2),
    ],
    ids=lambda event: event.kind.value,
)
def test_an_ended_ownership_leaves_nothing_behind(ending: Event) -> None:
    queues = queues_of([an_event(K.ACCEPTED), an_event(K.STARTED, 2), ending])
    assert queues.canonical() == ()
    assert queues.groups() == ()


def test_a_new_session_finds_its_items_queued_without_a_lease() -> None:
    before = f"{AGENT}@{SESSION - 1}"
    events = [an_event(K.ACCEPTED, by=before), an_event(K.STARTED, 2, by=before)]
    queues = queues_of(events)
    assert queues.active() == (), "an older session's run is not this one's"
    queues.fold(an_event(K.REQUEUED, 3, by=f"{AGENT}@{SESSION}"))
    assert [item.lease_id for item in queues.queued(GROUP)] == [None]


def test_a_newer_session_in_the_log_says_that_this_runtime_was_replaced() -> None:
    queues = queues_of([an_event(K.ACCEPTED)])
    queues.fold(an_event(K.ACCEPTED, 2, item=ItemId("b"), by=f"{OTHER}@{SESSION + 9}"))
    assert not queues.is_replaced, "another Agent's sessions are its own"
    queues.fold(an_event(K.REQUEUED, 2, by="policy", session=SESSION + 1))
    assert queues.is_replaced


def test_a_changed_priority_leaves_what_is_owned_as_it_is() -> None:
    events = [an_event(K.ACCEPTED), an_event(K.STARTED, 2)]
    changed = an_event(K.REPRIORITISED, 3, by="ana", urgency="critical", deadline_ms=0, impact=5)
    assert held(queues_of([*events, changed])) == held(queues_of(events))


def test_queued_items_stand_in_the_order_they_were_accepted() -> None:
    names = [ItemId(name) for name in ("z", "b", "m")]
    queues = queues_of(an_event(K.ACCEPTED, seq, item=name) for seq, name in enumerate(names, 1))
    assert [item.item for item in queues.queued(GROUP)] == names


def test_groups_are_never_merged() -> None:
    """C1: the same item id in two Groups is two items."""
    other = GroupId("m-2")
    queues = queues_of([an_event(K.ACCEPTED), an_event(K.ACCEPTED, group=other), an_event(K.STARTED, 2, group=other)])
    assert len(queues.queued(GROUP)) == 1
    assert [item.group for item in queues.active()] == [other]
    queues.drop_group(other)
    assert queues.groups() == (GROUP,)


def test_what_other_agents_do_with_other_items_is_no_concern() -> None:
    by = f"{OTHER}@1"
    queues = queues_of(
        [
            an_event(K.MISSION_CREATED, 1, item=None, by="ann"),
            an_event(K.AUTHORIZED, 2, by="ann"),
            an_event(K.OFFERED, 3, by="policy"),
            an_event(K.ACCEPTED, 4, by=by),
            an_event(K.STARTED, 5, by=by),
            an_event(K.LAPSED, 6, by="timer", agent=OTHER),
            an_event(K.RESULT_ACCEPTED, 7, by="policy"),
        ]
    )
    assert queues.canonical() == ()


ILLEGAL = {
    "start of what is not owned": [an_event(K.STARTED)],
    "lapse of what is not owned": [an_event(K.LAPSED, by="timer")],
    "accepted twice": [an_event(K.ACCEPTED), an_event(K.ACCEPTED, 2, epoch=2)],
    "submitted before it was started": [an_event(K.ACCEPTED), an_event(K.SUBMITTED, 2)],
    "started twice": [an_event(K.ACCEPTED), an_event(K.STARTED, 2), an_event(K.STARTED, 3)],
    "stale Ownership Epoch": [an_event(K.ACCEPTED, epoch=5), an_event(K.STARTED, 2, epoch=4)],
    "taken by another at no higher epoch": [an_event(K.ACCEPTED), an_event(K.ACCEPTED, 2, by=f"{OTHER}@1", epoch=1)],
    "another Agent starts it": [an_event(K.ACCEPTED), an_event(K.STARTED, 2, by=f"{OTHER}@1")],
    "an epoch that is no number": [an_event(K.ACCEPTED, epoch="one")],
    "a session that is no number": [an_event(K.ACCEPTED, by=f"{AGENT}@x")],
    "data cut short": [Event(GROUP, 1, 1, K.ACCEPTED, NOW_MS, ITEM, f"{AGENT}@{SESSION}", ("1",))],
}


@pytest.mark.parametrize("events", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_an_illegal_move_is_corrupt_and_changes_nothing(events: list[Event]) -> None:
    queues = queues_of(events[:-1])
    before = queues.canonical()
    with pytest.raises(Corrupt, match=r"m-1\.1\.\d+ \(work\."):
        queues.fold(events[-1])
    assert queues.canonical() == before


# --- two ways to one projection ---

ITEMS = ("a", "b", "c")
AGENTS = (AGENT, OTHER)
BOSS = "ann"


def is_of_concern(event: Event) -> bool:
    """What replies and doorbells bring: what this Agent does, and what is done to it."""
    if event.kind in (K.LAPSED, K.REQUEUED):
        return event.get("agent") == AGENT
    if event.kind in (K.CANCELLED, K.FAILED, K.UNBLOCKED) and event.by == BOSS:
        return True
    return event.by.startswith(f"{AGENT}@")


def is_possible(move: Move, owned: bool) -> bool:
    """Of a blocked item: what ends an ownership needs one, an offer needs none, an unblocking says whether there is one."""
    if ItemState.BLOCKED not in move.sources or (move.who is Who.COMMAND and move.given is None):
        return True
    return owned is not (move.given is Given.OWNERLESS)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A legal log of one Group: a few items moved at random along the table by two Agents."""
    states: dict[str, ItemState | None] = dict.fromkeys(ITEMS)
    owners: dict[str, AgentId] = {}
    epochs = dict.fromkeys(ITEMS, 0)
    leases = dict.fromkeys(ITEMS, 0)
    checkpoints = dict.fromkeys(ITEMS, 0)
    events: list[Event] = []
    for seq in range(1, draw(st.integers(0, 60)) + 1):
        alive = [name for name in ITEMS if states[name] not in TERMINAL_ITEMS]
        if not alive:
            break
        name = draw(st.sampled_from(alive))
        owned = name in owners
        move = draw(
            st.sampled_from([move for move in ITEM_MOVES if states[name] in move.sources and is_possible(move, owned)])
        )
        kind = move.cause
        if kind is K.ACCEPTED:
            owners[name] = draw(st.sampled_from(AGENTS))
            epochs[name] += 1
        leases[name] += kind is K.STARTED
        checkpoints[name] += kind in (K.PROGRESS_SAVED, K.CHECKPOINTED, K.BLOCKED)
        states[name] = move.target
        owner = owners.get(name, OTHER)
        if kind in (K.RELEASED, K.LAPSED):
            del owners[name]
        by = {
            K.AUTHORIZED: BOSS,
            K.OFFERED: "policy",
            K.RESULT_ACCEPTED: "policy",
            K.LAPSED: "timer",
        }.get(kind, BOSS if move.who is Who.COMMAND else f"{owner}@{SESSION}")
        values: dict[str, object] = {
            "epoch": epochs[name],
            "agent": owner,
            "lease": f"l-{seq}",
            "expires_ms": NOW_MS + seq,
            "start_by_ms": 0 if move.given is Given.OWNERLESS else NOW_MS + 2 * seq,
            "session": SESSION,
            "number": leases[name] if kind is K.STARTED else checkpoints[name],
        }
        data = tuple(str(values.get(key, "0")) for key in EVENT_FIELDS[kind])
        events.append(Event(GROUP, 1, seq, kind, NOW_MS + seq, ItemId(name), by, data))
    return events


@given(logs())
def test_replies_give_the_same_queues_as_a_full_replay(events: list[Event]) -> None:
    full = queues_of(events)
    own = queues_of(event for event in events if is_of_concern(event))
    assert own.canonical() == full.canonical()


@given(st.integers(0, 2**32), st.integers(1, 200), st.data())
def test_s13_a_slice_of_a_snapshot_and_later_events_are_a_full_replay(
    seed: int, length: int, data: st.DataObject
) -> None:
    """C10, R66: what is this Agent's in the Group's projection is its own queues, wherever it takes them up."""
    events, projection = a_log(seed, length), Projection(GROUP)
    cut = data.draw(st.integers(0, length))
    for event in events[:cut]:
        projection.fold(event)
    full, resumed = queues_of(events), Queues(AGENT, SESSION)
    resumed.resume(Projection.unpack(GROUP, projection.pack()))
    for event in events[cut:]:
        resumed.fold(event)
        projection.fold(event)
    assert resumed.canonical() == full.canonical()
    sliced = Queues(AGENT, SESSION)
    sliced.resume(projection)
    assert sliced.canonical() == full.canonical()


@given(logs(), st.data())
def test_a_replay_can_be_cut_anywhere(events: list[Event], data: st.DataObject) -> None:
    """What was chosen by concern up to a point and read whole from there on is the same again."""
    cut = data.draw(st.integers(0, len(events)))
    mixed = queues_of([*(event for event in events[:cut] if is_of_concern(event)), *events[cut:]])
    assert mixed.canonical() == queues_of(events).canonical()
