"""What a Worker has processed of each Group's log: dedup by Event ID, contiguous Cursor (protocol R30, R65, R66).

Events reach a Worker as links of a chain: "Events first..last of this Group concern you, the one before that did was
`previous`". While the chain is unbroken, what lies between two links is known not to concern this Worker and need not
be read; where it is broken, the Group's stream is read from the Cursor on (design.md 3.7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.shared.errors import Corrupt
from treadle.shared.model import AgentId, Event, GroupId

LINKS_MAX = 32
"""Links kept per Group while the chain before them is broken."""
HELD_EVENTS_MAX = 1_024
"""Events kept with such links, over all Groups; a link beyond that is kept without its Events."""
SPANS_MAX = 8
"""Incarnations remembered per Group, to tell a log that was rewritten."""
ENDED_MAX = 4_096
"""Groups that ended whose Cursor is still known, so that a late doorbell is not taken for a new Group."""


@dataclass(frozen=True, slots=True)
class Received:
    """The Events to apply now, in sequence; `read_after`: read the stream from there on (None: no need)."""

    fresh: tuple[Event, ...]
    read_after: int | None


@dataclass(frozen=True, slots=True)
class _Link:
    previous: int
    first: int
    last: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Sequences `low`..`high` were applied in this incarnation of the store."""

    low: int
    high: int
    incarnation: int


@dataclass(slots=True)
class _Track:
    cursor: int = 0
    promised: int = 0
    """The highest sequence any link named: above the Cursor, something is still to be read."""
    spans: list[_Span] = field(default_factory=list)
    links: list[_Link] = field(default_factory=list)

    @property
    def read_after(self) -> int | None:
        return self.cursor if self.promised > self.cursor else None


class Inbox:
    """Gives each Event of each Group once and in sequence; a Cursor never moves over a hole and never back.

    A refusal (Corrupt) leaves everything as it was. Only what is applied counts: a fresh Event is the caller's to fold.
    """

    def __init__(self, agent: AgentId) -> None:
        self.agent = agent
        self._tracks: dict[GroupId, _Track] = {}
        self._ended: dict[GroupId, _Track] = {}
        self._moved: set[GroupId] = set()
        self._behind: set[GroupId] = set()
        self._held_events = 0

    def receive(self, group: GroupId, previous: int, first: int, last: int, events: Sequence[Event] = ()) -> Received:
        """Take one link: with all of its Events (a reply of one's own call) or with none (a doorbell)."""
        if not 0 <= previous < first <= last:
            raise self._corrupt(group, f"a link of previous {previous}, first {first}, last {last} is out of order")
        if events and (events[0].seq != first or events[-1].seq != last):
            raise self._corrupt(group, f"a link of {first}..{last} came with Events {events[0].seq}..{events[-1].seq}")
        track = self._known(group)
        self._check(group, track, events)
        if last <= track.cursor:
            return Received((), track.read_after)
        self._follow(group, track)
        track.promised = max(track.promised, last)
        self._hold(track, _Link(previous, first, last, tuple(events)))
        return self._settle(group, track, [])

    def replay(self, group: GroupId, events: Sequence[Event], *, start: int = 1) -> Received:
        """Take what a read of the stream gave: contiguous Events, at most overlapping what is known.

        `start`: where this Agent's Membership begins (R8); what is before is none of its business, and passed over. A read
        that gives nothing although a link promised more is a log that lost its tail: Corrupt, not "no news".
        """
        track = self._known(group)
        self._check(group, track, events)
        known = max(track.cursor, start - 1)
        if events and events[0].seq > known + 1:
            if not events[0].begins_anew:
                raise self._corrupt(group, f"expected sequence {known + 1}, found {events[0].seq}")
            # What it did not read of the log before is in none any more: the store's own keys fence what came of it.
            known = events[0].seq - 1
        if not events and track.promised > known:
            raise self._corrupt(
                group, f"the log ends at or before {known}, but sequence {track.promised} was announced"
            )
        if known == track.cursor and (not events or events[-1].seq <= known):
            return Received((), track.read_after)
        self._follow(group, track)
        self._move(group, track, known)
        return self._settle(group, track, self._apply(group, track, events))

    def resume(self, group: GroupId, through: int) -> Received:
        """Take a Snapshot in place of the Events up to its sequence: the Cursor moves there, never back (R66)."""
        track = self._known(group)
        if through <= track.cursor:
            return Received((), track.read_after)
        self._follow(group, track)
        self._move(group, track, through)
        return self._settle(group, track, [])

    def cursor(self, group: GroupId) -> int:
        """The highest contiguous sequence processed of this Group; 0 for one not met yet."""
        return self._known(group).cursor

    def cursors(self) -> dict[GroupId, int]:
        """The Cursor of each Group that has not ended."""
        return {group: track.cursor for group, track in self._tracks.items()}

    def moved(self) -> dict[GroupId, int]:
        """The Cursors that moved since this was last asked, to be written back with the next call."""
        moved = {group: self._tracks[group].cursor for group in sorted(self._moved)}
        self._moved.clear()
        return moved

    def behind(self) -> dict[GroupId, int]:
        """The Groups whose stream must be read, with the sequence to read after."""
        return {group: self._tracks[group].cursor for group in self._behind}

    def held(self) -> int:
        """How many Events are kept until the chain before them is whole; at most HELD_EVENTS_MAX."""
        return self._held_events

    def forget(self, group: GroupId) -> None:
        """Stop tracking a Group that ended; its Cursor is kept a while, so that a late link is still known."""
        track = self._tracks.pop(group, None)
        self._moved.discard(group)
        self._behind.discard(group)
        if track is None:
            return
        self._keep_links(track, [])
        track.promised = track.cursor
        self._ended[group] = track
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    # --- the steps ---

    def _known(self, group: GroupId) -> _Track:
        return self._tracks.get(group) or self._ended.get(group) or _Track()

    def _follow(self, group: GroupId, track: _Track) -> None:
        """Track a Group from now on: a new one, or one that was taken for ended and has more."""
        self._ended.pop(group, None)
        self._tracks[group] = track

    def _check(self, group: GroupId, track: _Track, events: Sequence[Event]) -> None:
        """Refuse Events of another Group, with a hole, or whose ID is not the one known for that sequence."""
        before: Event | None = None
        for event in events:
            if event.group != group:
                raise self._corrupt(group, f"an Event of Group {event.group} came with it")
            if before is not None and event.seq != before.seq + 1:
                raise self._corrupt(group, f"expected sequence {before.seq + 1}, found {event.seq}")
            if before is not None and event.incarnation < before.incarnation:
                raise self._corrupt(group, f"sequence {event.seq} is of an older incarnation than {before.seq}")
            for span in track.spans:
                if not _agrees(span, event):
                    raise self._corrupt(
                        group,
                        f"sequence {event.seq} is {event.event_id}, but {span.low}..{span.high} were applied in "
                        f"incarnation {span.incarnation}",
                    )
            before = event

    def _hold(self, track: _Track, link: _Link) -> None:
        """Keep a link until the chain reaches it; the furthest goes first, since a read covers it anyway."""
        if link.previous > track.cursor and self._held_events + len(link.events) > HELD_EVENTS_MAX:
            link = _Link(link.previous, link.first, link.last, ())
        if link not in track.links:
            # Of two links that begin alike, the one that carries Events comes first.
            links = sorted([*track.links, link], key=lambda held: (held.first, held.previous, -len(held.events)))
            self._keep_links(track, links[:LINKS_MAX])

    def _settle(self, group: GroupId, track: _Track, fresh: list[Event]) -> Received:
        """Follow the chain as far as it is unbroken, then say what is left to read."""
        kept: list[_Link] = []
        for link in track.links:  # sorted by `first`, so by `previous`: one pass follows the chain to its break
            if link.previous <= track.cursor:
                if not all(_agrees(span, event) for span in track.spans for event in link.events):
                    continue  # what came meanwhile contradicts it: the stream decides, `promised` has it read
                self._move(group, track, link.first - 1)
                fresh += self._apply(group, track, link.events)
            kept.append(link)
        self._keep_links(track, [link for link in kept if link.last > track.cursor])
        if track.promised > track.cursor:
            self._behind.add(group)
        else:
            self._behind.discard(group)
        return Received(tuple(fresh), track.read_after)

    def _keep_links(self, track: _Track, links: list[_Link]) -> None:
        self._held_events += sum(len(link.events) for link in links) - sum(len(link.events) for link in track.links)
        track.links = links

    def _apply(self, group: GroupId, track: _Track, events: Sequence[Event]) -> list[Event]:
        """The Events past the Cursor, which moves to the last of them."""
        fresh = [event for event in events if event.seq > track.cursor]
        for event in fresh:
            assert event.seq == track.cursor + 1, "a Cursor never moves over a hole"
            spans = track.spans
            if spans and spans[-1].incarnation == event.incarnation:
                spans[-1] = _Span(spans[-1].low, event.seq, event.incarnation)
            else:
                spans.append(_Span(event.seq, event.seq, event.incarnation))
                del spans[:-SPANS_MAX]
            self._move(group, track, event.seq)
        return fresh

    def _move(self, group: GroupId, track: _Track, seq: int) -> None:
        if seq > track.cursor:
            track.cursor = seq
            self._moved.add(group)

    def _corrupt(self, group: GroupId, what: str) -> Corrupt:
        return Corrupt(
            f"Group {group}, read by Agent {self.agent}: {what}; the log must be read again or the Group halted"
        )


def _agrees(span: _Span, event: Event) -> bool:
    """Whether an Event fits what was applied: one ID a sequence, incarnations that only rise."""
    if event.seq < span.low:
        return event.incarnation <= span.incarnation
    if event.seq > span.high:
        return event.incarnation >= span.incarnation
    return event.incarnation == span.incarnation
