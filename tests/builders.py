"""Builders of values for tests: complete with defaults, so that a test names only what it is about."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treadle.shared import codec
from treadle.shared.model import (
    EVENT_FIELDS,
    STARTS_EPOCH_MS,
    AgentId,
    Capability,
    DirectoryEntry,
    Event,
    EventKind,
    GroupId,
    ItemId,
    Limits,
    MissionId,
    NewItem,
    NewMission,
    NodeUsage,
    Usage,
)
from treadle.shared.names import token
from treadle.worker.core.fairness import charge_ms, estimate_ms, next_typical
from treadle.worker.core.schedule import Take

NOW_MS = STARTS_EPOCH_MS + 1_000_000_000
GROUP = GroupId("m-1")
ITEM = ItemId("a")
AGENT = AgentId("worker-1")
OTHER = AgentId("worker-2")
SESSION = 7
CAPABILITY = Capability("index")

_DATA = {
    "epoch": 1,
    "start_by_ms": NOW_MS + 60_000,
    "lease": "l-1",
    "expires_ms": NOW_MS + 10_000,
    "number": 1,
    "agent": AGENT,
    "session": SESSION,
    "to": "-",
    "basis": "all",
}


def an_event(
    kind: EventKind,
    seq: int = 1,
    *,
    group: GroupId = GROUP,
    item: ItemId | None = ITEM,
    by: str = f"{AGENT}@{SESSION}",
    incarnation: int = 1,
    **data: object,
) -> Event:
    """An Event of one's own Agent, its data tokens by the names of EVENT_FIELDS."""
    names = EVENT_FIELDS[kind]
    unknown = data.keys() - set(names)
    assert not unknown, f"{kind} has no data called {unknown}"
    tokens = tuple(str(data.get(name, _DATA.get(name, "0"))) for name in names)
    return Event(group, incarnation, seq, kind, NOW_MS + seq, item, by, tokens)


def a_usage(**fields: Any) -> Usage:
    """A node's counters; `running=n` without `starts_ms` runs since NOW_MS."""
    usage = Usage(**fields)
    if usage.running and "starts_ms" not in fields:
        usage = replace(usage, starts_ms=usage.running * (NOW_MS - STARTS_EPOCH_MS))
    return usage


def an_entry(
    group: str = GROUP,
    takeable: int = 1,
    *,
    partition: int = 0,
    capability: str = CAPABILITY,
    weight: float = 1.0,
    usage: Usage | None = None,
    head: str = "",
    code: str = "",
    account: str = "acme",
    priority_class: str = "standard",
) -> DirectoryEntry:
    """A directory entry of a Group that was never served."""
    return DirectoryEntry(
        partition=partition,
        group=GroupId(group),
        capability=Capability(capability),
        takeable=takeable,
        head=head,
        account=account,
        weight=weight,
        priority_class=priority_class,
        usage=usage or Usage(entry=1, entry_ms=NOW_MS),
        code=code,
    )


def a_new_item(item: str = ITEM, *, after: Sequence[str] = (), inputs: bytes = b"in", **fields: Any) -> NewItem:
    """A WorkItem to be created; `after` by names, as `item`."""
    fields.setdefault("capability", CAPABILITY)
    waits_for = tuple(ItemId(token(other, field="after")) for other in after)
    return NewItem(ItemId(token(item, field="item")), inputs=inputs, after=waits_for, **fields)


_RAW_ITEM: dict[str, str | int] = {
    **{"item": "x", "capability": CAPABILITY, "width": 1, "urgency": "normal", "impact": 0, "deadline": 0},
    **{"start_by_s": 60, "not_before": "", "retry": "", "digest": "digest", "after": "", "inputs": "in"},
    **{"contract": "", "offer": "", "timeout_ms": 0, "gates": "", "resources": ""},
}


def a_raw_item(item: str = "x", **fields: str | int) -> tuple[str | int, ...]:
    """A WorkItem as `create` and `add` take it, in the order of their arguments, with what may be wrong in it."""
    assert not fields.keys() - _RAW_ITEM.keys(), f"an item has no arguments {fields.keys() - _RAW_ITEM.keys()}"
    return tuple({**_RAW_ITEM, "item": item, **fields}.values())


def a_new_mission(mission: str = GROUP, *items: NewItem, **fields: Any) -> NewMission:
    """A Mission to be created, of one item where none are given; its digest tells its content."""
    defaults: dict[str, Any] = {
        "actor": "ana",
        "objective": "count the words",
        "account": "acme",
        "weight": 1.0,
        "priority_class": "standard",
        "deadline_ms": NOW_MS + 1_000_000_000,
    }
    content = {**defaults, "items": items or (a_new_item(),), **fields}
    content.setdefault("digest", codec.digest(repr(sorted(content.items())).encode()))
    return NewMission(mission=MissionId(mission), group=GroupId(token(mission, field="mission")), **content)


@dataclass(frozen=True, slots=True)
class Run:
    """One item that runs: what its start charged is what its end takes back."""

    group: GroupId
    start_ms: int
    run_ms: int
    estimate_ms: int


@dataclass(slots=True)
class _Line:
    weight: float
    partition: int
    account: str
    priority_class: str
    runs: deque[int] = field(default_factory=deque)
    usage: Usage = field(default_factory=Usage)

    def nodes(self) -> list[tuple[int, str]]:
        """Its account and class in its partition."""
        return [
            (self.partition, f"a:{self.priority_class}:{self.account}"),
            (self.partition, f"c:{self.priority_class}"),
        ]


class TinyStore:
    """The counters and the directory as the function library keeps them, of one capability, without a server.

    `take` is the accept and start of a whole list under one total, `end` the settlement of a run.
    """

    def __init__(self) -> None:
        self.lines: dict[GroupId, _Line] = {}
        self.changed: set[GroupId] = set()
        self.service: dict[tuple[int, str], Usage] = {}

    def add(
        self,
        group: str,
        runs: Iterable[int],
        now_ms: int,
        *,
        weight: float = 1.0,
        partition: int = 0,
        account: str = "acme",
        priority_class: str = "standard",
    ) -> None:
        """Queue items by the length of their runs."""
        line = self.lines.setdefault(GroupId(group), _Line(weight, partition, account, priority_class))
        if not line.runs:
            line.usage = replace(line.usage, entry=line.usage.entry + 1, entry_ms=now_ms)
        line.runs.extend(runs)
        self.changed.add(GroupId(group))

    def take(self, takes: Sequence[Take], total: int, now_ms: int) -> list[Run]:
        """Start items down the list until the total is filled or a limit stops them (rules 3 and 5)."""
        started: list[Run] = []
        for take in takes:
            self.changed.add(take.group)
            line = self.lines[take.group]
            for _ in range(min(take.most, total - len(started), len(line.runs))):
                if take.limits and self._is_stopped(line, take.limits, now_ms):
                    break
                usage = line.usage
                offset = usage.offset if usage.served else max(usage.offset, take.offset)
                run = Run(take.group, now_ms, line.runs.popleft(), estimate_ms(usage.typical_ms))
                line.usage = replace(usage, offset=offset)
                self._charge(line, 1, now_ms, run.estimate_ms)
                line.usage = replace(line.usage, served=bool(line.runs))
                started.append(run)
        return started

    def _is_stopped(self, line: _Line, limits: Limits, now_ms: int) -> bool:
        account, class_ = (self.service.get(node, Usage()) for node in line.nodes())
        charges = (limits.charge_group, limits.charge_account, limits.charge_class)
        if any(
            most is not None and charge_ms(usage, now_ms) > most
            for usage, most in zip((line.usage, account, class_), charges, strict=True)
        ):
            return True
        slots = ((line.usage, limits.slots_group), (account, limits.slots_account))
        return any(most is not None and usage.running >= most for usage, most in slots)

    def end(self, run: Run, now_ms: int) -> None:
        """Charge what was used and take back the estimate (rule 6)."""
        self._charge(self.lines[run.group], -1, run.start_ms, run.estimate_ms, now_ms - run.start_ms)
        self.changed.add(run.group)

    def _charge(self, line: _Line, width: int, start_ms: int, estimate_ms: int, run_ms: int | None = None) -> None:
        def charged(usage: Usage) -> Usage:
            return replace(
                usage,
                used_ms=usage.used_ms + (run_ms or 0),
                running=usage.running + width,
                starts_ms=usage.starts_ms + width * (start_ms - STARTS_EPOCH_MS),
                estimate_ms=usage.estimate_ms + width * estimate_ms,
                typical_ms=usage.typical_ms if run_ms is None else next_typical(usage.typical_ms, run_ms),
            )

        line.usage = charged(line.usage)
        for node in line.nodes():
            self.service[node] = charged(self.service.get(node, Usage()))

    def nodes(self) -> list[NodeUsage]:
        """What the service of the accounts and classes is of which something changed; to be asked before `changes`."""
        changed = {node for group in self.changed for node in self.lines[group].nodes()}
        return [
            NodeUsage(partition, node, self.service.get((partition, node), Usage()))
            for partition, node in sorted(changed)
        ]

    def changes(self) -> list[DirectoryEntry]:
        """The entries that changed since this was last asked, an emptied Group as a tombstone."""
        entries = self.known(sorted(self.changed))
        self.changed.clear()
        return entries

    def known(self, groups: Iterable[GroupId]) -> list[DirectoryEntry]:
        """The entries of these Groups as they are now."""
        return [
            an_entry(
                group,
                len(line.runs),
                partition=line.partition,
                weight=line.weight,
                usage=line.usage,
                account=line.account,
                priority_class=line.priority_class,
            )
            for group in groups
            for line in [self.lines[group]]
        ]

    def service_ms(self, group: str, now_ms: int) -> int:
        """The slot-time this Group has had."""
        line = self.lines.get(GroupId(group))
        if line is None:
            return 0
        usage = line.usage
        return usage.used_ms + usage.running * (now_ms - STARTS_EPOCH_MS) - usage.starts_ms
