"""Weighted fair queueing by virtual time: the arithmetic of one node, be it a Group, an account or a class.

The rules are numbered as in the Scheduler's algorithm: 1 virtual time and key, 2 the level V, 3 the tag at an entry,
6 the typical run, 7 the lag kept at a change of weight. A node is charged for slot-time as it is used, by all Workers; the
key adds a provisional charge for what has just started, and orders picks only, so no refund is ever needed.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from treadle.shared.model import STARTS_EPOCH_MS, Usage

COLD_MS = 1
"""The provisional charge of a run nobody has measured: small, but never 0, or all slots would go to one node."""
ROW_MAX = 64
"""Up to how many nodes of an order stand in a row: more than a decision looks at, few enough to be moved."""


def running_ms(usage: Usage, now_ms: int) -> int:
    """The slot-time of what runs now, extrapolated from `running` and `starts_ms`; never negative."""
    return max(0, usage.running * (now_ms - STARTS_EPOCH_MS) - usage.starts_ms)


def virtual_time(usage: Usage, weight: float, now_ms: int) -> float:
    """v: slot-milliseconds used per unit of weight (rule 1). It never falls while `now_ms` does not."""
    return usage.offset + (usage.used_ms + running_ms(usage, now_ms)) / weight


def pick_key(usage: Usage, weight: float, now_ms: int, *, planned_ms: float = 0) -> float:
    """What orders picks (rule 1): v with at least the estimate charged for what runs and what is planned here."""
    return usage.offset + charge_ms(usage, now_ms, planned_ms=planned_ms) / weight


def charge_ms(usage: Usage, now_ms: int, *, planned_ms: float = 0) -> float:
    """What a node is charged in all, as the store counts it too: used, and for what runs at least the estimate."""
    return usage.used_ms + max(running_ms(usage, now_ms), usage.estimate_ms + planned_ms)


def estimate_ms(typical_ms: int, *, cold_ms: int = COLD_MS) -> int:
    """e^ as charged at a start: the typical run, or `cold_ms` for a node whose runs nobody has measured yet.

    `cold_ms` must not be above the shortest run seen: the bounds hold for the larger of run and estimate.
    """
    return typical_ms if typical_ms > 0 else max(COLD_MS, cold_ms)


def next_typical(typical_ms: int, run_ms: int) -> int:
    """e^ after a run ended (rule 6): 0.8 of the old and 0.2 of the run, the first run itself when cold.

    In whole milliseconds as the function library counts, `floor((4 e^ + run + 2) / 5)`, at least 1: 0 means cold.
    """
    if typical_ms <= 0:
        return max(1, run_ms)
    return max(1, (4 * typical_ms + run_ms + 2) // 5)


@dataclass(frozen=True, slots=True)
class Standing:
    """One node as its level sees it. `tag` is what was frozen at its entry; it counts until the node is served."""

    usage: Usage
    weight: float
    tag: float = 0.0
    shift: float = 0.0
    """Virtual time that this Worker alone adds: what no stored offset says."""

    def virtual_time(self, now_ms: int) -> float:
        """v of rule 1, with this Worker's shift."""
        return self.shift + virtual_time(self.usage, self.weight, now_ms)

    def key(self, now_ms: int, *, planned_ms: float = 0) -> float:
        """The pick key, and until the node is served at least its tag. Like v, it never falls while time does not."""
        key = self.shift + pick_key(self.usage, self.weight, now_ms, planned_ms=planned_ms)
        if self.usage.served:
            return key
        return max(key, self.tag + planned_ms / self.weight)

    def still_until_ms(self) -> float:
        """Until when time alone does not move its key: then what runs here outlasts its provisional charge."""
        usage = self.usage
        if usage.running <= 0:
            return math.inf
        return STARTS_EPOCH_MS + (usage.starts_ms + usage.estimate_ms) / usage.running

    def lifted(self, level: float, now_ms: int) -> Standing:
        """The same node level with `level`, if it is behind: its tag, or v itself where it was served since its entry."""
        if not self.usage.served:
            return replace(self, tag=max(self.tag, level))
        return replace(self, shift=self.shift + max(0.0, level - self.virtual_time(now_ms)))

    def weighing(self, weight: float, now_ms: int, *, level: float) -> Standing:
        """The same node under another weight (rule 7): the service by which it lags behind V, `level`, stays what it was."""
        ratio = self.weight / weight
        wanted = level - (level - self.virtual_time(now_ms)) * ratio
        shift = wanted - virtual_time(self.usage, weight, now_ms)
        return Standing(self.usage, weight, level - (level - self.tag) * ratio, shift)

    def offset_to_apply(self, now_ms: int) -> int:
        """What the first accept lifts a Group's stored offset to, so that v is the tag; 0 where it would change nothing."""
        if self.usage.served:
            return 0
        lift = self.tag - virtual_time(self.usage, self.weight, now_ms)
        return round(self.usage.offset + lift) if lift > 0 else 0


def entry_virtual_time(ready: Iterable[Standing], now_ms: int, *, last_pick: float) -> float:
    """V of a level (rule 2), from its ready nodes; `last_pick` is the largest v that was seen at a pick.

    Only nodes served since their entry count: with all of them a stream of one-item nodes would hold V still.
    """
    served: list[float] = []
    waiting: list[float] = []
    for node in ready:
        if node.usage.served:
            served.append(node.key(now_ms))
        else:
            waiting.append(node.tag)
    if served:
        return min(served)
    return min(waiting, default=last_pick)


def entry_tag(node: Standing, now_ms: int, *, level: float, left_a_cap: bool = False) -> float:
    """The tag of a node that becomes ready (rule 3), `level` being V at that instant: what it missed is not saved up.

    One that had work all the time and only left a cap is put before V by one run. To be frozen by the caller: a tag read
    again at each decision would never let a waiting node win.
    """
    if left_a_cap:
        level -= node.usage.typical_ms / node.weight
    return max(node.virtual_time(now_ms), level)


NodeT = TypeVar("NodeT")
PlaceT = TypeVar("PlaceT", bound=tuple[Any, ...])


class Order(Generic[NodeT, PlaceT]):
    """Nodes by a place that only rises with time between two pushes: the first ones, whatever the time; O(log n) a push.

    A place computed earlier is a lower bound, so only what comes first is looked at again. No two nodes may have the same
    place. The first ones stand in a row, from which nothing need be taken to see what is behind; the others lie in a heap.
    There what was replaced or removed stays until it comes to the top or is most of it.
    """

    def __init__(self, place_of: Callable[[NodeT, int], PlaceT]) -> None:
        self._place_of = place_of
        self._row: list[tuple[PlaceT, int, NodeT]] = []
        self._heap: list[tuple[PlaceT, int, NodeT]] = []
        self._entries: dict[NodeT, tuple[PlaceT, int, NodeT]] = {}
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[NodeT]:
        return iter(tuple(self._entries))

    def waste(self) -> int:
        """How many places are kept that no longer count; bounded by the nodes there are, and 64."""
        return len(self._row) + len(self._heap) - len(self._entries)

    def push(self, node: NodeT, now_ms: int) -> None:
        """Place a node as it stands now; its earlier place no longer counts."""
        self.remove(node)
        self._insert(node, self._place_of(node, now_ms))

    def remove(self, node: NodeT) -> None:
        entry, row = self._entries.pop(node, None), self._row
        if entry is not None and row and entry <= row[-1]:
            del row[bisect_left(row, entry)]

    def first(self, now_ms: int) -> tuple[PlaceT, int, NodeT] | None:
        """The least place as of now, and last its node; each node is looked at again at most once a call."""
        return self.at(0, now_ms)

    def at(self, index: int, now_ms: int) -> tuple[PlaceT, int, NodeT] | None:
        """As `first`, behind so many that were looked at for the same time; None where there are no more."""
        row = self._row
        while index < len(row) or self._lengthen(index):
            entry = row[index]
            place = self._place_of(entry[2], now_ms)
            if place <= entry[0]:
                return entry
            del row[index]
            self._insert(entry[2], place)
        return None

    def _lengthen(self, index: int) -> bool:
        """Brings the next ones into the row up to an index; whether there are so many."""
        while self._heap and index >= len(self._row):
            entry = heappop(self._heap)
            if self._entries.get(entry[2]) is entry:
                self._row.append(entry)
        return index < len(self._row)

    def _insert(self, node: NodeT, place: PlaceT) -> None:
        self._pushes += 1
        entry = self._entries[node] = (place, self._pushes, node)
        row, heap = self._row, self._heap
        if row and entry < row[-1]:
            insort(row, entry)
            if len(row) > ROW_MAX:
                for last in row[ROW_MAX // 2 :]:
                    heappush(heap, last)
                del row[ROW_MAX // 2 :]
            return
        heappush(heap, entry)
        if len(heap) > 64 + 2 * len(self._entries):
            heap[:] = [one for one in heap if self._entries.get(one[2]) is one]
            heapify(heap)
