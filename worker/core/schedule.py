"""What a Worker asks for next: `decide`, over the tree of what is ready (C2, C4, R31, R32).

`Ready` is the owner of the orders: a fold of what the store told. `decide` reads it and leaves it as it was, so the same
entries, free slots and time give the same actions on any machine. Ties end in hashes of (Agent, partition) and (Agent,
Group), so that many Workers with the same counters do not all choose the same Group.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from treadle.shared.model import Capability, GroupId

from .fairness import Order, estimate_ms
from .nodes import Inner, Leaf, Node, Place
from .tree import Ready

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


@dataclass(frozen=True, slots=True)
class Take:
    """Ask for up to `most` items of one Group, in this place of the list of its partition's call.

    The call's total is the sum of `most` over the entries that are no fall-backs: the store goes down the list until
    the total is filled. `offset` is what the Group's offset is lifted to by its first accept; 0 for nothing.
    """

    partition: int
    group: GroupId
    capability: Capability
    most: int
    offset: int
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


def decide(view: View, now_ms: int) -> tuple[Action, ...]:
    """The list to take from, in this Worker's order: all free slots filled from what is known, then fall-backs.

    From the root the least key at each level (rule 4); each planned pick is charged at once, along its path. No slot
    stays free while something takeable is known. Fall-backs are what would come next, of the partitions that are asked
    anyway, for Groups another Worker got first.
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


class _Front:
    """The ready children of one node during a decision: those that were drawn from stand in their new places."""

    def __init__(self, node: Inner, now_ms: int) -> None:
        self._now_ms = now_ms
        self._heads: list[tuple[Place, Node, Order[Node, Place] | None]] = []
        self._out: list[tuple[Order[Node, Place], Place, Node]] = []
        for order in (node.below.served, node.below.waiting):
            self._bring(order)

    def pop(self) -> tuple[Place, Node] | None:
        """Takes out the child whose turn it is; its successor in its order takes its place."""
        if not self._heads:
            return None
        place, node, order = heapq.heappop(self._heads)
        if order is not None:
            order.pop(self._now_ms)
            self._out.append((order, place, node))
            self._bring(order)
        return place, node

    def push(self, place: Place, node: Node) -> None:
        """Puts a child back in its new place, for this decision only."""
        heapq.heappush(self._heads, (place, node, None))

    def rival(self) -> tuple[Place, bool] | None:
        """The place that comes next, and whether its node was served since its entry, by this decision or before it."""
        if not self._heads:
            return None
        place, node, order = self._heads[0]
        return place, order is None or node.standing.usage.served

    def __bool__(self) -> bool:
        return bool(self._heads)

    def close(self) -> None:
        for order, place, node in self._out:
            order.restore(node, place)

    def _bring(self, order: Order[Node, Place]) -> None:
        first = order.first(self._now_ms)
        if first is not None:
            heapq.heappush(self._heads, (*first, order))


class _Plan:
    """One decision on its way: what is planned of each node, and the order of what is left."""

    def __init__(self, view: View, now_ms: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._fronts: dict[Inner, _Front] = {}
        self._planned_ms: dict[Node, float] = {}
        self._counts: dict[Leaf, int] = {}

    def draw(self, left: int) -> int:
        """Plans the next items, all of one Group; how many, 0 where nothing is left."""
        path = self._next()
        if path is None:
            return 0
        leaf = path[-1][0]
        assert isinstance(leaf, Leaf)
        had = self._counts.get(leaf, 0)
        each_ms = estimate_ms(self._view.ready.estimate_ms(leaf) or 0)
        count = min(left, leaf.takeable - had)
        at_most = self._draw_at_most(leaf)
        for node, front in path:
            count = self._turn(node, front, each_ms, at_most, count)
        self._counts[leaf] = had + count
        self._charge(path, count * each_ms, is_left=leaf.takeable > had + count)
        return count

    def takes(self) -> list[Take]:
        """What is planned, Groups in the order in which they are first drawn from."""
        return [take for leaf, count in self._counts.items() for take in self._takes(leaf, count)]

    def fallbacks(self) -> list[Take]:
        """What would be drawn next, of other Groups of the partitions that are asked."""
        parts: dict[int, int] = {}
        for drawn, count in self._counts.items():
            parts[drawn.partition] = parts.get(drawn.partition, 0) + count
        takes: list[Take] = []
        listed = 0
        for _ in range(self._view.fallbacks * PASSED_OVER if parts else 0):
            if listed == self._view.fallbacks or (path := self._next()) is None:
                break
            leaf = path[-1][0]
            assert isinstance(leaf, Leaf)
            count = min(leaf.takeable, parts.get(leaf.partition, 0), self._draw_at_most(leaf))
            if leaf in self._counts or not count:
                count = 0
            else:
                takes += self._takes(leaf, count, fallback=True)
                listed += 1
            self._charge(path, count * estimate_ms(self._view.ready.estimate_ms(leaf) or 0), is_left=False)
        return takes

    def close(self) -> None:
        """Leaves the orders as they were."""
        for front in self._fronts.values():
            front.close()

    def _next(self) -> list[tuple[Node, _Front]] | None:
        """Takes the nodes whose turn it is out of their fronts, class, account and Group; None where nothing is left."""
        path: list[tuple[Node, _Front]] = []
        node: Node = self._view.ready.root
        while isinstance(node, Inner):
            front = self._fronts.get(node)
            if front is None:
                front = self._fronts[node] = _Front(node, self._now_ms)
            head = front.pop()
            if head is None:
                return None
            node = head[1]
            path.append((node, front))
        return path

    def _charge(self, path: list[tuple[Node, _Front]], planned_ms: float, *, is_left: bool) -> None:
        """Charges what is planned along its path, and puts back what still has something."""
        for node, front in reversed(path):
            all_ms = self._planned_ms.get(node, 0) + planned_ms
            self._planned_ms[node] = all_ms
            if is_left:
                front.push(self._place(node, all_ms), node)
            is_left = is_left or bool(front)

    def _turn(self, node: Node, front: _Front, each_ms: int, at_most: int, most: int) -> int:
        """How many items, up to `most`, come before it is another node's turn at this level."""
        rival = front.rival()
        if rival is None:
            return most
        place, is_served = rival
        planned_ms = self._planned_ms.get(node, 0)
        count = max(0, min(most, math.floor((node.standing.room_ms(place[0]) - planned_ms) / each_ms)))
        while count < most and self._place(node, planned_ms + count * each_ms) < place:
            count += 1
        # Out of turn, up to one draw; but one that was served does not keep a newcomer waiting.
        if is_served or not (node.standing.usage.served or planned_ms):
            count = max(count, min(at_most, most))
        return max(1, count)

    def _place(self, node: Node, planned_ms: float) -> Place:
        return node.place_at(node.standing.key(self._now_ms, planned_ms=planned_ms))

    def _draw_at_most(self, leaf: Leaf) -> int:
        """How many items may be drawn from a Group before its turn is over: few where they are long or unknown."""
        each_ms = self._view.ready.estimate_ms(leaf)
        return 1 if each_ms is None else max(1, min(self._view.draw, DRAW_MS // each_ms))

    def _takes(self, leaf: Leaf, count: int, *, fallback: bool = False) -> list[Take]:
        offset = leaf.standing.offset_to_apply(self._now_ms)
        takes: list[Take] = []
        for entry in leaf.in_order():
            most = min(count, entry.takeable)
            if most:
                takes.append(Take(leaf.partition, leaf.group, entry.capability, most, offset, fallback))
                count -= most
        return takes
