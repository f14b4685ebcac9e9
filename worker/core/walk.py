"""The ready tree in the order of picks, for one decision: what was drawn from stands again in its new place (rule 4)."""

from __future__ import annotations

import heapq
from collections.abc import Collection

from .fairness import Order
from .nodes import Inner, Leaf, Node, Place

Path = list[tuple[Node, "Front"]]
"""Class, account and Group, each with the front it was taken out of."""


class Front:
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


class Walk:
    """From the root the child whose turn it is, at each level; closing it leaves the orders as they were."""

    def __init__(self, root: Inner, now_ms: int) -> None:
        self._root = root
        self._now_ms = now_ms
        self._fronts: dict[Inner, Front] = {}
        self._planned_ms: dict[Node, float] = {}

    def next(self) -> tuple[Leaf, Path] | None:
        """Takes the nodes whose turn it is out of their fronts; None where nothing is left."""
        path: Path = []
        node: Node = self._root
        while isinstance(node, Inner):
            front = self._fronts.get(node)
            if front is None:
                front = self._fronts[node] = Front(node, self._now_ms)
            head = front.pop()
            if head is None:
                return None
            node = head[1]
            path.append((node, front))
        assert isinstance(node, Leaf)
        return node, path

    def planned_ms(self, node: Node) -> float:
        """What this decision has charged a node so far."""
        return self._planned_ms.get(node, 0)

    def charge(self, path: Path, planned_ms: float, *, spent: Collection[Node]) -> None:
        """Charges what is planned along its path, and puts back what still has something, but for what is `spent`."""
        for node, front in reversed(path):
            all_ms = self._planned_ms[node] = self.planned_ms(node) + planned_ms
            if node not in spent and (not isinstance(node, Inner) or self._fronts[node]):
                front.push(self.place(node, all_ms), node)

    def place(self, node: Node, planned_ms: float) -> Place:
        """Where a node stands with so much planned of it."""
        return node.place_at(node.standing.key(self._now_ms, planned_ms=planned_ms))

    def close(self) -> None:
        for front in self._fronts.values():
            front.close()
