"""What a Worker asks for next: `decide`, over the tree of what is ready (C2, C4, R31, R32).

`Ready` is the owner of the orders: a fold of what the store told. `decide` reads it and leaves it as it was, so the same
entries, free slots and time give the same actions on any machine. Ties end in hashes of (Agent, partition) and (Agent,
Group), so that many Workers with the same counters do not all choose the same Group.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from treadle.shared.model import Capability, GroupId, Limits
from treadle.shared.resources import Resources, common, covers, left

from .fairness import estimate_ms
from .nodes import Inner, Leaf, Node
from .reservations import NOTHING, Besides, Reservation, Wide, gathers, slots_for, wide_of
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
FILLS_MAX = 64
"""Groups looked at for what may use slots that are kept for a wide item."""
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
    width: int = 1
    """How many slots each is expected to fill."""


class Plan(NamedTuple):
    """What a decision comes to: what to take, and the wide item whose turn it is and which slots are to be kept for."""

    takes: tuple[Take, ...]
    wide: Wide | None = None
    spare: Resources = ()
    """What the takes may fill besides slots: not what is kept."""
    provided: int | None = None
    """The partition of the first take that needs some of it."""


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
    slots: int = 0
    """How many this Worker has in all: what is wider is passed over, for what is not slots may be kept (rule 8)."""
    kept: Reservation | None = None
    """What the free slots are kept for; it still heads its Group (`still_first`)."""
    cut_off: Collection[Capability] = ()
    """The capabilities whose runs end with their time-out here: only they may use kept slots."""
    besides: Besides = NOTHING
    """What it has, and what of that is free."""


def decide(view: View, now_ms: int) -> tuple[Take, ...]:
    """What `plan` takes."""
    return plan(view, now_ms).takes


def plan(view: View, now_ms: int) -> Plan:
    """The list to take from, in this Worker's order: all free slots filled from what is known, then fall-backs.

    From the root the least key at each level (rule 4); each planned pick is charged at once, along its path. No slot
    stays free while something takeable is known and in no quota. Fall-backs are what would come next, of the partitions
    that are asked anyway, for Groups another Worker got first.

    A first item that does not fit what is left ends the list: slots are to be kept for it. Where they are, it is taken
    before all others once it fits; until then only what is over before. Where only resources are missing, others go on in
    the slots beyond, with what it does not need.
    """
    now_ms = view.ready.tick(now_ms)
    view.ready.begin(now_ms)
    made = _Plan(view, now_ms)
    slots = view.free_slots
    if view.kept is not None:
        slots -= made.keep(view.kept)
    while slots > 0 and (width := made.draw(slots)):
        slots -= width
    may_fall_back = made.wide is None and not made.is_kept
    takes = (*made.takes(), *(made.fallbacks() if may_fall_back else ()))
    return Plan(takes, made.wide, left(view.besides.spare, [made.withheld]), made.provided)


@dataclass(slots=True)
class _Drawn:
    """What is planned of one Group, and up to which charge its class, its account and itself may go in its partition."""

    count: int = 0
    width: int = 1
    is_one: bool = False
    """Whether it is its first item and no other: how wide the one behind it is nobody knows yet."""
    behind: int = 0
    """1 where it is what stands behind the first item, which lacks resources."""
    charges: list[int | None] = field(default_factory=lambda: [None, None, None])


class _Plan:
    """One decision on its way."""

    def __init__(self, view: View, now_ms: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._walk = Walk(view.ready.root, now_ms)
        self._drawn: dict[Leaf, _Drawn] = {}
        self._widths: dict[Node, int] = {}
        """The planned width of what has a cap."""
        self.wide: Wide | None = None
        """The item whose turn it is and which does not fit."""
        self.is_kept = False
        """Whether all free slots are kept for an item that does not fit yet."""
        self.withheld: Resources = ()
        """What is kept besides slots."""
        self.provided: int | None = None
        """Whose turn is to have what the takes fill of that."""
        self._unused, self._spare = view.besides.unused, view.besides.spare

    def keep(self, kept: Reservation) -> int:
        """Takes the item that slots are kept for, where it fits; how many of the free slots it fills or waits for."""
        wide = kept.wide
        leaf = self._view.ready.leaf_of(wide.group)
        assert leaf is not None
        slots = slots_for(wide, self._spare)
        if slots > self._view.free_slots:
            self.is_kept = True
            self._withhold(wide.resources)
            self._fill(kept)
            return self._view.free_slots
        if slots < wide.width:
            self._withhold(wide.resources)
            return slots
        self._use(leaf)
        self._drawn[leaf] = _Drawn(1, wide.width, is_one=True)  # in no budget: its turn was when slots were first kept
        return wide.width

    def draw(self, slots: int) -> int:
        """Plans the next items, all of one Group; their width, 0 where nothing is left or the rest is to be kept."""
        while (path := self._walk.next()) is not None:
            leaf = _leaf(path)
            drawn = self._drawn.get(leaf)
            if drawn is None and not self._is_judged(leaf):
                drawn = self._drawn[leaf] = _Drawn()
            if drawn is not None and not drawn.is_one:
                return self._add(drawn, path, leaf, min(slots, leaf.takeable - drawn.behind - drawn.count))
            if drawn is None and self._has_room(path, leaf.width):
                width = self._judge(path, leaf, slots)
                if width:
                    return width if width <= slots else 0
            else:
                self._pass_over(path, leaf)
        return 0

    def _judge(self, path: Path, leaf: Leaf, slots: int) -> int:
        """Plans the first item of a Group where it fits, or keeps what it needs; how many slots, more than are left for all."""
        if self._fits(leaf, slots):
            return self._add_one(path, leaf)
        held = self._hold(leaf, slots)
        if held > slots:
            return held
        behind = 0 if covers(self._spare, leaf.resources) else min(slots - held, leaf.takeable - 1)
        if behind > 0:
            drawn = self._drawn[leaf] = _Drawn(behind=1)
            return held + self._add(drawn, path, leaf, behind)
        self._pass_over(path, leaf)
        return held

    def _hold(self, leaf: Leaf, slots: int) -> int:
        """Where an item is to be waited for, keeps what it needs; how many slots of those that are left, or more."""
        # What only an unanswered turn may fill is asked for again after it.
        lacks = not covers(self._unused, leaf.resources)
        is_short = leaf.width > slots or (lacks and gathers(leaf.resources))
        if self._view.kept is not None or self.wide is not None or not is_short:
            return 0
        self.wide = wide_of(leaf)
        self._withhold(leaf.resources)
        return leaf.width - lacks

    def _is_judged(self, leaf: Leaf) -> bool:
        """Whether its first item may be taken here and needs more than one slot: it is drawn alone, or waited for."""
        if leaf.width == 1 and not leaf.resources:
            return False
        return leaf.width <= self._view.slots and covers(self._view.besides.all, leaf.resources)

    def _fits(self, leaf: Leaf, slots: int) -> bool:
        """Whether its first item may start now; what is free besides slots goes to one partition's turn."""
        if not leaf.resources:
            return leaf.width <= slots
        is_provided = self.provided in (None, leaf.partition)
        return is_provided and leaf.width <= slots and covers(self._spare, leaf.resources)

    def _withhold(self, needs: Resources) -> None:
        """Keeps what is free of what an item needs from all others."""
        self.withheld = common(self._spare, needs)
        self._spare = left(self._spare, [self.withheld])

    def _use(self, leaf: Leaf) -> None:
        """Plans what the first item of a Group fills besides slots."""
        if leaf.resources:
            self._spare, self._unused = left(self._spare, [leaf.resources]), left(self._unused, [leaf.resources])
            self.provided = leaf.partition if self.provided is None else self.provided

    def _fill(self, kept: Reservation) -> None:
        """Lets into kept slots what is certain to be over before they are needed."""
        slots, looks = self._view.free_slots, FILLS_MAX if self._now_ms < kept.until_ms else 0
        while slots > 0 and looks > 0 and (path := self._walk.next()) is not None:
            looks -= 1
            leaf = _leaf(path)
            entry = leaf.in_order()[0]
            lets_in = entry.capability in self._view.cut_off and kept.lets_in(entry, self._now_ms)
            if lets_in and self._fits(leaf, slots) and self._has_room(path, leaf.width):
                slots -= self._add_one(path, leaf)
            else:
                self._pass_over(path, leaf)

    def _add_one(self, path: Path, leaf: Leaf) -> int:
        """Plans the first item of a Group; its width."""
        drawn = self._drawn[leaf] = _Drawn(width=leaf.width, is_one=True)
        self._use(leaf)
        self._add(drawn, path, leaf, 1)
        return leaf.width

    def _has_room(self, path: Path, width: int) -> bool:
        """Whether no quota of slots is in the way: where one is, kept slots would stand idle for it."""
        return all(seat.node.slots_left - self._widths.get(seat.node, 0) >= width for seat in path)

    def _pass_over(self, path: Path, leaf: Leaf) -> None:
        self._walk.charge(path, 0, partition=leaf.partition, spent=(path[-1],))

    def takes(self) -> list[Take]:
        """What is planned, Groups in the order in which they are first drawn from."""
        return [take for leaf, drawn in self._drawn.items() for take in self._asked(leaf, drawn)]

    def fallbacks(self) -> list[Take]:
        """What would be drawn next, of other Groups of the partitions that are asked."""
        parts: dict[int, int] = {}
        for leaf, drawn in self._drawn.items():
            parts[leaf.partition] = parts.get(leaf.partition, 0) + drawn.count * drawn.width
        takes: list[Take] = []
        listed, looks = 0, self._view.fallbacks * PASSED_OVER if parts else 0
        while listed < self._view.fallbacks and looks > 0 and (path := self._walk.next()) is not None:
            at_most = min(listed + FALLBACKS_EACH, self._view.fallbacks)
            leaf, spare_ms = _leaf(path), 0
            for leaf in self._walk.rest(path):
                looks -= 1
                # A wide one would be passed over there, and what is behind it would go first.
                if leaf.partition in parts and leaf not in self._drawn and not self._is_judged(leaf):
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
        spent = [path[-1]] if drawn.is_one or drawn.count == leaf.takeable - drawn.behind else []
        for seat in capped:
            self._widths[seat.node] = width = self._widths.get(seat.node, 0) + count * drawn.width
            if width >= seat.node.slots_left:
                spent.append(seat)
        self._walk.charge(path, count * drawn.width * each_ms, partition=leaf.partition, spent=spent)
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
                asked = (leaf.partition, leaf.group, entry.capability, most, offset, limits, fallback, sets)
                takes.append(Take(*asked, drawn.width))
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
