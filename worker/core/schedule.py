"""What a Worker asks for next: `decide`, over the tree of what is ready (C2, C4, R31, R32).

`Ready` is the owner of the orders: a fold of what the store told. `decide` reads it and leaves it as it was, so the same
entries, free slots and time give the same actions on any machine. Ties end in hashes of (Agent, partition) and (Agent,
Group), so that many Workers with the same counters do not all choose the same Group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from treadle.shared.model import Capability, GroupId, Limits

from .fairness import charge_ms, estimate_ms
from .nodes import Inner, Leaf, Node
from .tree import Ready
from .walk import Front, Path, Walk

DRAW = 4
"""Items drawn from a Group before the next one, at most: a Group touched costs more than an item."""
DRAW_MS = 200
"""What such a draw may be worth in estimated run time; longer items are drawn one at a time, in strict order."""
FALLBACKS_MAX = 16
"""Groups listed beyond the need, because other Workers race for the same ones."""
FALLBACKS_MIN = 2
"""Groups listed beyond the need while others get there first only now and then."""
PASSED_OVER = 4
"""Groups looked at for each fall-back, at most: those of partitions that are not asked are none."""
LATE_MS = 50
"""By how much later a take is judged, at least in what it may be charged: what runs goes on being charged on the way."""


@dataclass(frozen=True, slots=True)
class Take:
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


Action = Take
"""What `decide` may give; a closed union that grows."""


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
    try:
        left = view.free_slots
        while left > 0 and (count := plan.draw(left)):
            left -= count
        return (*plan.takes(), *plan.fallbacks())
    finally:
        plan.close()


@dataclass(slots=True)
class _Drawn:
    """What is planned of one Group, and up to which charge its class, its account and itself may go in its partition."""

    count: int = 0
    charges: tuple[float | None, ...] = (None, None, None)


class _Plan:
    """One decision on its way."""

    def __init__(self, view: View, now_ms: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._walk = Walk(view.ready.root, now_ms)
        self._drawn: dict[Leaf, _Drawn] = {}
        self._widths: dict[Node, int] = {}
        """Planned items of what has a cap."""
        self._here_ms: dict[tuple[Node, int], float] = {}
        """What is planned of each node in each partition."""

    def draw(self, left: int) -> int:
        """Plans the next items, all of one Group; how many, 0 where nothing is left."""
        found = self._walk.next()
        if found is None:
            return 0
        leaf, path = found
        drawn = self._drawn.get(leaf)
        if drawn is None:
            drawn = self._drawn[leaf] = _Drawn()
        return self._add(drawn, leaf, path, min(left, leaf.takeable - drawn.count))

    def takes(self) -> list[Take]:
        """What is planned, Groups in the order in which they are first drawn from."""
        return [take for leaf, drawn in self._drawn.items() for take in self._asked(leaf, drawn)]

    def fallbacks(self) -> list[Take]:
        """What would be drawn next, of other Groups of the partitions that are asked."""
        parts: dict[int, int] = {}
        for leaf, drawn in self._drawn.items():
            parts[leaf.partition] = parts.get(leaf.partition, 0) + drawn.count
        takes: list[Take] = []
        listed = 0
        for _ in range(self._view.fallbacks * PASSED_OVER if parts else 0):
            if listed == self._view.fallbacks or (found := self._walk.next()) is None:
                break
            leaf, path = found
            if leaf in self._drawn or leaf.partition not in parts:
                self._walk.charge(path, 0, spent=(leaf,))
            else:
                drawn = _Drawn()
                self._add(drawn, leaf, path, min(leaf.takeable, parts[leaf.partition]), is_spent=True)
                takes += self._asked(leaf, drawn, fallback=True)
                listed += 1
        return takes

    def close(self) -> None:
        """Leaves the orders as they were."""
        self._walk.close()

    def _add(self, drawn: _Drawn, leaf: Leaf, path: Path, most: int, *, is_spent: bool = False) -> int:
        """Draws from a Group what goes before its rivals; how many."""
        known_ms = self._view.ready.estimate_ms(leaf)
        each_ms = estimate_ms(known_ms or 0)
        # Few where they are long or unknown: a draw is worth what it saves only where it is short.
        at_most = 1 if known_ms is None else max(1, min(self._view.draw, DRAW_MS // each_ms))
        count = min(most, at_most) if is_spent else most
        for node, _ in path:
            if node.cap is not None:
                count = min(count, node.slots_left - self._widths.get(node, 0))
        for node, front in path:
            count = self._turn(node, front, each_ms, at_most, count)
        if self._view.charges:
            up_to = (self._up_to(node, front, leaf.partition, (count - 1) * each_ms) for node, front in path)
            drawn.charges = tuple(map(_larger, drawn.charges, up_to))
        drawn.count += count
        spent: list[Node] = [leaf] if is_spent or drawn.count == leaf.takeable else []
        for node, _ in path:
            self._here_ms[node, leaf.partition] = self._here_ms.get((node, leaf.partition), 0) + count * each_ms
            if node.cap is not None:
                self._widths[node] = self._widths.get(node, 0) + count
                if self._widths[node] >= node.slots_left:
                    spent.append(node)
        self._walk.charge(path, count * each_ms, spent=spent)
        return count

    def _turn(self, node: Node, front: Front, each_ms: int, at_most: int, most: int) -> int:
        """How many items, up to `most`, come before it is another node's turn at this level."""
        rival = front.rival()
        if rival is None:
            return most
        place, is_served = rival
        planned_ms = self._walk.planned_ms(node)
        slack_ms = node.standing.slack_ms(place[0], self._now_ms, planned_ms=planned_ms)
        count = max(0, min(most, math.floor(slack_ms / each_ms)))
        while count < most and self._walk.place(node, planned_ms + count * each_ms) < place:
            count += 1
        # Out of turn, up to one draw; but one that was served does not keep a newcomer waiting.
        if is_served or not (node.standing.usage.served or planned_ms):
            count = max(count, min(at_most, most))
        return max(1, count)

    def _up_to(self, node: Node, front: Front, partition: int, least_ms: float) -> float | None:
        """The charge in this partition up to which a node goes before its rival (rule 5); None where it has none.

        What this decision plans in other partitions counts against it, what it plans here besides is in it.
        """
        rival = front.rival()
        if rival is None:
            return None
        planned_ms = self._walk.planned_ms(node)
        slack_ms = node.standing.slack_ms(rival[0][0], self._now_ms, planned_ms=planned_ms)
        here_ms = self._here_ms.get((node, partition), 0)
        charged_ms = charge_ms(node.part(partition), self._now_ms + LATE_MS, planned_ms=here_ms)
        return charged_ms + max(slack_ms, least_ms)

    def _asked(self, leaf: Leaf, drawn: _Drawn, *, fallback: bool = False) -> list[Take]:
        offset = leaf.standing.offset_to_apply(self._now_ms)
        limits = limits_of(leaf, drawn.charges)
        takes: list[Take] = []
        count = drawn.count
        for entry in leaf.in_order():
            most = min(count, entry.takeable)
            if most:
                takes.append(Take(leaf.partition, leaf.group, entry.capability, most, offset, limits, fallback))
                count -= most
        return takes


def _larger(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def limits_of(leaf: Leaf, charges: tuple[float | None, ...] = (None, None, None)) -> Limits | None:
    """What a take of a Group brings along: what it may be charged, from the class down, and what is left of its quotas."""
    account = leaf.above
    assert isinstance(account, Inner)
    slots_account = account.slots_here(leaf.partition)
    if all(one is None for one in (*charges, leaf.cap, slots_account, leaf.rate, account.rate)):
        return None
    of_class, of_account, of_group = (None if charge is None else math.ceil(charge) for charge in charges)
    return Limits(of_group, of_account, of_class, leaf.cap, slots_account, leaf.rate, account.rate)
