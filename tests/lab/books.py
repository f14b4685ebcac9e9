"""The store's side of scheduling as plain values: what the function library counts, keeps in order and gives.

A model of `take`, `submit`, `yield`, `add` and `look` in as far as a Scheduler sees them, without items' Events, leases
and sessions, and without quotas by rate. `test_lab_books.py` compares it with the real library call by call, so that it
cannot drift away from it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from treadle.shared.model import (
    STARTS_EPOCH_MS,
    AgentId,
    Capability,
    DirectoryEntry,
    GroupId,
    Limits,
    NodeUsage,
    Urgency,
    Usage,
)
from treadle.shared.store import Take

PATIENCE_MS = {
    Urgency.CRITICAL: 0,
    Urgency.HIGH: 300_000,
    Urgency.NORMAL: 3_600_000,
    Urgency.ROUTINE: 86_400_000,
}
RANK = {Urgency.CRITICAL: 0, Urgency.HIGH: 1, Urgency.NORMAL: 2, Urgency.ROUTINE: 3}
NOBODY = AgentId("")
GRANTS_MAX = 64
"""Items that one call gives, and that one take looks past, at most."""


@dataclass(frozen=True, slots=True)
class Work:
    """One item: how long it runs on how many slots, and what its Group's order looks at."""

    item: str
    run_ms: int
    width: int = 1
    urgency: Urgency = Urgency.NORMAL
    deadline_ms: int = 0
    impact: int = 0
    timeout_ms: int = 0

    def key(self, queued_ms: int) -> str:
        """Its place in its Group: effective deadline, urgency, business impact, id (rule 10)."""
        due = queued_ms + PATIENCE_MS[self.urgency]
        if self.deadline_ms:
            due = max(queued_ms, min(self.deadline_ms, due))
        suffix = (f"*{self.width}" if self.width > 1 else "") + (f"+{self.timeout_ms}" if self.timeout_ms else "")
        return f"{due:014d}{RANK[self.urgency]}{99_999 - self.impact:05d}:{self.item}{suffix}"


@dataclass(slots=True, eq=False)
class Run:
    """An item that runs: what its start charged is what its end takes back."""

    group: GroupId
    work: Work
    key: str
    start_ms: int
    estimate_ms: int

    @property
    def end_ms(self) -> int:
        """When it will be over, if nobody ends it before."""
        return self.start_ms + self.work.run_ms


@dataclass(slots=True)
class Counters:
    """The nine numbers of one node (`model.Usage`), as they change."""

    used: int = 0
    running: int = 0
    starts: int = 0
    estimate: int = 0
    typical: int = 0
    offset: int = 0
    entry: int = 0
    entry_ms: int = 0
    served: bool = False

    def begin(self, run: Run) -> None:
        width = run.work.width
        self.running += width
        self.starts += width * (run.start_ms - STARTS_EPOCH_MS)
        self.estimate += width * run.estimate_ms

    def end(self, run: Run, now_ms: int) -> None:
        width, ran = run.work.width, max(0, now_ms - run.start_ms)
        self.running -= width
        self.starts -= width * (run.start_ms - STARTS_EPOCH_MS)
        self.estimate -= width * run.estimate_ms
        self.used += width * ran
        self.typical = max(1, ran if not self.typical else (4 * self.typical + ran + 2) // 5)

    def service_ms(self, now_ms: int) -> int:
        """The slot-time it has had."""
        return self.used + self.running * (now_ms - STARTS_EPOCH_MS) - self.starts

    def charge_ms(self, now_ms: int) -> int:
        """What a take's limits are held against: with at least the estimates of what runs."""
        return self.used + max(self.running * (now_ms - STARTS_EPOCH_MS) - self.starts, self.estimate)

    def usage(self) -> Usage:
        return Usage(
            self.used,
            self.running,
            self.starts,
            self.estimate,
            self.typical,
            self.offset,
            self.entry,
            self.entry_ms,
            self.served,
        )


@dataclass(slots=True, eq=False)
class Line:
    """One Group with its queue, in its fixed order."""

    group: GroupId
    partition: int
    capability: Capability
    account: str
    priority_class: str
    weight: float
    counters: Counters = field(default_factory=lambda: Counters(entry=1))
    queue: list[tuple[str, Work]] = field(default_factory=list)
    version: int = 0
    """Of its directory's last change of it; of its tombstone where it is not listed."""
    is_listed: bool = False

    @property
    def above(self) -> tuple[str, str]:
        """Its account and its class, by the names of their nodes."""
        return f"a:{self.priority_class}:{self.account}", f"c:{self.priority_class}"

    def entry(self, code: str = "", holder: str = "") -> DirectoryEntry:
        """Its line in the directory; `holder`: who keeps slots for its first item."""
        count = len(self.queue)
        if code in ("OK", "PASSED", "SHARE", "QUOTA") or (count and code == "EMPTY"):
            code = ""
        return DirectoryEntry(
            self.partition,
            self.group,
            self.capability,
            count,
            self.queue[0][0] + (f"@{holder}" if holder else "") if count else "",
            self.account,
            self.weight,
            self.priority_class,
            self.counters.usage(),
            code,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What one turn is answered with: per take a code and what was started, then the directory's lines."""

    codes: tuple[str, ...]
    started: tuple[Run, ...]
    entries: tuple[DirectoryEntry, ...]
    nodes: tuple[NodeUsage, ...]


_How = Literal["live", "touch", "empty"]


@dataclass(frozen=True, slots=True)
class Look:
    """What reading the directory of a partition gives: whether it is all there is, and the version to ask from next."""

    full: bool
    version: int
    entries: tuple[DirectoryEntry, ...]
    nodes: tuple[NodeUsage, ...]


@dataclass(slots=True)
class _Call:
    """What one call changes: of each Group how its line changes, and the nodes that it reads or changes."""

    how: dict[Line, _How] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    is_shared: bool = False
    """Whether a budget stopped a take: then nothing is given any more."""


class Books:
    """All Groups of some partitions. Each partition counts for itself, as its keys do."""

    def __init__(self, partitions: int = 1) -> None:
        self.lines: dict[GroupId, Line] = {}
        self.versions = [0] * partitions
        self.ready: list[tuple[int, GroupId, bool]] = []
        """Each instant at which a Group began or ceased to have something to take."""
        self.holds: dict[tuple[GroupId, str], tuple[AgentId, int]] = {}
        """Which Worker keeps slots for an item, and until when (rule 8)."""
        self.cold_ms = 1
        """The estimate of a Group that nobody has measured."""
        self._waiting: dict[str, int] = {}
        self.nodes: list[dict[str, Counters]] = [{} for _ in range(partitions)]
        """Of each partition, the accounts and classes that were ever served there."""
        self._node_versions: list[dict[str, int]] = [{} for _ in range(partitions)]

    # --- what clients do ---

    def open(
        self,
        group: str,
        *,
        weight: float = 1.0,
        partition: int = 0,
        capability: str = "index",
        account: str = "acme",
        priority_class: str = "standard",
    ) -> Line:
        """A new Group, without work."""
        name = GroupId(group)
        line = Line(name, partition, Capability(capability), account, priority_class, weight)
        self.lines[name] = line
        return line

    def add(self, group: str, works: Iterable[Work], now_ms: int) -> None:
        """Queue items of a Group."""
        line = self.lines[GroupId(group)]
        fresh = [(work.key(now_ms), work) for work in works]
        if len(fresh) > 64:
            line.queue = sorted([*line.queue, *fresh], key=lambda one: one[0])
        else:
            for one in fresh:
                heapq.heappush(line.queue, one)
        if fresh:
            self._enter(line, now_ms, len(fresh))
            self._publish(_Call({line: "live"}), line.partition, now_ms)

    def set_weight(self, group: str, weight: float, now_ms: int) -> None:
        """A new granted weight, told as any change of a Group is."""
        line = self.lines[GroupId(group)]
        line.weight = weight
        self._publish(_Call({line: "touch"}), line.partition, now_ms)

    # --- what Workers do ---

    def turn(
        self,
        partition: int,
        now_ms: int,
        *,
        ends: Sequence[Run] = (),
        takes: Sequence[Take] = (),
        slots: int = 0,
        agent: AgentId = NOBODY,
    ) -> Reply:
        """One call of a Worker: runs that are done, then items down the list while slots are free."""
        call = _Call()
        groups = list(dict.fromkeys(run.group for run in ends))
        # Accounts and classes are charged Group by Group.
        for run in sorted(ends, key=lambda run: groups.index(run.group)):
            self._end(run, now_ms, call)
            call.how.setdefault(self.lines[run.group], "touch")
        codes: list[str] = []
        started: list[Run] = []
        for take in takes:
            assert self.lines[take.group].partition == partition, f"{take.group} is in another partition"
            code, runs = "SHARE", list[Run]()
            if not call.is_shared:
                code, runs = self._take(take, slots, GRANTS_MAX - len(started), now_ms, call, agent)
            codes.append(code)
            started += runs
            slots -= sum(run.work.width for run in runs)
        self._publish(call, partition, now_ms)
        asked = {take.group for take in takes}
        entries = [self._entry(self.lines[take.group], now_ms, code) for take, code in zip(takes, codes, strict=True)]
        touched = sorted((line for line in call.how if line.group not in asked), key=lambda line: line.group)
        told = (*entries, *(self._entry(line, now_ms) for line in touched))
        return Reply(tuple(codes), tuple(started), told, self._told(partition, call.read | call.changed))

    def hold(self, group: GroupId, item: str, agent: AgentId, until_ms: int, now_ms: int) -> bool:
        """Have one Worker keep slots for an item that waits; whether it is the caller. `until_ms` 0: no longer."""
        holder = self.holder(group, item, now_ms)
        waits = any(work.item == item for _, work in self.lines[group].queue)
        if until_ms and (holder not in ("", agent) or not waits):
            return False
        if until_ms:
            self.holds[group, item] = (agent, until_ms)
        elif holder == agent:
            del self.holds[group, item]
        if holder == ("" if until_ms else agent):
            self.touch(group, now_ms)
        return True

    def touch(self, group: GroupId, now_ms: int) -> None:
        """Something of a Group changed that its line tells."""
        line = self.lines[group]
        self._publish(_Call({line: "touch"}), line.partition, now_ms)

    def holder(self, group: GroupId, item: str, now_ms: int) -> str:
        """Who keeps slots for an item now; '' for nobody."""
        agent, until_ms = self.holds.get((group, item), ("", 0))
        return agent if until_ms > now_ms else ""

    def withdraw(self, group: str, item: str, now_ms: int) -> None:
        """An item that waits is cancelled."""
        line, call = self.lines[GroupId(group)], _Call()
        line.queue = [one for one in line.queue if one[1].item != item]
        self.holds.pop((line.group, item), None)
        self._waiting[line.capability] -= 1
        call.how[line] = "touch" if line.queue else "empty"
        if not line.queue:
            line.counters.entry += 1
            line.counters.served = False
        self._publish(call, line.partition, now_ms)

    def _entry(self, line: Line, now_ms: int, code: str = "") -> DirectoryEntry:
        wide = line.queue[0][1] if line.queue and line.queue[0][1].width > 1 else None
        return line.entry(code, self.holder(line.group, wide.item, now_ms) if wide else "")

    def give_back(self, run: Run, left_ms: int, now_ms: int) -> Reply:
        """A run yields: its item stands where it stood, with what is left of it to do."""
        line, call = self.lines[run.group], _Call()
        self._end(run, now_ms, call)
        heapq.heappush(line.queue, (run.key, replace(run.work, run_ms=left_ms)))
        self._enter(line, now_ms, 1)
        call.how[line] = "live"
        self._publish(call, line.partition, now_ms)
        return Reply((), (), (self._entry(line, now_ms),), self._told(line.partition, call.changed))

    def look(self, partition: int, since: int, now_ms: int) -> Look:
        """The lines, accounts and classes that changed since a version; all there are since none."""
        reached = self.versions[partition]
        if since == reached:
            return Look(since == 0, reached, (), ())
        changed = [
            line
            for line in self.lines.values()
            if line.partition == partition and line.version > since and (since or line.is_listed)
        ]
        nodes = {node for node, version in self._node_versions[partition].items() if version > since}
        entries = tuple(self._entry(line, now_ms) for line in changed)
        return Look(since == 0, reached, entries, self._told(partition, nodes))

    def takeable(self, capabilities: Iterable[str]) -> bool:
        """Whether anything could be taken by somebody who does these."""
        return any(self._waiting.get(name) for name in capabilities)

    # --- their steps ---

    def _take(
        self, take: Take, slots: int, most: int, now_ms: int, call: _Call, agent: AgentId
    ) -> tuple[str, list[Run]]:
        line, limits = self.lines[take.group], take.limits
        some, code = bool(line.queue), ""
        if slots <= 0 and some:
            return "OK", []
        most = min(take.most, GRANTS_MAX, most)
        runs: list[Run] = []
        passed: list[tuple[str, Work]] = []
        while line.queue and len(runs) < most and len(passed) <= GRANTS_MAX and slots > 0:
            first = line.queue[0][1]
            if first.width > slots or self.holder(line.group, first.item, now_ms) not in ("", agent):
                passed.append(heapq.heappop(line.queue))
                continue
            code = self._limited(line, limits, first.width, now_ms, call) if limits else ""
            call.is_shared = code == "SHARE"
            if code:
                break
            key, work = heapq.heappop(line.queue)
            self.holds.pop((line.group, work.item), None)
            if take.sets == line.counters.offset:
                line.counters.offset = take.offset
            elif not line.counters.served:
                line.counters.offset = max(line.counters.offset, take.offset)
            line.counters.served = True
            run = Run(line.group, work, key, now_ms, line.counters.typical or self.cold_ms)
            for counters in self._charged(line, call):
                counters.begin(run)
            runs.append(run)
            slots -= work.width
        is_left = bool(line.queue)
        for one in passed:
            heapq.heappush(line.queue, one)
        if is_left or passed:
            if runs:
                call.how[line] = "live"
        else:
            call.how[line] = "empty"
        if not runs:
            return code or ("PASSED" if passed else "OK" if some else "EMPTY"), []
        self._waiting[line.capability] -= len(runs)
        is_at_cap = limits and limits.slots_group is not None and line.counters.running + 1 > limits.slots_group
        if call.how[line] == "empty" or is_at_cap:
            # Nothing of it can be taken any more: its next entry gets a tag of its own (rule 3, d).
            line.counters.entry += 1
            line.counters.served = False
        return "OK", runs

    def _limited(self, line: Line, limits: Limits, width: int, now_ms: int, call: _Call) -> str:
        """Why nothing of this width may be taken now, '' where it may."""
        nodes = self.nodes[line.partition]
        account, priority_class = (nodes.get(name, Counters()) for name in line.above)
        for counters, cap in ((line.counters, limits.slots_group), (account, limits.slots_account)):
            if cap is not None:
                call.read |= set(line.above) if counters is account else set()
                if counters.running + width > cap:
                    return "QUOTA"
        charges = (limits.charge_group, limits.charge_account, limits.charge_class)
        for counters, charge in zip((line.counters, account, priority_class), charges, strict=True):
            if charge is not None:
                call.read |= set(line.above) if counters is not line.counters else set()
                if counters.charge_ms(now_ms) > charge:
                    return "SHARE"
        return ""

    def _end(self, run: Run, now_ms: int, call: _Call) -> None:
        for counters in self._charged(self.lines[run.group], call):
            counters.end(run, now_ms)

    def _charged(self, line: Line, call: _Call) -> list[Counters]:
        """A Group and what stands above it, to be charged."""
        call.changed |= set(line.above)
        nodes = self.nodes[line.partition]
        return [line.counters, *(nodes.setdefault(name, Counters()) for name in line.above)]

    def _told(self, partition: int, names: Iterable[str]) -> tuple[NodeUsage, ...]:
        nodes = self.nodes[partition]
        return tuple(NodeUsage(partition, name, nodes.get(name, Counters()).usage()) for name in sorted(names))

    def _enter(self, line: Line, now_ms: int, items: int) -> None:
        self._waiting[line.capability] = self._waiting.get(line.capability, 0) + items
        if not line.is_listed:
            line.counters.entry_ms = now_ms

    def _publish(self, call: _Call, partition: int, now_ms: int) -> None:
        """Give what changed a version of the directory."""
        changes = {line: how for line, how in call.how.items() if how != "empty" or line.is_listed}
        if not changes and not call.changed:
            return
        self.versions[partition] += 1
        version = self.versions[partition]
        self._node_versions[partition].update(dict.fromkeys(call.changed, version))
        for line, how in changes.items():
            if how == "touch" and not line.is_listed:
                continue
            line.version = version
            if line.is_listed != (how != "empty"):
                line.is_listed = how != "empty"
                self.ready.append((now_ms, line.group, line.is_listed))
