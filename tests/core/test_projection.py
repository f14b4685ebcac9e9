"""One fold tells a Group's state, however its log was cut; what it cannot trust it says, and nothing is moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, GROUP, OTHER, an_event
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import a_log, entry_of
from treadle.shared import projection
from treadle.shared.errors import Corrupt
from treadle.shared.lifecycle import ITEM_MOVES
from treadle.shared.model import Event, GroupId, ItemState
from treadle.shared.model import EventKind as K
from treadle.shared.projection import Projection

MORE = [
    an_event(K.AUTHORIZED, 2, capability="index", width=2),
    an_event(K.OFFERED, 3, capability="index", cause="created"),
]
START = [
    an_event(K.MISSION_CREATED, 1, item=None, digest="d", account="acme", weight="1"),
    *MORE,
]
RUNS = [*START, an_event(K.ACCEPTED, 4, epoch=1, start_by_ms=9), an_event(K.STARTED, 5, lease="l-1", number=1)]


def folded(events: list[Event]) -> Projection:
    found = Projection(GROUP)
    for event in events:
        found.fold(event)
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300), st.data())
def test_s13_a_snapshot_and_later_events_are_the_whole_log_wherever_it_is_cut(
    seed: int, length: int, data: st.DataObject
) -> None:
    events = a_log(seed, length)
    whole, cut = folded(events), Projection(GROUP)
    at = data.draw(st.integers(0, length))
    for event in events[:at]:
        cut.fold(event)
    cut = Projection.unpack(GROUP, cut.pack())
    cut.fold_entries(map(entry_of, events[at:]))
    assert cut.canonical() == whole.canonical()
    assert cut.digest() == whole.digest()
    assert whole.through == length


def test_an_item_is_told_by_its_events() -> None:
    item = folded(RUNS).items["a"]
    assert (item.state, item.capability, item.width, item.owner, item.session) == ("active", "index", 2, AGENT, 7)
    assert (item.ownership_epoch, item.lease_id, item.number, item.start_by_ms) == (1, "l-1", 1, 0)
    saved = an_event(K.CHECKPOINTED, 6, number=1, digest="c", start_by_ms=77)
    item = folded([*RUNS, saved]).items["a"]
    assert (item.state, item.checkpoint, item.checkpoint_digest, item.start_by_ms) == ("queued", 1, "c", 77)
    assert item.lease_id == ""
    assert item.owner == AGENT, "a yielded item stays its owner's"


def test_a_changed_priority_moves_no_item_and_none_that_has_ended_has_one() -> None:
    def changed(seq: int) -> Event:
        return an_event(K.REPRIORITISED, seq, by="ana", urgency="critical", deadline_ms=0, impact=5)

    assert folded([*RUNS, changed(6)]).items == folded(RUNS).items
    assert folded([*START, changed(4)]).items == folded(START).items
    done = [*RUNS, an_event(K.SUBMITTED, 6, digest="r"), an_event(K.RESULT_ACCEPTED, 7, by="policy")]
    with pytest.raises(Corrupt, match="no transition: it is verified"):
        folded([*done, changed(8)])


def test_an_item_that_ended_shrinks_to_a_few_words() -> None:
    done = folded([*RUNS, an_event(K.SUBMITTED, 6, digest="r"), an_event(K.RESULT_ACCEPTED, 7, by="policy")])
    assert done.items == {}
    assert done.finished == {"a": projection.Finished("verified", 1, 1, "r")}
    assert (done.total, done.verified, done.failed, done.cancelled) == (1, 1, 0, 0)


def test_of_items_that_ended_long_ago_the_counts_alone_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "FINISHED_MAX", 5)
    events = a_log(3, 2000)
    found = folded(events)
    assert len(found.finished) == 5
    assert found.verified + found.cancelled > 50
    ended = [event.item for event in events if event.kind in (K.RESULT_ACCEPTED, K.CANCELLED)]
    assert list(found.finished) == ended[-5:], "the newest stay"


def test_a_failed_item_counts_until_it_is_offered_again() -> None:
    failed = [*RUNS, an_event(K.FAILED, 6, digest="e", retry_ms=0)]
    assert (folded(failed).failed, folded(failed).items["a"].state) == (1, "failed")
    again = folded([*failed, an_event(K.OFFERED, 7, capability="index", cause="retried")])
    assert (again.failed, again.items["a"].state) == (0, "offered")
    waits = [*RUNS, an_event(K.FAILED, 6, digest="e", retry_ms=99)]
    assert (folded(waits).failed, folded(waits).items["a"].failures, folded(waits).items["a"].retry_ms) == (0, 1, 99)
    over = folded([*waits, an_event(K.RETRIES_ENDED, 7, reason="no-more")])
    assert (over.failed, over.items["a"].retry_ms) == (1, 0)


def test_an_item_whose_time_was_over_may_come_again_under_its_id() -> None:
    gone = folded([*RUNS, an_event(K.FAILED, 6, retry_ms=0), an_event(K.EXPIRED, 7, by="timer", reason="kept")])
    assert gone.items == {}
    gone.fold(replace(MORE[0], seq=8))
    assert gone.items["a"].state == "open"
    done = folded([*START, an_event(K.CANCELLED, 4, reason="r")])
    done.fold(replace(MORE[0], seq=5))
    assert (done.items["a"].state, dict(done.finished), done.total) == ("open", {}, 2)


@pytest.mark.parametrize("state", [None, *ItemState])
@pytest.mark.parametrize("kind", sorted({move.cause for move in ITEM_MOVES}))
def test_a_step_that_the_table_does_not_have_is_corrupt_and_changes_nothing(kind: K, state: ItemState | None) -> None:
    found = folded(RUNS)
    if state is None:
        del found.items["a"]
    else:
        found.items["a"].state = state.value
    before = found.canonical()
    if any(move.cause is kind and state in move.sources for move in ITEM_MOVES):
        return
    with pytest.raises(Corrupt, match=r"m-1\.1\.6 .*no transition: it is"):
        found.fold(an_event(kind, 6))
    assert found.canonical() == before


WRONG = {
    "a hole": (an_event(K.PROGRESS_SAVED, 7), "sequence 6 is missing, 7 follows"),
    "an Event twice": (an_event(K.STARTED, 5), "sequence 6 is missing, 5 follows"),
    "another incarnation": (an_event(K.PROGRESS_SAVED, 6, incarnation=2), "is of incarnation 2, not 1"),
    "another ownership": (an_event(K.PROGRESS_SAVED, 6, epoch=2), "cites Ownership Epoch 2, current is 1"),
    "a number that is none": (an_event(K.PROGRESS_SAVED, 6, number="one"), "invalid literal"),
    "too few words": (replace(an_event(K.CHECKPOINTED, 6), data=("1", "1")), "out of range"),
    "a second creation": (an_event(K.MISSION_CREATED, 6, item=None), "the Mission is active"),
    "an unknown item": (an_event(K.OFFERED, 6, item="b"), "item b: no transition: it is nothing"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_an_event_that_cannot_be_is_said_and_changes_nothing(name: str) -> None:
    event, said = WRONG[name]
    found = folded(RUNS)
    before = found.canonical()
    with pytest.raises(Corrupt, match=said):
        found.fold(event)
    assert found.canonical() == before
    assert found.through == 5


def test_a_start_by_somebody_else_or_out_of_turn_is_corrupt() -> None:
    owned = RUNS[:4]
    for wrong in (
        an_event(K.STARTED, 5, by=f"{OTHER}@7"),
        an_event(K.STARTED, 5, number=2),
        an_event(K.STARTED, 5, by="policy"),
    ):
        with pytest.raises(Corrupt, match=r"starts run|no session"):
            folded([*owned, wrong])
    with pytest.raises(Corrupt, match="Ownership Epoch 0 was given after 0"):
        folded([*START, an_event(K.ACCEPTED, 4, epoch=0)])


def test_an_agents_slice_is_what_it_owns() -> None:
    found = folded(a_log(5, 400))
    for agent in (AGENT, OTHER):
        mine = found.held(agent)
        assert list(mine) == sorted(mine)
        assert mine == {name: item for name, item in found.items.items() if item.owner == agent}
    assert found.held(AGENT)
    assert found.held(OTHER)


def test_every_altered_byte_of_a_snapshot_is_seen() -> None:
    raw = folded(RUNS).pack()
    for at in range(len(raw)):
        with pytest.raises(Corrupt):
            Projection.unpack(GROUP, raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(Corrupt):
            Projection.unpack(GROUP, raw[:at])
    assert Projection.unpack(GROUP, raw).canonical() == folded(RUNS).canonical()


def test_a_snapshot_of_a_newer_schema_or_another_group_is_refused() -> None:
    raw = folded(RUNS).pack()
    with pytest.raises(Corrupt, match="has schema 2, this program reads up to 1; use a newer program"):
        Projection.unpack(GROUP, raw.replace(b"snapshot 1 ", b"snapshot 2 ", 1))
    with pytest.raises(Corrupt, match=r"it is of group m-1"):
        Projection.unpack(GroupId("m-2"), raw)
    with pytest.raises(Corrupt, match=r"begins with b'{}', not with 'treadle-snapshot"):
        Projection.unpack(GROUP, b"{}")
