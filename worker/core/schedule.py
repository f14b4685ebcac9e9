"""What a Worker asks for next: `decide`, over the Groups that have takeable work (C2, C4, R31, R32).

`Ready` is the owner of the heaps: a fold of directory entries. `decide` reads it and leaves it as it was, so the same
entries, free slots and time give the same actions on any machine. Ties end in hashes of (Agent, partition) and (Agent,
Group), so that many Workers with the same counters do not all choose the same Group.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from treadle.shared.errors import Corrupt
from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, Usage

from .fairness import Order, Standing, entry_tag, estimate_ms, virtual_time

DRAW = 4
"""Items drawn from a Group before the next one, at most: a Group touched costs more than an item."""
DRAW_MS = 200
"""What such a draw may be worth in estimated run time; longer items are drawn one at a time, in strict order."""
FALLBACKS_MAX = 16
"""Groups listed beyond the need, because other Workers race for the same ones."""
FALLBACKS_MIN = 2
"""Groups listed beyond the need while others get there first only now and then."""
SAME_ENTRY_MS = 1_000
"""Groups that entered in the same second are equally old: among them the hash decides, not the millisecond."""


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

_Place = tuple[float, int, int, GroupId]
"""Key, second of entry, hash, Group: least first, never equal for two Groups."""


@dataclass(slots=True, eq=False)
class _Node:
    """One ready Group: what may be taken of it by this Worker, per capability."""

    group: GroupId
    partition: int
    tie: int
    standing: Standing = field(default_factory=lambda: Standing(Usage(), 1.0))
    offers: dict[Capability, DirectoryEntry] = field(default_factory=dict)
    takeable: int = 0
    still: _Place | None = None
    """Its place, while time alone does not move it."""

    def place(self, now_ms: int) -> _Place:
        if self.still is not None:
            return self.still
        place = self.place_at(self.standing.key(now_ms))
        if self.standing.is_still:
            self.still = place
        return place

    def set(self, standing: Standing) -> None:
        self.standing = standing
        self.still = None

    def place_at(self, key: float) -> _Place:
        return (key, self.standing.usage.entry_ms // SAME_ENTRY_MS, self.tie, self.group)

    def in_order(self) -> list[DirectoryEntry]:
        """What may be taken, the capability with the most pressing head first."""
        entries = list(self.offers.values())
        if len(entries) > 1:
            entries.sort(key=lambda entry: (entry.head, entry.capability))
        return entries


_Order = Order[_Node, _Place]


class Ready:
    """The Groups this Worker could take from, folded from directory entries, with their frozen entry tags.

    A Group is ready while some entry of a capability offered here has takeable items and no code (EMPTY, PAUSED,
    LOG_FOREIGN, ...). An entry stands until the next one of the same Group and capability; a Group that is not ready is
    forgotten, and comes back at the V of that moment.
    """

    def __init__(self, agent: AgentId, capabilities: Collection[Capability]) -> None:
        self.agent = agent
        self.capabilities = frozenset(capabilities)
        self._nodes: dict[GroupId, _Node] = {}
        self._by_partition: dict[int, _Order] = {}
        self._served = Order(_Node.place)
        self._waiting: _Order = Order(lambda node, _: node.place_at(node.standing.tag))
        self._shortest_ms: dict[Capability, int] = {}
        self._last_pick = 0.0
        self._now_ms = 0
        self.takeable = 0
        """How many items may be taken here, as far as is known."""

    def update(self, entries: Iterable[DirectoryEntry], now_ms: int) -> None:
        """Fold what one reply or one read of the directory told; a tombstone (takeable 0) removes its entry.

        Groups that enter in the same update get their tags from the same V, whatever their order in it.
        """
        now_ms = self.tick(now_ms)
        mine = [entry for entry in entries if entry.capability in self.capabilities]
        for entry in mine:
            _check(entry)
        touched: dict[_Node, bool] = {}  # and whether it enters
        for entry in mine:
            node = self._nodes.get(entry.group)
            enters = node is None or node.standing.usage.entry != entry.usage.entry
            if node is None:
                if not _is_takeable(entry):
                    continue
                node = _Node(entry.group, entry.partition, _tie(self.agent, entry))
                self._nodes[entry.group] = node
            self._set(node, entry, now_ms)
            touched[node] = enters or touched.get(node, False)
        entered = [node for node, enters in touched.items() if enters and node.takeable]
        for node, enters in touched.items():
            self._list(node, now_ms, is_ready=not enters and node.takeable > 0)
        if entered:
            level = self.virtual_time(now_ms)
            for node in entered:
                usage, weight = node.standing.usage, node.standing.weight
                node.set(Standing(usage, weight, entry_tag(usage, weight, now_ms, level=level)))
            for node in entered:
                self._list(node, now_ms, is_ready=True)

    def replace(self, partition: int, entries: Iterable[DirectoryEntry], now_ms: int) -> None:
        """Fold a partition's whole list: what it does not name is gone."""
        entries = list(entries)
        named = {(entry.group, entry.capability) for entry in entries}
        for node in [node for node in self._nodes.values() if node.partition == partition]:
            for capability in [name for name in node.offers if (node.group, name) not in named]:
                self._unset(node, capability)
            self._list(node, self._now_ms, is_ready=node.takeable > 0)
        self.update(entries, now_ms)

    def remove(self, group: GroupId) -> None:
        """Forget a Group, until an entry brings it back."""
        node = self._nodes.get(group)
        if node is not None:
            for capability in list(node.offers):
                self._unset(node, capability)
            self._list(node, self._now_ms, is_ready=False)

    def virtual_time(self, now_ms: int) -> float:
        """V (rule 2) over the Groups that are ready here: as `fairness.entry_virtual_time`, from the heaps."""
        for order in (self._served, self._waiting):
            first = order.first(self.tick(now_ms))
            if first is not None:
                return first[0][0]
        return self._last_pick

    def tick(self, now_ms: int) -> int:
        """The time to reckon with: an estimate of the store's time that went back is not followed."""
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms

    def tag(self, group: GroupId) -> float | None:
        """The tag frozen at the Group's entry; None where it is unknown, or served since."""
        node = self._nodes.get(group)
        return node.standing.tag if node is not None and not node.standing.usage.served else None

    def standings(self) -> dict[GroupId, Standing]:
        """The ready Groups as their level sees them: for pictures and tests, a decision does not need it."""
        return {group: node.standing for group, node in self._nodes.items()}

    def walk(self, now_ms: int) -> _Walk:
        """The ready Groups in order, for one decision; to be closed by it."""
        return _Walk(self._by_partition, self.tick(now_ms))

    def estimate_ms(self, node: _Node) -> int | None:
        """e^ of one item of this Group: its own, else the shortest run seen of its capability; None for neither."""
        typical_ms = node.standing.usage.typical_ms
        if typical_ms > 0:
            return typical_ms
        seen = [self._shortest_ms[name] for name in node.offers if name in self._shortest_ms]
        return min(seen, default=None)

    # --- the fold's steps ---

    def _set(self, node: _Node, entry: DirectoryEntry, now_ms: int) -> None:
        before, usage = node.standing.usage, entry.usage
        if usage.typical_ms > 0:
            known = self._shortest_ms.get(entry.capability, usage.typical_ms)
            self._shortest_ms[entry.capability] = min(known, usage.typical_ms)
        if usage.running > before.running or (usage.served and not before.served):
            self._last_pick = max(self._last_pick, virtual_time(usage, entry.weight, now_ms))
        node.set(Standing(usage, entry.weight, node.standing.tag))
        if _is_takeable(entry):
            node.offers[entry.capability] = entry
            self._recount(node)
        else:
            self._unset(node, entry.capability)

    def _unset(self, node: _Node, capability: Capability) -> None:
        node.offers.pop(capability, None)
        self._recount(node)
        if not node.offers:
            self._nodes.pop(node.group, None)

    def _recount(self, node: _Node) -> None:
        self.takeable -= node.takeable
        node.takeable = sum(entry.takeable for entry in node.offers.values())
        self.takeable += node.takeable

    def _list(self, node: _Node, now_ms: int, *, is_ready: bool) -> None:
        """Put a Group into the orders it belongs to now, and take it out of the others."""
        by_key = self._by_partition.get(node.partition)
        if by_key is None:
            by_key = self._by_partition[node.partition] = Order(_Node.place)
        is_served = node.standing.usage.served
        for order, belongs in ((by_key, True), (self._served, is_served), (self._waiting, not is_served)):
            if belongs and is_ready:
                order.push(node, now_ms)
            else:
                order.remove(node)


class _Walk:
    """The ready Groups in their order as of one instant; closing it leaves the orders as they were."""

    def __init__(self, orders: Mapping[int, _Order], now_ms: int) -> None:
        self._orders = orders
        self._now_ms = now_ms
        self._out: list[tuple[_Node, _Place]] = []
        self._heads: list[tuple[_Place, bool, _Node]] = []
        """The first of each partition, and (True) those that were drawn from and stand again."""
        for order in orders.values():
            self._bring(order)

    def next(self) -> _Node | None:
        """The first Group of all; its successor in its partition takes its place."""
        if not self._heads:
            return None
        place, was_drawn, node = heapq.heappop(self._heads)
        if not was_drawn:
            order = self._orders[node.partition]
            order.remove(node)
            self._out.append((node, place))
            self._bring(order)
        return node

    def again(self, node: _Node, place: _Place) -> None:
        """Put a Group that was drawn from back in its new place, for this walk only."""
        heapq.heappush(self._heads, (place, True, node))

    def rival(self) -> tuple[_Place, bool] | None:
        """The place that comes next, and whether its Group was served since its entry."""
        if not self._heads:
            return None
        place, was_drawn, node = self._heads[0]
        return place, was_drawn or node.standing.usage.served

    def only(self, partitions: Collection[int]) -> None:
        """Go on with the Groups of these partitions alone."""
        self._heads = [head for head in self._heads if head[2].partition in partitions]
        heapq.heapify(self._heads)

    def close(self) -> None:
        for node, place in self._out:
            self._orders[node.partition].restore(node, place)
        self._out.clear()

    def _bring(self, order: _Order) -> None:
        first = order.first(self._now_ms)
        if first is not None:
            heapq.heappush(self._heads, (first[0], False, first[1]))


@dataclass(frozen=True, slots=True)
class View:
    """What a decision is made from: the Groups with work, and how many items this Worker can take now."""

    ready: Ready
    free_slots: int
    draw: int = DRAW
    fallbacks: int = FALLBACKS_MAX


def decide(view: View, now_ms: int) -> tuple[Action, ...]:
    """The list to take from, in this Worker's order: all free slots filled from what is known, then fall-backs.

    Least key first (rule 4); each planned pick is charged at once. No slot stays free while something takeable is
    known. Fall-backs are Groups of the partitions that are asked anyway, for those another Worker got first.
    """
    now_ms = view.ready.tick(now_ms)
    walk = view.ready.walk(now_ms)
    try:
        planned = _plan(view, walk, now_ms)
        actions = [take for node, count in planned.items() for take in _takes(node, count, now_ms)]
        parts: dict[int, int] = {}
        for take in actions:
            parts[take.partition] = parts.get(take.partition, 0) + take.most
        walk.only(parts)
        listed = 0
        while listed < view.fallbacks and (node := walk.next()) is not None:
            if node not in planned:
                most = min(node.takeable, parts[node.partition], _draw_at_most(view, node))
                actions += _takes(node, most, now_ms, fallback=True)
                listed += 1
        return tuple(actions)
    finally:
        walk.close()


def _plan(view: View, walk: _Walk, now_ms: int) -> dict[_Node, int]:
    """How many items of which Group fill the free slots, Groups in the order they are first drawn from."""
    planned: dict[_Node, int] = {}
    left = view.free_slots
    while left > 0 and (node := walk.next()) is not None:
        had = planned.get(node, 0)
        rival = walk.rival()
        at_most = _draw_at_most(view, node)
        each_ms = estimate_ms(view.ready.estimate_ms(node) or 0)
        count, place = 0, node.place(now_ms)
        while count < min(left, node.takeable - had):
            count += 1
            place = node.place_at(node.standing.key(now_ms, planned_ms=(had + count) * each_ms))
            if rival is None or place < rival[0]:
                continue
            # Out of turn, up to one draw; but one that was served does not keep a newcomer waiting.
            if count >= at_most or ((node.standing.usage.served or had) and not rival[1]):
                break
        planned[node] = had + count
        left -= count
        if node.takeable > had + count:
            walk.again(node, place)
    return planned


def _draw_at_most(view: View, node: _Node) -> int:
    """How many items may be drawn from a Group before its turn is over: few where they are long or unknown."""
    each_ms = view.ready.estimate_ms(node)
    return 1 if each_ms is None else max(1, min(view.draw, DRAW_MS // each_ms))


def _takes(node: _Node, count: int, now_ms: int, *, fallback: bool = False) -> list[Take]:
    offset = node.standing.offset_to_apply(now_ms)
    takes: list[Take] = []
    for entry in node.in_order():
        most = min(count, entry.takeable)
        if most:
            takes.append(Take(node.partition, node.group, entry.capability, most, offset, fallback))
            count -= most
    return takes


def _check(entry: DirectoryEntry) -> None:
    if not 0 < entry.weight < math.inf or entry.takeable < 0:
        raise Corrupt(
            f"directory entry of Group {entry.group}, {entry.capability}: weight {entry.weight}, takeable "
            f"{entry.takeable}; partition {entry.partition} must be read again"
        )


def _is_takeable(entry: DirectoryEntry) -> bool:
    return entry.takeable > 0 and not entry.code


def _tie(agent: AgentId, entry: DirectoryEntry) -> int:
    """Each Worker's own order among equals: partition after partition, so that one call touches many of them."""
    partition = zlib.crc32(f"{agent}\n{entry.partition}".encode())
    return (partition << 32) + zlib.crc32(f"{agent}\n{entry.group}".encode())
