"""The Inbox gives each Event once and in order, and its Cursor never lies (R65, R66, S9, S10, S11, S12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from builders import AGENT, GROUP, an_event
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from treadle.shared.errors import Corrupt
from treadle.shared.model import Event, EventKind, GroupId
from treadle.worker.core.inbox import ENDED_MAX, HELD_EVENTS_MAX, LINKS_MAX, Inbox, Received

OTHER_GROUP = GroupId("m-2")


def events(first: int, last: int, *, group: GroupId = GROUP, incarnation: int = 1) -> tuple[Event, ...]:
    return tuple(
        an_event(EventKind.ACCEPTED, seq, group=group, incarnation=incarnation) for seq in range(first, last + 1)
    )


def seqs(received: Received) -> list[int]:
    return [event.seq for event in received.fresh]


# --- the chain ---


def test_an_unbroken_chain_carries_the_cursor_over_what_does_not_concern_us() -> None:
    inbox = Inbox(AGENT)
    received = inbox.receive(GROUP, 0, 55, 57, events(55, 57))
    assert (seqs(received), received.read_after) == ([55, 56, 57], None)
    received = inbox.receive(GROUP, 57, 90, 90, events(90, 90))
    assert (seqs(received), inbox.cursor(GROUP)) == ([90], 90)


def test_a_doorbell_without_events_has_only_its_own_stretch_read() -> None:
    inbox = Inbox(AGENT)
    received = inbox.receive(GROUP, 0, 55, 57)
    assert (received.fresh, received.read_after) == ((), 54)
    assert inbox.behind() == {GROUP: 54}
    received = inbox.replay(GROUP, events(55, 60))
    assert (seqs(received), received.read_after) == ([55, 56, 57, 58, 59, 60], None)


def test_a_broken_chain_is_read_from_the_cursor() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 1, 5, events(1, 5))
    received = inbox.receive(GROUP, 8, 11, 12, events(11, 12))
    assert (received.fresh, received.read_after) == ((), 5)
    assert inbox.cursor(GROUP) == 5
    received = inbox.replay(GROUP, events(6, 12))
    assert (seqs(received), received.read_after) == (list(range(6, 13)), None)


def test_events_that_came_too_early_are_applied_once_the_chain_is_whole() -> None:
    """The reply of one's own call overtakes the doorbell before it: no read of the later Events is needed."""
    inbox = Inbox(AGENT)
    assert inbox.receive(GROUP, 3, 7, 9, events(7, 9)).read_after == 0
    received = inbox.receive(GROUP, 0, 3, 3, events(3, 3))
    assert (seqs(received), received.read_after) == ([3, 7, 8, 9], None)


def test_a_read_that_closes_the_gap_brings_the_kept_links_with_it() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 3, 7, 9, events(7, 9))
    inbox.receive(GROUP, 9, 20, 20)
    received = inbox.replay(GROUP, events(1, 3))
    assert (seqs(received), received.read_after) == ([1, 2, 3, 7, 8, 9], 19)


def test_a_repeated_link_gives_nothing() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 2, 4, events(2, 4))
    for brought in ((), events(2, 4)):
        assert inbox.receive(GROUP, 0, 2, 4, brought) == Received((), None)


def test_a_link_that_overlaps_gives_only_what_is_new() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 1, 4, events(1, 4))
    assert seqs(inbox.receive(GROUP, 2, 3, 6, events(3, 6))) == [5, 6]


def test_what_was_announced_is_not_forgotten_over_an_older_link() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 8, 9, 9)
    received = inbox.receive(GROUP, 0, 5, 5, events(5, 5))
    assert (seqs(received), received.read_after) == ([5], 5)


def test_a_link_that_came_too_early_twice_is_kept_once() -> None:
    inbox = Inbox(AGENT)
    for _ in range(3):
        inbox.receive(GROUP, 3, 7, 9, events(7, 9))
    assert inbox.held() == 3


def test_a_short_read_is_followed_by_another() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 5, 6, 6)
    received = inbox.replay(GROUP, events(1, 4))
    assert (seqs(received), received.read_after) == ([1, 2, 3, 4], 4)


def test_groups_have_cursors_of_their_own() -> None:
    """R30: a gap in one Group holds up no other."""
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 4, 5, 5, events(5, 5))
    inbox.receive(OTHER_GROUP, 0, 1, 2, events(1, 2, group=OTHER_GROUP))
    assert inbox.cursors() == {GROUP: 0, OTHER_GROUP: 2}


def test_moved_cursors_are_told_once() -> None:
    inbox = Inbox(AGENT)
    assert inbox.moved() == {}
    inbox.receive(GROUP, 0, 1, 2, events(1, 2))
    inbox.receive(OTHER_GROUP, 4, 5, 5)
    assert inbox.moved() == {GROUP: 2}
    assert inbox.moved() == {}


def test_a_late_doorbell_of_an_ended_group_is_known() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 1, 9, events(1, 9))
    inbox.forget(GROUP)
    assert inbox.receive(GROUP, 5, 8, 9) == Received((), None)
    assert inbox.replay(GROUP, events(1, 9)) == Received((), None)
    assert (inbox.cursors(), inbox.moved()) == ({}, {})
    assert seqs(inbox.receive(GROUP, 9, 10, 10, events(10, 10))) == [10]
    assert inbox.cursors() == {GROUP: 10}


def test_only_so_many_ended_groups_are_known() -> None:
    inbox = Inbox(AGENT)
    names = [GroupId(f"g{number}") for number in range(ENDED_MAX + 1)]
    for name in names:
        inbox.receive(name, 0, 1, 1, events(1, 1, group=name))
        inbox.forget(name)
    assert [inbox.cursor(name) for name in (names[0], names[1], names[-1])] == [0, 1, 1]


# --- what is refused ---


def test_a_hole_in_a_read_is_corrupt_and_names_what_was_expected() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 1, 3, events(1, 3))
    with pytest.raises(Corrupt, match=r"m-1.*expected sequence 4, found 5"):
        inbox.replay(GROUP, events(5, 6))
    with pytest.raises(Corrupt, match=r"m-1.*expected sequence 5, found 6"):
        inbox.replay(GROUP, (*events(4, 4), *events(6, 6)))
    assert inbox.cursor(GROUP) == 3


def test_a_log_that_lost_its_tail_is_corrupt() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 4, 5, 5)
    with pytest.raises(Corrupt, match="sequence 5 was announced"):
        inbox.replay(GROUP, ())


@pytest.mark.parametrize("first", [2, 3])
def test_a_known_sequence_under_another_id_is_corrupt(first: int) -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 0, 1, 3, events(1, 3))
    rewritten = events(first, 5, incarnation=2)
    with pytest.raises(Corrupt, match=rf"sequence {first} is m-1\.2\.{first}"):
        inbox.replay(GROUP, rewritten)
    with pytest.raises(Corrupt, match="incarnation 1"):
        inbox.receive(GROUP, 0, first, 5, rewritten)
    assert seqs(inbox.replay(GROUP, events(4, 5, incarnation=2))) == [4, 5]
    with pytest.raises(Corrupt, match="incarnation 2"):
        inbox.replay(GROUP, events(6, 6, incarnation=1))


def test_kept_events_of_a_log_that_was_rewritten_meanwhile_are_not_applied() -> None:
    inbox = Inbox(AGENT)
    inbox.receive(GROUP, 2, 5, 6, events(5, 6, incarnation=1))
    received = inbox.replay(GROUP, events(1, 3, incarnation=2))
    assert (seqs(received), received.read_after) == ([1, 2, 3], 3), "the stream is to be read instead"
    assert seqs(inbox.replay(GROUP, events(4, 6, incarnation=2))) == [4, 5, 6]


@pytest.mark.parametrize(
    ("previous", "first", "last", "brought"),
    [
        (5, 5, 6, ()),
        (0, 4, 3, ()),
        (-1, 1, 1, ()),
        (0, 1, 3, events(1, 2)),
        (0, 1, 3, events(2, 3)),
        (0, 1, 3, (*events(1, 1), *events(3, 3))),
        (0, 1, 1, events(1, 1, group=OTHER_GROUP)),
        (0, 1, 2, (*events(1, 1, incarnation=2), *events(2, 2, incarnation=1))),
    ],
)
def test_a_link_that_contradicts_itself_is_corrupt(
    previous: int, first: int, last: int, brought: Sequence[Event]
) -> None:
    inbox = Inbox(AGENT)
    with pytest.raises(Corrupt, match="m-1"):
        inbox.receive(GROUP, previous, first, last, brought)
    assert (inbox.cursors(), inbox.behind()) == ({}, {})


def test_what_is_kept_is_bounded_and_the_rest_is_read() -> None:
    """S27: neither many links nor large ones grow the memory; nothing is lost by it."""
    inbox = Inbox(AGENT)
    end = 10 + 9 * LINKS_MAX
    for first in range(10, end, 3):
        inbox.receive(GROUP, first - 1, first, first + 1, events(first, first + 1))
    assert inbox.held() == 2 * LINKS_MAX
    inbox.receive(OTHER_GROUP, 4, 5, 4 + HELD_EVENTS_MAX, events(5, 4 + HELD_EVENTS_MAX, group=OTHER_GROUP))
    assert inbox.held() <= HELD_EVENTS_MAX
    assert seqs(inbox.replay(GROUP, events(1, end))) == list(range(1, end + 1))
    assert inbox.held() == 0


# --- against a small model of sets ---


@dataclass
class Log:
    """One Group: what its log holds, which of it concerns us, and what is under way."""

    entries: list[Event] = field(default_factory=list)
    ours: set[int] = field(default_factory=set)
    previous: int = 0
    incarnation: int = 1
    under_way: list[tuple[int, int, int, bool]] = field(default_factory=list)
    delivered: list[tuple[int, int, int, bool]] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    announced: int = 0
    cursor: int = 0
    told: int = 0
    covered: set[int] = field(default_factory=set)
    """Never applied, because a Snapshot stands for it."""


class InboxMachine(RuleBasedStateMachine):
    """Replies and doorbells come late, twice, out of order or never; reads are short and overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox(AGENT)
        self.logs = {GROUP: Log(), OTHER_GROUP: Log()}

    def took(self, group: GroupId, received: Received) -> None:
        log = self.logs[group]
        for event in received.fresh:
            assert event == log.entries[event.seq - 1]
            assert not log.applied or event.seq > log.applied[-1], "twice, or out of order"
            log.applied.append(event.seq)
        cursor = self.inbox.cursor(group)
        assert received.read_after == (cursor if log.announced > cursor else None)
        assert received.read_after == self.inbox.behind().get(group)

    def give(self, group: GroupId, link: tuple[int, int, int, bool]) -> None:
        previous, first, last, brings = link
        log = self.logs[group]
        log.delivered.append(link)
        log.announced = max(log.announced, last)
        brought = log.entries[first - 1 : last] if brings else []
        self.took(group, self.inbox.receive(group, previous, first, last, brought))

    groups = st.sampled_from([GROUP, OTHER_GROUP])

    @rule(group=groups, count=st.integers(1, 4), concerns=st.booleans(), brings=st.booleans())
    def append(self, group: GroupId, count: int, concerns: bool, brings: bool) -> None:
        log = self.logs[group]
        first = len(log.entries) + 1
        last = first + count - 1
        log.entries += events(first, last, group=group, incarnation=log.incarnation)
        if concerns:
            log.under_way.append((log.previous, first, last, brings))
            log.ours.update(range(first, last + 1))
            log.previous = last

    @rule(group=groups)
    def fail_over(self, group: GroupId) -> None:
        self.logs[group].incarnation += 1

    @rule(group=groups, data=st.data())
    def deliver(self, group: GroupId, data: st.DataObject) -> None:
        under_way = self.logs[group].under_way
        if under_way:
            self.give(group, under_way.pop(data.draw(st.integers(0, len(under_way) - 1))))

    @rule(group=groups, data=st.data())
    def deliver_again(self, group: GroupId, data: st.DataObject) -> None:
        delivered = self.logs[group].delivered
        if delivered:
            self.give(group, data.draw(st.sampled_from(delivered)))

    @rule(group=groups, data=st.data())
    def lose(self, group: GroupId, data: st.DataObject) -> None:
        under_way = self.logs[group].under_way
        if under_way:
            under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))

    @rule(group=groups, overlap=st.integers(0, 3), count=st.integers(1, 6))
    def read(self, group: GroupId, overlap: int, count: int) -> None:
        after = max(0, self.inbox.cursor(group) - overlap)
        self.took(group, self.inbox.replay(group, self.logs[group].entries[after : after + overlap + count]))

    @rule(group=groups, count=st.integers(1, 3))
    def read_over_a_hole(self, group: GroupId, count: int) -> None:
        after = self.inbox.cursor(group) + 1
        found = self.logs[group].entries[after : after + count]
        if found:
            self.refused(group, found)

    @rule(group=groups, data=st.data())
    def read_a_rewritten_log(self, group: GroupId, data: st.DataObject) -> None:
        log = self.logs[group]
        if log.applied:
            seq = data.draw(st.sampled_from(log.applied))
            event = log.entries[seq - 1]
            self.refused(group, [replace(event, incarnation=event.incarnation + 100)])

    def refused(self, group: GroupId, found: list[Event]) -> None:
        before = (self.inbox.cursors(), self.inbox.behind(), self.inbox.held())
        with pytest.raises(Corrupt):
            self.inbox.replay(group, found)
        assert (self.inbox.cursors(), self.inbox.behind(), self.inbox.held()) == before

    @rule(group=groups, data=st.data())
    def take_a_snapshot(self, group: GroupId, data: st.DataObject) -> None:
        """S9, S10: what it covers is not applied any more; one that is older than the Cursor changes nothing."""
        log = self.logs[group]
        if log.entries:
            through = data.draw(st.integers(1, len(log.entries)))
            log.covered.update(range(self.inbox.cursor(group) + 1, through + 1))
            self.took(group, self.inbox.resume(group, through))

    @rule()
    def write_back(self) -> None:
        moved = self.inbox.moved()
        for group, log in self.logs.items():
            cursor = self.inbox.cursor(group)
            assert moved.get(group) == (cursor if cursor > log.told else None)
            log.told = cursor

    @precondition(lambda self: not self.inbox.behind())
    @rule(group=groups)
    def forget(self, group: GroupId) -> None:
        self.write_back()
        self.inbox.forget(group)

    @invariant()
    def the_cursor_never_lies(self) -> None:
        for group, log in self.logs.items():
            cursor = self.inbox.cursor(group)
            assert log.cursor <= cursor <= len(log.entries), "back, or ahead of the log"
            applied = set(log.applied)
            assert {seq for seq in log.ours if seq <= cursor} <= applied | log.covered, "over a hole"
            assert not applied & log.covered, "what a Snapshot stands for is not applied as well"
            assert not log.applied or log.applied[-1] <= cursor
            log.cursor = cursor

    def teardown(self) -> None:
        for group, log in self.logs.items():
            if log.entries:
                self.took(group, self.inbox.replay(group, log.entries[self.inbox.cursor(group) :]))
            assert log.ours <= set(log.applied) | log.covered, "skipped"
            assert group not in self.inbox.behind()


InboxMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestInbox = InboxMachine.TestCase
