"""The nodes of the tree that service is shared in, and the ready children of one node in their order (rules 1-3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from treadle.shared.model import Capability, DirectoryEntry, GroupId, Usage
from treadle.shared.resources import Resources

from .fairness import Order, Standing, virtual_time

SAME_ENTRY_MS = 1_000
"""Nodes that entered in the same second are equally old: among them the hash decides, not the millisecond."""

NO_CAP = 10**9
"""More slots than there are."""

TOLD_MS = 5_000
"""Within so long every Worker knows a new policy."""

Place = tuple[float, int, int, str]
"""Key, second of entry, hash, name: least first, never equal for two children of one node."""


@dataclass(slots=True, eq=False)
class Node:
    """A class, an account or a Group: its service, and its place among the ready children of the node above."""

    name: str
    tie: int
    above: Inner | None
    level: Level
    """Where it stands: that of the node above, for the root one of its own."""
    standing: Standing
    is_listed: bool = False
    """Whether its level takes it for ready."""
    cap: int | None = None
    """Up to which width it may run; at it, it is not ready."""
    rate: tuple[int, int] | None = None
    """How much of it may be taken in one window of the store's time, and its milliseconds."""
    until_ms: int = 0
    """Until when its rate is used up: before, it is not ready."""
    left_a_cap: bool = False
    """Whether it had work all the time since it was listed last: then only a quota took it off."""
    _place: Place | None = None
    _still_until_ms: float = 0.0

    def set(self, standing: Standing) -> None:
        """How it stands from now on; to be listed anew by its level."""
        self.standing = standing
        self._place = None

    def place(self, now_ms: int) -> Place:
        """Where it stands in the order of picks."""
        if self._place is None or now_ms > self._still_until_ms:
            self._place = self.place_at(self.standing.key(now_ms))
            self._still_until_ms = self.standing.still_until_ms()
        return self._place

    def place_at(self, key: float) -> Place:
        """Where it would stand with another key."""
        return (key, self.standing.usage.entry_ms // SAME_ENTRY_MS, self.tie, self.name)

    @property
    def has_work(self) -> bool:
        """Whether there is something to take, its own cap aside."""
        raise NotImplementedError

    @property
    def slots_left(self) -> int:
        """How much more may run of it by its cap."""
        return NO_CAP if self.cap is None else self.cap - self.standing.usage.running

    def part(self, partition: int) -> Usage:
        """What of its service this partition counts."""
        raise NotImplementedError

    def weigh(self, weight: float, now_ms: int, *, level: float) -> None:
        """Goes by another weight, and stays where it is in relation to `level` (rule 7)."""
        raise NotImplementedError

    def is_ready(self, now_ms: int) -> bool:
        """Whether something of it may be taken here."""
        return self.has_work and self.slots_left > 0 and self.until_ms <= now_ms

    def path(self) -> tuple[Node, ...]:
        """The nodes from the class down to this one."""
        return () if self.above is None else (*self.above.path(), self)


@dataclass(slots=True, eq=False)
class Leaf(Node):
    """One Group: what may be taken of it by this Worker, per capability."""

    group: GroupId = field(kw_only=True)
    partition: int = field(kw_only=True)
    account: str = field(kw_only=True)
    granted: float = field(kw_only=True)
    """The weight its Mission was granted; what it has is the policy's."""
    offers: dict[Capability, DirectoryEntry] = field(default_factory=dict)
    takeable: int = 0
    width: int = 1
    """Of its first item, as far as is known."""
    resources: Resources = ()
    """What that needs besides slots."""
    lag: float = 0.0
    """What of its shift keeps its lag at a change of weight (rule 7), until the store has it as a part of the offset."""
    told_until_ms: int = 0
    """Until when a new weight that comes to be known here was told to the store by others already."""

    @property
    def has_work(self) -> bool:
        return self.takeable > 0

    def weigh(self, weight: float, now_ms: int, *, level: float) -> None:
        before = self.standing
        self.set(before.weighing(weight, now_ms, level=level))
        if now_ms >= self.told_until_ms:
            self.lag += self.standing.shift - before.shift

    def count(self, usage: Usage, now_ms: int, *, level: float) -> None:
        """Takes the store's newest word: a new offset replaces what this Worker shifted; `level` is V before all that is told.

        One that was set for a lag that is not known here is followed only where that brings it nearer to V: else this Worker
        has not heard of the new weight yet, or came before the store had.
        """
        before = self.standing
        shift, moved = before.shift, usage.offset - before.usage.offset
        if (usage.entry, usage.served) != (before.usage.entry, before.usage.served):
            self.lag = shift = 0.0 if moved else self.lag
        elif moved and self.lag:
            shift, self.lag = shift - self.lag, 0.0
        elif moved:
            ahead = before.virtual_time(now_ms) - level
            if abs(ahead) <= abs(ahead + moved):
                shift, self.told_until_ms = shift - moved, now_ms + TOLD_MS
        self.set(Standing(usage, before.weight, before.tag, shift))

    def offset_to_tell(self, now_ms: int) -> tuple[int, int | None]:
        """What a take brings along for its offset: what it is lifted to, or what it is set to from which value."""
        standing, lag = self.standing, round(self.lag)
        offset = standing.usage.offset
        if not lag:
            return standing.offset_to_apply(now_ms), None
        if standing.usage.served:
            return offset + lag, offset
        return round(offset + standing.tag - virtual_time(standing.usage, standing.weight, now_ms)), offset

    def part(self, partition: int) -> Usage:
        assert partition == self.partition, "a Group is in one partition for life"
        return self.standing.usage

    def in_order(self) -> list[DirectoryEntry]:
        """What may be taken, the capability with the most pressing head first."""
        entries = list(self.offers.values())
        if len(entries) > 1:
            entries.sort(key=lambda entry: (entry.head, entry.capability))
        return entries


@dataclass(slots=True, eq=False)
class Inner(Node):
    """A class or an account, or the root: the sum of what each partition last told of it."""

    below: Level = field(default_factory=lambda: Level())
    parts: dict[int, Usage] = field(default_factory=dict)
    twins: list[Inner] = field(default_factory=list)
    """The same account in all its classes, itself included: its quotas are of all of them."""

    @property
    def has_work(self) -> bool:
        return len(self.below) > 0

    @property
    def slots_left(self) -> int:
        if self.cap is None:
            return NO_CAP
        return self.cap - sum(twin.standing.usage.running for twin in self.twins)

    def weigh(self, weight: float, now_ms: int, *, level: float) -> None:
        self.set(self.standing.weighing(weight, now_ms, level=level))

    def slots_here(self, partition: int) -> int | None:
        """Up to which width it may run in a partition, with what is known to run of it elsewhere."""
        if self.cap is None:
            return None
        return max(0, self.slots_left + self.part(partition).running)

    def part(self, partition: int) -> Usage:
        return self.parts.get(partition) or Usage()

    def count(self, partition: int, usage: Usage, now_ms: int) -> None:
        """Take a partition's newest word. The first one of a partition is history, for which v does not move.

        Nor does v fall where something was forgotten. Service that grew since the entry ends the wait: then the shift
        makes up for what v was behind the tag.
        """
        before = self.standing
        part = self.parts.get(partition)
        self.parts[partition] = usage
        had = before.virtual_time(now_ms)
        total = _sum(before.usage, part or Usage(), usage)
        shift = before.shift
        if self.is_listed and not before.usage.served and _has_started(part or Usage(), usage):
            total = replace(total, served=True)
            shift += max(0.0, before.tag - had)
        after = Standing(total, before.weight, before.tag, shift)
        least = had + shift - before.shift
        grown = after.virtual_time(now_ms) - least
        if grown < 0 or part is None:
            after = replace(after, shift=shift - grown)
        self.set(after)
        if usage.running > (part or Usage()).running:
            self.level.picked(self, now_ms)

    def discount(self, partition: int, now_ms: int) -> None:
        """Forget what a partition told, without moving v."""
        if self.parts.pop(partition, None) is not None:
            total = Usage()
            for part in self.parts.values():
                total = _sum(total, Usage(), part)
            kept = self.standing.usage
            usage = replace(total, served=kept.served, entry=kept.entry, entry_ms=kept.entry_ms)
            lost = self.standing.virtual_time(now_ms) - replace(self.standing, usage=usage).virtual_time(now_ms)
            self.set(replace(self.standing, usage=usage, shift=self.standing.shift + lost))


class Level:
    """The ready children of one node in the order of picks; for V the served apart from those that wait since their entry."""

    def __init__(self) -> None:
        self.picks: Order[Node, Place] = Order(Node.place)
        self.served: Order[Node, Place] = Order(Node.place)
        self._tags: Order[Node, Place] = Order(lambda node, _: node.place_at(node.standing.tag))
        self._last_pick = 0.0

    def __len__(self) -> int:
        return len(self.picks)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.picks)

    def list(self, node: Node, now_ms: int) -> None:
        """Puts a ready child in its place, as it stands now."""
        node.is_listed = True
        self.picks.push(node, now_ms)
        if node.standing.usage.served:
            self.served.push(node, now_ms)
            self._tags.remove(node)
        else:
            self.served.remove(node)
            self._tags.push(node, now_ms)

    def unlist(self, node: Node) -> None:
        """Takes a child out: it is not ready."""
        node.is_listed = False
        for order in (self.picks, self.served, self._tags):
            order.remove(node)

    def first(self, now_ms: int) -> Node | None:
        """The child whose turn it is."""
        head = self.picks.first(now_ms)
        return None if head is None else head[2]

    def virtual_time(self, now_ms: int) -> float:
        """V (rule 2): as `fairness.entry_virtual_time`, from the orders."""
        for order in (self.served, self._tags):
            first = order.first(now_ms)
            if first is not None:
                return first[0][0]
        return self._last_pick

    def picked(self, node: Node, now_ms: int) -> None:
        """Something of a child was started: with nothing ready, its v is where the next one enters."""
        self._last_pick = max(self._last_pick, node.standing.virtual_time(now_ms))

    def level_out(self, now_ms: int) -> None:
        """Puts all that is listed level with the largest v or tag: what was hoarded is forgotten."""
        nodes = list(self)
        levels = [
            node.standing.virtual_time(now_ms) if node.standing.usage.served else node.standing.tag for node in nodes
        ]
        for node in nodes:
            node.set(node.standing.lifted(max(levels), now_ms))
            self.list(node, now_ms)


def _has_started(before: Usage, after: Usage) -> bool:
    return after.running > before.running or after.used_ms > before.used_ms


def _sum(total: Usage, less: Usage, more: Usage) -> Usage:
    """A total in which one part is replaced; the typical run is that of the newest word."""
    return replace(
        total,
        used_ms=total.used_ms - less.used_ms + more.used_ms,
        running=total.running - less.running + more.running,
        starts_ms=total.starts_ms - less.starts_ms + more.starts_ms,
        estimate_ms=total.estimate_ms - less.estimate_ms + more.estimate_ms,
        typical_ms=more.typical_ms or total.typical_ms,
    )
