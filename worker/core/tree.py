"""The tree that service is shared in: class, account, Group. What of it is ready here, and how each node stands (rules 1-3).

directory entries, node usages -> Ready -> classes in order -> accounts in order -> Groups in order

A Group's offset is the store's. Above the Groups every lift is this Worker's own: pools of different capabilities stand at
different levels, and the stored lift of an account in one pool would starve it in another.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Collection, Iterable
from dataclasses import replace

from treadle.shared.errors import Corrupt
from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, Limits, NodeUsage, Usage
from treadle.shared.policy import DEFAULT_POLICY, Policy, Rate

from .fairness import Standing, entry_tag
from .nodes import Inner, Leaf, Level, Node

KNOWN_MAX = 20_000
"""Accounts and classes kept in mind; where more have Groups that are known here, twice as many as those."""


class Ready:
    """What this Worker could take from, folded from directory entries and node usages, with frozen entry tags.

    A Group is ready while some entry of a capability offered here has takeable items and no code (EMPTY, PAUSED,
    LOG_FOREIGN, ...); an account or class while something below it is. An entry stands until the next one of the same
    Group and capability; a Group that is not ready is forgotten, unless it is pinned, and comes back at the V of that moment.
    """

    def __init__(self, agent: AgentId, capabilities: Collection[Capability]) -> None:
        self.agent = agent
        self.capabilities = frozenset(capabilities)
        self.root = Inner("", 0, None, Level(), Standing(Usage(), 1.0))
        self._inner: dict[str, Inner] = {}
        self._twins: dict[str, list[Inner]] = {}
        self._leaves: dict[GroupId, Leaf] = {}
        self._pinned: dict[GroupId, int] = {}
        self._held: list[tuple[int, int, Node]] = []
        self._holds = 0
        self._shortest_ms: dict[Capability, int] = {}
        self._now_ms = 0
        self._known_max = KNOWN_MAX
        self._has_begun = False
        self.policy = DEFAULT_POLICY
        self.takeable = 0
        """How many items may be taken here, as far as is known."""

    # --- the fold ---

    def update(self, entries: Iterable[DirectoryEntry], now_ms: int) -> None:
        """Fold what one reply or one read of the directory told; a tombstone (takeable 0) removes its entry.

        Nodes that enter in the same update get their tags from the same V, whatever their order in it.
        """
        now_ms = self.tick(now_ms)
        mine = [entry for entry in entries if entry.capability in self.capabilities]
        for entry in mine:
            _check(entry)
        levels = self._levels_before(mine, now_ms)
        touched: dict[Node, bool] = {}
        for entry in mine:
            leaf = self._leaves.get(entry.group)
            enters = leaf is None or leaf.standing.usage.entry != entry.usage.entry
            if leaf is None:
                if not _is_takeable(entry) and (entry.group not in self._pinned or entry.code == "GROUP_NOT_FOUND"):
                    continue
                leaf = self._leaf(entry)
            self._set(leaf, entry, levels.get(leaf.level, 0.0), now_ms)
            touched[leaf] = enters or touched.get(leaf, False)
        self._settle(touched, now_ms)

    def replace(self, partition: int, entries: Iterable[DirectoryEntry], now_ms: int) -> None:
        """Fold a partition's whole list: what it does not name is gone."""
        entries = list(entries)
        named = {(entry.group, entry.capability) for entry in entries}
        touched: dict[Node, bool] = {}
        for leaf in [leaf for leaf in self._leaves.values() if leaf.partition == partition]:
            for capability in [name for name in leaf.offers if (leaf.group, name) not in named]:
                self._unset(leaf, capability)
                touched[leaf] = False
        self._settle(touched, self._now_ms)
        self.update(entries, now_ms)

    def remove(self, group: GroupId) -> None:
        """Forget a Group, until an entry brings it back."""
        leaf = self._leaves.get(group)
        if leaf is not None:
            for capability in list(leaf.offers):
                self._unset(leaf, capability)
            self._settle({leaf: False}, self._now_ms)

    def pin(self, group: GroupId) -> None:
        """Keep in mind how a Group stands whose item runs here, once it is known, also while there is nothing to take."""
        self._pinned[group] = self._pinned.get(group, 0) + 1

    def unpin(self, group: GroupId) -> None:
        """The end of one `pin`."""
        count = self._pinned.pop(group, 0) - 1
        if count > 0:
            self._pinned[group] = count
        elif (leaf := self._leaves.get(group)) is not None and not leaf.offers:
            del self._leaves[group]

    def hold(self, group: GroupId, until_ms: int) -> None:
        """Take nothing of a Group, or of its account, before its rate allows it again: whichever of them has one."""
        node = next((node for node in reversed(self.path_of(group)) if node.rate is not None), None)
        if node is not None:
            held: list[Node] = list(node.twins) if isinstance(node, Inner) else [node]
            for one in held:
                one.until_ms = max(one.until_ms, until_ms)
                self._holds += 1
                heapq.heappush(self._held, (until_ms, self._holds, one))
            self._settle(dict.fromkeys(held, False), self._now_ms)

    @property
    def has_work(self) -> bool:
        """Whether anything may be taken here now, as far as is known."""
        return self.root.has_work

    @property
    def resumes_ms(self) -> int | None:
        """When the next node that is held may be taken from again; None where none is held."""
        return self._held[0][0] if self._held else None

    def service(self, nodes: Iterable[NodeUsage], now_ms: int, *, whole: int | None = None) -> None:
        """Fold the service of accounts and classes; `whole`: all that this partition knows, so others had none there.

        To be folded before the directory entries that came with it.
        """
        now_ms = self.tick(now_ms)
        nodes = list(nodes)
        touched: dict[Node, bool] = {}
        for one in nodes:
            inner = self._node(one.node)
            inner.count(one.partition, one.usage, now_ms)
            touched |= dict.fromkeys(inner.twins if inner.cap is not None else (inner,), False)
        if whole is not None:
            named = {one.node for one in nodes}
            for inner in [inner for name, inner in self._inner.items() if name not in named]:
                inner.discount(whole, now_ms)
                touched[inner] = False
        self._settle(touched, now_ms)
        if whole is not None or len(self._inner) > self._known_max:
            self._tidy(idle=len(self._inner) > self._known_max)
            self._known_max = max(KNOWN_MAX, 2 * len(self._inner))

    def tick(self, now_ms: int) -> int:
        """The time to reckon with: an estimate of the store's time that went back is not followed."""
        self._now_ms = max(self._now_ms, now_ms)
        while self._held and self._held[0][0] <= self._now_ms:
            self._settle({heapq.heappop(self._held)[2]: False}, self._now_ms)
        return self._now_ms

    def begin(self, now_ms: int) -> None:
        """Before the first decision all that is ready is put level: what was hoarded before a restart may not burst."""
        if not self._has_begun:
            self._has_begun = True
            for inner in (self.root, *self._inner.values()):
                inner.below.level_out(now_ms)

    def govern(self, policy: Policy, now_ms: int) -> None:
        """Follow a policy from the next decision on: weights, each node keeping its lag (rule 7), and caps."""
        now_ms = self.tick(now_ms)
        self.policy = policy
        nodes: list[Inner | Leaf] = [*self._leaves.values(), *self._inner.values()]
        levels = {level: level.virtual_time(now_ms) for level in {node.level: None for node in nodes}}
        for node in nodes:
            weight = self._grant(node)
            if weight != node.standing.weight:
                node.weigh(weight, now_ms, level=levels[node.level])
        self._settle({leaf: False for leaf in self._leaves.values()}, now_ms)
        self._settle({inner: False for inner in self._inner.values()}, now_ms)

    # --- what others ask ---

    def estimate_ms(self, leaf: Leaf) -> int | None:
        """e^ of one item of this Group: its own, else the shortest run seen of its capability; None for neither."""
        typical_ms = leaf.standing.usage.typical_ms
        if typical_ms > 0:
            return typical_ms
        seen = [self._shortest_ms[name] for name in leaf.offers if name in self._shortest_ms]
        return min(seen, default=None)

    def leaf_of(self, group: GroupId) -> Leaf | None:
        """A Group's node; None for one that is not known here."""
        return self._leaves.get(group)

    def path_of(self, group: GroupId) -> tuple[Node, ...]:
        """Class, account and Group, from above; nothing for a Group that is not known here."""
        leaf = self._leaves.get(group)
        return () if leaf is None else leaf.path()

    def quota_of(self, group: GroupId) -> Limits | None:
        """The slots that a Group and its account may use; None where there is no such bound, or the Group is not known here."""
        leaf = self._leaves.get(group)
        if leaf is None or not isinstance(leaf.above, Inner):
            return None
        of_account = leaf.above.slots_here(leaf.partition)
        return (
            None if leaf.cap is None and of_account is None else Limits(slots_group=leaf.cap, slots_account=of_account)
        )

    def standing_of(self, group: GroupId) -> tuple[Standing, ...]:
        """How class, account and Group stand; nothing for a Group that is not known here."""
        return tuple(node.standing for node in self.path_of(group))

    def standings(self) -> dict[GroupId, Standing]:
        """The known Groups as their level sees them: for pictures and tests, a decision does not need it."""
        return {group: leaf.standing for group, leaf in self._leaves.items()}

    def levels(self, now_ms: int) -> dict[str, float]:
        """V of the children of each class (`c:<class>`), each account (`a:<class>:<account>`), and the root ('')."""
        now_ms = self.tick(now_ms)
        return {inner.name: inner.below.virtual_time(now_ms) for inner in (self.root, *self._inner.values())}

    def tag(self, group: GroupId) -> float | None:
        """The tag frozen at the Group's entry; None where it is unknown, or served since."""
        leaf = self._leaves.get(group)
        return leaf.standing.tag if leaf is not None and not leaf.standing.usage.served else None

    # --- the fold's steps ---

    def _leaf(self, entry: DirectoryEntry) -> Leaf:
        account = self._node(f"a:{entry.priority_class}:{entry.account}")
        partition = zlib.crc32(f"{self.agent}\n{entry.partition}".encode())
        tie = (partition << 32) + self._hash(entry.group)  # partition after partition: one call touches many of them
        leaf = Leaf(
            entry.group,
            tie,
            account,
            account.below,
            Standing(Usage(), entry.weight),
            group=entry.group,
            partition=entry.partition,
            account=entry.account,
            granted=entry.weight,
        )
        leaf.set(Standing(Usage(entry=-1), self._grant(leaf)))  # whatever is told first is new
        self._leaves[entry.group] = leaf
        return leaf

    def _node(self, name: str) -> Inner:
        """The class or account of this name, made where it is not known yet."""
        inner = self._inner.get(name)
        if inner is None:
            level, priority_class, *_ = name.split(":")
            above = self.root if level == "c" else self._node(f"c:{priority_class}")
            inner = self._inner[name] = Inner(name, self._hash(name), above, above.below, Standing(Usage(), 1.0))
            inner.twins = self._twins.setdefault(name.rpartition(":")[2] if level == "a" else name, [])
            inner.twins.append(inner)
            inner.set(Standing(Usage(), self._grant(inner)))
        return inner

    def _tidy(self, *, idle: bool) -> None:
        """Let go of accounts of which no partition tells anything any more; `idle`: of all without a known Group."""
        used = {leaf.above.name for leaf in self._leaves.values() if leaf.above is not None}
        for name, inner in list(self._inner.items()):
            if name.startswith("a:") and name not in used and (idle or not inner.parts):
                del self._inner[name]
                inner.twins.remove(inner)
                if not inner.twins:
                    del self._twins[name.rpartition(":")[2]]

    def _grant(self, node: Inner | Leaf) -> float:
        """Give a node the cap that the policy grants; its weight."""
        level, _, name = node.name.rpartition(":")
        if isinstance(node, Leaf):
            grant = self.policy.mission(node.account, node.group)
            node.cap, node.rate = grant.slots, _window(grant.rate)
            return node.granted if grant.weight is None else grant.weight
        if level == "c":
            return self.policy.class_weight(name)
        rule = self.policy.account(name)
        node.cap, node.rate = rule.slots, _window(rule.rate)
        return rule.weight

    def _hash(self, name: str) -> int:
        """Each Worker's own order among equals."""
        return zlib.crc32(f"{self.agent}\n{name}".encode())

    def _levels_before(self, entries: Iterable[DirectoryEntry], now_ms: int) -> dict[Level, float]:
        """V where a Group that is known has another weight or offset now, before anything is folded: no order decides it."""
        levels: dict[Level, float] = {}
        for entry in entries:
            leaf = self._leaves.get(entry.group)
            if leaf is not None and (leaf.granted != entry.weight or leaf.standing.usage.offset != entry.usage.offset):
                levels[leaf.level] = leaf.level.virtual_time(now_ms)
        return levels

    def _set(self, leaf: Leaf, entry: DirectoryEntry, level: float, now_ms: int) -> None:
        before, usage = leaf.standing.usage, entry.usage
        if usage.typical_ms > 0:
            known = self._shortest_ms.get(entry.capability, usage.typical_ms)
            self._shortest_ms[entry.capability] = min(known, usage.typical_ms)
        if leaf.granted != entry.weight:
            leaf.granted = entry.weight
            leaf.weigh(self._grant(leaf), now_ms, level=level)
        leaf.count(usage, now_ms, level=level)
        if usage.running > before.running or (usage.served and not before.served):
            leaf.level.picked(leaf, now_ms)
        if _is_takeable(entry):
            leaf.offers[entry.capability] = entry
            self._recount(leaf)
        else:
            self._unset(leaf, entry.capability)

    def _unset(self, leaf: Leaf, capability: Capability) -> None:
        leaf.offers.pop(capability, None)
        self._recount(leaf)
        if not leaf.offers and leaf.group not in self._pinned:
            self._leaves.pop(leaf.group, None)

    def _recount(self, leaf: Leaf) -> None:
        self.takeable -= leaf.takeable
        leaf.takeable = sum(entry.takeable for entry in leaf.offers.values())
        first = leaf.in_order()[0] if leaf.offers else None
        leaf.width, leaf.resources = (first.head_width, first.head_needs) if first else (1, ())
        self.takeable += leaf.takeable

    def _settle(self, touched: dict[Node, bool], now_ms: int) -> None:
        """List what is ready and take off what is not, level by level from below; `touched` says who enters anew."""
        while touched:
            entering: list[Node] = []
            above: dict[Inner, bool] = {}
            for node, enters in touched.items():
                is_ready = node.is_ready(now_ms)
                if not is_ready:
                    node.left_a_cap = node.has_work
                if is_ready and node.is_listed and not enters:
                    node.level.list(node, now_ms)
                elif is_ready or node.is_listed:
                    node.level.unlist(node)
                    if node.above is not None:
                        above[node.above] = False
                    if is_ready:
                        entering.append(node)
            above = {node: not node.has_work for node in above}  # all it had is new, or nothing is left
            levels = {level: level.virtual_time(now_ms) for level in {node.level: None for node in entering}}
            for node in entering:
                self._enter(node, levels[node.level], now_ms)
            for node in entering:
                node.level.list(node, now_ms)
            # Above a node that stays as it is nothing changes.
            touched = {
                node: enters for node, enters in above.items() if enters or node.is_ready(now_ms) != node.is_listed
            }

    def _enter(self, node: Node, level: float, now_ms: int) -> None:
        usage = node.standing.usage
        if isinstance(node, Inner):
            # As old as what waits in it: after a restart all is level, and who waited longest comes first.
            entry_ms = min((child.standing.usage.entry_ms for child in node.below), default=now_ms)
            usage = replace(usage, served=False, entry=usage.entry + 1, entry_ms=entry_ms)
        tag = entry_tag(node.standing, now_ms, level=level, left_a_cap=node.left_a_cap)
        node.left_a_cap = False
        node.set(replace(node.standing, usage=usage, tag=tag))


def _window(rate: Rate | None) -> tuple[int, int] | None:
    return None if rate is None else (rate.starts, rate.window_ms)


def _check(entry: DirectoryEntry) -> None:
    if not 0 < entry.weight < math.inf or entry.takeable < 0:
        raise Corrupt(
            f"directory entry of Group {entry.group}, {entry.capability}: weight {entry.weight}, takeable "
            f"{entry.takeable}; partition {entry.partition} must be read again"
        )


def _is_takeable(entry: DirectoryEntry) -> bool:
    return entry.takeable > 0 and not entry.code
