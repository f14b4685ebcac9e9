"""The ready tree in the order of picks, for one decision: what was drawn from stands again in its new place (rule 4).

Of what a Worker computes for itself this is the most frequent; hence the slots, no place where nobody compares it, and nothing
moved where a node drawn from is still the first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from heapq import heappop, heappush

from .fairness import Order, running_ms
from .nodes import Inner, Leaf, Node, Place


class Seat:
    """A node as this decision sees it: how it stands now, and what is planned of it. The arithmetic is `Standing`'s."""

    __slots__ = (
        "_base",
        "_estimate_ms",
        "_run_ms",
        "_tag",
        "_used_ms",
        "above",
        "back",
        "drawn",
        "here_ms",
        "is_served",
        "node",
        "order",
        "out",
        "planned_ms",
        "rival",
        "weight",
    )

    def __init__(self, node: Node, above: Seat | None, now_ms: int) -> None:
        standing = node.standing
        usage = standing.usage
        self.node = node
        self.above: Seat = above or self
        """Of the root itself."""
        self.weight = standing.weight
        self._base = standing.shift + usage.offset
        self._used_ms = usage.used_ms
        self._estimate_ms = usage.estimate_ms
        self._run_ms = running_ms(usage, now_ms) if usage.running else 0
        self.is_served = usage.served
        self._tag = standing.tag
        self.planned_ms = 0
        self.order: Order[Node, Place] | None = None
        """The ready children; None for a Group, which has nothing of what follows."""
        if isinstance(node, Inner):
            self.order = node.below.picks
            self.here_ms: dict[int, int] = {}
            """What is planned of it in each partition."""
            self.drawn = 0
            """How many children were drawn from, the first ones; all but `out` are in `back`, unless they are spent."""
            self.back: list[tuple[Place, Seat]] = []
            """Those in their new places; a heap."""
            self.out: Seat | None = None
            """The child that was drawn from last."""
            self.rival: Head | None = None
            """Whose turn it is after `out`; None where it is the only one."""

    def place(self, planned_ms: int) -> Place:
        """Where it stands with so much planned of it."""
        charge = self._estimate_ms + planned_ms
        if self._run_ms > charge:
            charge = self._run_ms
        key = self._base + (self._used_ms + charge) / self.weight
        if not self.is_served:
            key = max(key, self._tag + planned_ms / self.weight)
        return self.node.place_at(key)

    def room_ms(self, key: float) -> float:
        """How much more may be planned of it until its key is no longer below `key`; 0 where what runs has got it there."""
        most = (key - self._base) * self.weight - self._used_ms
        if self._run_ms >= most:
            return 0.0
        room = most - self._estimate_ms - self.planned_ms
        if not self.is_served:
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
        charge = usage.estimate_ms + (self.planned_ms if self.order is None else self.here_ms.get(partition, 0))
        if usage.running:
            charge = max(charge, running_ms(usage, late_ms))
        planned_ms = self._estimate_ms + self.planned_ms
        if self._run_ms > planned_ms:
            room_ms = max(0, room_ms - self._run_ms + planned_ms)
        return usage.used_ms + charge + room_ms


Head = tuple[Place, Node, Seat | None]
"""A ready child in its place; its seat once it was drawn from."""

Path = list[Seat]
"""Class, account and Group: from the root each seat's `out`."""


class Walk:
    """From the root the child whose turn it is, at each level."""

    def __init__(self, root: Inner, now_ms: int) -> None:
        self._now_ms = now_ms
        self._root = self.seat(root, None)

    def next(self) -> Path | None:
        """The nodes whose turn it is, those before them back in their new places; None where nothing is left."""
        path: Path = []
        above = self._root
        while above.order is not None:
            seat, rival = above.out, above.rival
            if rival is None:
                if seat is None:
                    return None
            elif seat is None:
                seat = self._take(above, rival)
            else:
                place = seat.place(seat.planned_ms)
                if rival[0] < place:
                    heappush(above.back, (place, seat))
                    seat = self._take(above, rival)
            path.append(seat)
            above = seat
        return path

    def charge(self, path: Path, planned_ms: int, *, partition: int, spent: Collection[Seat]) -> None:
        """Charges what is planned along its path, and takes leave of what is `spent`, or has nothing left below it."""
        for seat in reversed(path):
            seat.planned_ms += planned_ms
            if seat.order is not None:
                seat.here_ms[partition] = seat.here_ms.get(partition, 0) + planned_ms
            if seat in spent or (seat.order is not None and seat.out is None and seat.rival is None):
                seat.above.out = None

    def rest(self, path: Path) -> Iterator[Leaf]:
        """A path's Group, and what comes behind it in its account: each is passed over in this decision from then on."""
        above = path[-2]
        node: Node = path[-1].node
        above.out = None
        while True:
            assert isinstance(node, Leaf)
            yield node
            if above.rival is None:
                return
            node = self._leave(above, above.rival)

    def _take(self, above: Seat, head: Head) -> Seat:
        """The seat of the rival, which is out from now on."""
        seat = head[2] or self.seat(head[1], above)
        self._leave(above, head)
        above.out = seat
        return seat

    def _leave(self, above: Seat, head: Head) -> Node:
        """Takes the rival out of its order, or of those that were drawn from."""
        if head[2] is None:
            above.drawn += 1
        else:
            heappop(above.back)
        self._face(above)
        return head[1]

    def seat(self, node: Node, above: Seat | None) -> Seat:
        """A node that was not drawn from."""
        seat = Seat(node, above, self._now_ms)
        if seat.order is not None:
            self._face(seat)
        return seat

    def _face(self, above: Seat) -> None:
        assert above.order is not None
        first = above.order.at(above.drawn, self._now_ms)
        back = above.back
        if back and (first is None or back[0][0] < first[0]):
            place, seat = back[0]
            above.rival = (place, seat.node, seat)
        else:
            above.rival = None if first is None else (first[0], first[2], None)
