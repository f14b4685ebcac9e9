"""The ready tree in the order of picks, for one decision: what was drawn from stands again in its new place (rule 4).

Of what a Worker computes for itself this is the most frequent; hence the slots, and no place where nobody compares it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection

from .fairness import Order, running_ms
from .nodes import Inner, Node, Place

_ALONE: Place = (0.0, 0, 0, "")
"""The place of an only child, which nobody asks for."""


class Seat:
    """A node as this decision sees it: how it stands now, and what is planned of it. The arithmetic is `Standing`'s."""

    __slots__ = (
        "_base",
        "_estimate_ms",
        "_run_ms",
        "_tag",
        "_used_ms",
        "front",
        "here_ms",
        "node",
        "planned_ms",
        "weight",
    )

    def __init__(self, node: Node, now_ms: int) -> None:
        standing = node.standing
        usage = standing.usage
        self.node = node
        self.weight = standing.weight
        self._base = standing.shift + usage.offset
        self._used_ms = usage.used_ms
        self._estimate_ms = usage.estimate_ms
        self._run_ms = running_ms(usage, now_ms) if usage.running else 0
        self._tag = None if usage.served else standing.tag
        self.front = Front(node, now_ms) if isinstance(node, Inner) else None
        """The ready children, of all but a Group."""
        self.planned_ms = 0
        self.here_ms: dict[int, int] = {}
        """What is planned of it in each partition."""

    def place(self, planned_ms: int) -> Place:
        """Where it stands with so much planned of it."""
        charge = self._estimate_ms + planned_ms
        if self._run_ms > charge:
            charge = self._run_ms
        key = self._base + (self._used_ms + charge) / self.weight
        if self._tag is not None:
            key = max(key, self._tag + planned_ms / self.weight)
        return self.node.place_at(key)

    def room_ms(self, key: float) -> float:
        """How much more may be planned of it until its key is no longer below `key`; 0 where what runs has got it there."""
        most = (key - self._base) * self.weight - self._used_ms
        if self._run_ms >= most:
            return 0.0
        room = most - self._estimate_ms - self.planned_ms
        if self._tag is not None:
            room = min(room, (key - self._tag) * self.weight - self.planned_ms)
        return room

    def turn(self, place: Place, room_ms: float, each_ms: int, most: int) -> int:
        """How many items, up to `most`, are its before it stands behind this place, to which it has so much room."""
        exact = room_ms / each_ms
        if exact >= most:
            return most
        count = math.ceil(exact)
        # On a tie of keys the rest of the places decides.
        while count < most and count - exact < 1e-6 and self.place(self.planned_ms + count * each_ms) < place:
            count += 1
        return count

    def charge_limit_ms(self, room_ms: float, partition: int, late_ms: int) -> float:
        """What it may be charged in this partition where it has so much room; `late_ms`: when that is judged.

        What this decision plans in other partitions counts against it; what it plans here besides is in it.
        """
        usage = self.node.part(partition)
        charge = usage.estimate_ms + self.here_ms.get(partition, 0)
        if usage.running:
            charge = max(charge, running_ms(usage, late_ms))
        planned_ms = self._estimate_ms + self.planned_ms
        if self._run_ms > planned_ms:
            room_ms = max(0, room_ms - self._run_ms + planned_ms)
        return usage.used_ms + charge + room_ms


Head = tuple[Place, Node, Seat | None, Order[Node, Place] | None]
"""A ready child in its place; its seat once it was drawn from, else the order that it is still in."""


class Front:
    """The ready children of one node during a decision: those that were drawn from stand in their new places."""

    __slots__ = ("_now_ms", "_out", "_seats", "heads")

    def __init__(self, node: Inner, now_ms: int) -> None:
        self._now_ms = now_ms
        self.heads: list[Head] = []
        """The first of each order, and what was drawn from; a heap."""
        self._out: list[tuple[Order[Node, Place], Place, Node]] = []
        self._seats: list[Seat] = []
        only = node.below.only()
        if only is not None:
            self.heads.append((_ALONE, only, None, None))
            return
        for order in (node.below.served, node.below.waiting):
            if order:
                self._bring(order)

    def pop(self) -> Seat:
        """Takes out the child whose turn it is; its successor in its order takes its place."""
        place, node, seat, order = heapq.heappop(self.heads)
        if order is not None:
            order.pop()
            self._out.append((order, place, node))
            self._bring(order)
        if seat is None:
            seat = Seat(node, self._now_ms)
            self._seats.append(seat)
        return seat

    def push(self, seat: Seat) -> None:
        """Puts a child back in its new place, for this decision only."""
        place = seat.place(seat.planned_ms) if self.heads else _ALONE
        heapq.heappush(self.heads, (place, seat.node, seat, None))

    def close(self) -> None:
        """Leaves the orders as they were, here and below."""
        for order, place, node in self._out:
            order.restore(node, place)
        for seat in self._seats:
            if seat.front is not None:
                seat.front.close()

    def _bring(self, order: Order[Node, Place]) -> None:
        first = order.first(self._now_ms)
        if first is not None:
            heapq.heappush(self.heads, (*first, None, order))


Path = list[tuple[Seat, Front]]
"""Class, account and Group, each with the front it was taken out of."""


class Walk:
    """From the root the child whose turn it is, at each level."""

    def __init__(self, root: Inner, now_ms: int) -> None:
        self._root = Front(root, now_ms)

    def next(self) -> Path | None:
        """Takes the nodes whose turn it is out of their fronts; None where nothing is left."""
        path: Path = []
        front: Front | None = self._root
        while front is not None:
            if not front.heads:
                return None
            seat = front.pop()
            path.append((seat, front))
            front = seat.front
        return path

    def charge(self, path: Path, planned_ms: int, *, partition: int, spent: Collection[Seat]) -> None:
        """Charges what is planned along its path, and puts back what still has something, but for what is `spent`."""
        for seat, front in reversed(path):
            if planned_ms:
                seat.planned_ms += planned_ms
                seat.here_ms[partition] = seat.here_ms.get(partition, 0) + planned_ms
            if seat not in spent and (seat.front is None or seat.front.heads):
                front.push(seat)

    def close(self) -> None:
        self._root.close()
