"""What a Worker asks for next: `decide`, over the tree of what is ready (C2, C4, R31, R32).

`Ready` is the owner of the orders: a fold of what the store told. `decide` reads it and leaves it as it was, so the same
entries, free slots and time give the same actions on any machine. Ties end in hashes of (Agent, partition) and (Agent,
Group), so that many Workers with the same counters do not all choose the same Group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from treadle.shared.model import Capability, GroupId, Limits

from .fairness import estimate_ms
from .nodes import Inner, Leaf, Node
from .tree import Ready
from .walk import Head, Path, Seat, Walk

DRAW = 4
"""Items drawn from a Group before the next one, at most: a Group touched costs more than an item."""
DRAW_MS = 200
"""What such a draw may be worth in estimated run time; longer items are drawn one at a time, in strict order."""
FALLBACKS_MAX = 16
"""Groups listed beyond the need, because other Workers race for the same ones."""
FALLBACKS_MIN = 2
"""Groups listed beyond the need while others get there first only now and then."""
FALLBACKS_EACH = 4
"""Groups of one account among them before the next account."""
PASSED_OVER = 4
"""Groups looked at for each fall-back, at most: those of partitions that are not asked are none."""
LATE_MS = 50
"""By how much later a take is judged, at least in what it may be charged: what runs goes on being charged on the way."""


class Take(NamedTuple):
    """Ask for up to `most` items of one Group, in this place of the list of its partition's call.

    The call's total is the sum of `most` over the entries that are no fall-backs: the store goes down the list until
    the total is filled. `offset` is what the Group's offset is lifted to by its first accept; 0 for nothing. `limits` is
    what the store checks again before each item, None where there is no rival and no quota.
    """

    partition: int
    group: GroupId
    capability: Capability
    most: int
    offset: int
    limits: Limits | None = None
    fallback: bool = False
    sets: int | None = None
    """From which value the offset is set to that at any accept, because it tells a lag (rule 7)."""


Action = Take
"""What `decide` may give; a closed union that grows."""


_NO_ROOM = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class View:
    """What a decision is made from: what is ready, and how many items this Worker can take now."""

    ready: Ready
    free_slots: int
    draw: int = DRAW
    fallbacks: int = FALLBACKS_MAX
    charges: bool = True
    """Whether the takes are limited by what others may be charged meanwhile; not, where that left slots free twice."""


def decide(view: View, now_ms: int) -> tuple[Action, ...]:
    """The list to take from, in this Worker's order: all free slots filled from what is known, then fall-backs.

    From the root the least key at each level (rule 4); each planned pick is charged at once, along its path. No slot
    stays free while something takeable is known and in no quota. Fall-backs are what would come next, of the partitions
    that are asked anyway, for Groups another Worker got first.
    """
    now_ms = view.ready.tick(now_ms)
    view.ready.begin(now_ms)
    plan = _Plan(view, now_ms)
    left = view.free_slots
    while left > 0 and (count := plan.draw(left)):
        left -= count
    return (*plan.takes(), *plan.fallbacks())


@dataclass(slots=True)
class _Drawn:
    """What is planned of one Group, and up to which charge its class, its account and itself may go in its partition."""

    count: int = 0
    charges: list[int | None] = field(default_factory=lambda: [None, None, None])


class _Plan:
    """One decision on its way."""

    def __init__(self, view: View, now_ms: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._walk = Walk(view.ready.root, now_ms)
        self._drawn: dict[Leaf, _Drawn] = {}
        self._widths: dict[Node, int] = {}
        """Planned items of what has a cap."""

    def draw(self, left: int) -> int:
        """Plans the next items, all of one Group; how many, 0 where nothing is left."""
        path = self._walk.next()
        if path is None:
            return 0
        leaf = _leaf(path)
        drawn = self._drawn.get(leaf)
        if drawn is None:
            drawn = self._drawn[leaf] = _Drawn()
        return self._add(drawn, path, leaf, min(left, leaf.takeable - drawn.count))

    def takes(self) -> list[Take]:
        """What is planned, Groups in the order in which they are first drawn from."""
        return [take for leaf, drawn in self._drawn.items() for take in self._asked(leaf, drawn)]

    def fallbacks(self) -> list[Take]:
        """What would be drawn next, of other Groups of the partitions that are asked."""
        parts: dict[int, int] = {}
        for leaf, drawn in self._drawn.items():
            parts[leaf.partition] = parts.get(leaf.partition, 0) + drawn.count
        takes: list[Take] = []
        listed, looks = 0, self._view.fallbacks * PASSED_OVER if parts else 0
        while listed < self._view.fallbacks and looks > 0 and (path := self._walk.next()) is not None:
            at_most = min(listed + FALLBACKS_EACH, self._view.fallbacks)
            leaf, spare_ms = _leaf(path), 0
            for leaf in self._walk.rest(path):
                looks -= 1
                if leaf.partition in parts and leaf not in self._drawn:
                    each_ms, draw = self._each(leaf)
                    count = min(leaf.takeable, parts[leaf.partition], draw)
                    drawn = _Drawn(count)
                    path[-1] = self._walk.seat(leaf, path[-2])
                    # One draw beyond what was seen: or all that were stopped elsewhere would fall through to it together.
                    self._limit(drawn, path, _NO_ROOM, count * each_ms)
                    takes += self._asked(leaf, drawn, fallback=True)
                    spare_ms += count * each_ms
                    listed += 1
                if listed == at_most or not looks:
                    break
            self._walk.charge(path, spare_ms, partition=leaf.partition, spent=(path[-1],))
        return takes

    def _add(self, drawn: _Drawn, path: Path, leaf: Leaf, most: int) -> int:
        """Draws from a Group what goes before its rivals; how many."""
        each_ms, at_most = self._each(leaf)
        count, rooms, capped = most, list[float | None](), list[Seat]()
        for seat in path:
            if seat.node.cap is not None:
                capped.append(seat)
                count = min(count, seat.node.slots_left - self._widths.get(seat.node, 0))
            rival = seat.above.rival
            if rival is None:
                rooms.append(None)
                continue
            room_ms = seat.room_ms(rival[0][0])
            rooms.append(room_ms)
            if count > 1 and room_ms < count * each_ms:
                turn = seat.turn(rival[0], room_ms, each_ms, count)
                # Out of turn, up to one draw; but one that was served does not keep a newcomer waiting.
                if turn < at_most and (_is_served(rival) or not (seat.planned_ms or seat.is_served)):
                    turn = at_most
                count = max(1, min(turn, count))
        self._limit(drawn, path, rooms, (count - 1) * each_ms)
        drawn.count += count
        spent = [path[-1]] if drawn.count == leaf.takeable else []
        for seat in capped:
            self._widths[seat.node] = width = self._widths.get(seat.node, 0) + count
            if width >= seat.node.slots_left:
                spent.append(seat)
        self._walk.charge(path, count * each_ms, partition=leaf.partition, spent=spent)
        return count

    def _each(self, leaf: Leaf) -> tuple[int, int]:
        """What an item of a Group is charged, and how many may be drawn at once: few where they are long or unknown."""
        known_ms = self._view.ready.estimate_ms(leaf)
        if known_ms is None:
            return estimate_ms(0), 1
        return known_ms, max(1, min(self._view.draw, DRAW_MS // known_ms))

    def _limit(self, drawn: _Drawn, path: Path, rooms: Sequence[float | None], least_ms: int) -> None:
        """Lets a Group, its account and its class be charged until it is their rivals' turn, and `least_ms` in any case."""
        if not self._view.charges:
            return
        late_ms, partition = self._now_ms + LATE_MS, _leaf(path).partition
        charges = drawn.charges
        for level, (seat, room_ms) in enumerate(zip(path, rooms, strict=True)):
            if room_ms is not None:
                most_ms = room_ms if room_ms > least_ms else least_ms
                limit = math.ceil(seat.charge_limit_ms(most_ms, partition, late_ms))
                before = charges[level]
                if before is None or limit > before:
                    charges[level] = limit

    def _asked(self, leaf: Leaf, drawn: _Drawn, *, fallback: bool = False) -> list[Take]:
        offset, sets = leaf.offset_to_tell(self._now_ms)
        limits = limits_of(leaf, drawn.charges)
        takes: list[Take] = []
        count = drawn.count
        for entry in leaf.in_order():
            most = min(count, entry.takeable)
            if most:
                takes.append(Take(leaf.partition, leaf.group, entry.capability, most, offset, limits, fallback, sets))
                count -= most
        return takes


def _leaf(path: Path) -> Leaf:
    leaf = path[-1].node
    assert isinstance(leaf, Leaf)
    return leaf


def _is_served(head: Head) -> bool:
    """Whether a node was served since its entry, by this decision or before it."""
    _, node, seat = head
    return seat is not None or node.standing.usage.served


def limits_of(leaf: Leaf, charges: Sequence[int | None] = (None, None, None)) -> Limits | None:
    """What a take of a Group brings along: what it may be charged, from the class down, and what is left of its quotas."""
    account = leaf.above
    assert isinstance(account, Inner)
    of_class, of_account, of_group = charges
    if leaf.cap is None and leaf.rate is None and account.cap is None and account.rate is None:
        return None if of_class is of_account is of_group is None else Limits(of_group, of_account, of_class)
    return Limits(of_group, of_account, of_class, leaf.cap, account.slots_here(leaf.partition), leaf.rate, account.rate)
