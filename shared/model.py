"""The nouns: frozen values that both wings and the store agree on.

Times are milliseconds since the Unix epoch in the store's own time (`..._ms`); no client clock ever decides.
Ids that travel to the store are tokens: percent-encoded, so they hold no space, colon, brace or slash (`shared.names`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from .resources import Resources, unpacked
from .usage import STARTS_EPOCH_MS as STARTS_EPOCH_MS
from .usage import UNBOUNDED as UNBOUNDED
from .usage import Limits as Limits
from .usage import NodeUsage as NodeUsage
from .usage import Queued as Queued
from .usage import Usage as Usage

MissionId = NewType("MissionId", str)
"""A Mission's id as its submitter wrote it, in any script."""
GroupId = NewType("GroupId", str)
"""The token of a Mission's one Group: the encoded Mission id (MSN-001: stable for life)."""
ItemId = NewType("ItemId", str)
"""The token of a WorkItem, unique inside its Group."""
AgentId = NewType("AgentId", str)
"""The token of an Agent: one runtime per Agent identity (CONTEXT, R35)."""
Capability = NewType("Capability", str)
LeaseId = NewType("LeaseId", str)
EventId = NewType("EventId", str)


class ItemState(StrEnum):
    """The nine states of a WorkItem (protocol.md 2)."""

    OPEN = "open"
    OFFERED = "offered"
    QUEUED = "queued"
    ACTIVE = "active"
    BLOCKED = "blocked"
    SUBMITTED = "submitted"
    VERIFIED = "verified"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MissionState(StrEnum):
    """The states of a Mission (protocol.md 2)."""

    ACTIVE = "active"
    AWAITING_APPROVAL = "awaiting_approval"
    APPROVED = "approved"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Urgency(StrEnum):
    """What a Coordinator may say of an item; it orders its own Group only (C3)."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    ROUTINE = "routine"


class Risk(StrEnum):
    """What may go wrong with an item that cannot be undone, as its Coordinator says it; ordered, the least first."""

    NONE = "none"
    LOW = "low"
    HIGH = "high"


class EventKind(StrEnum):
    """The kinds a Group's log holds so far: the protocol's own words, and the extensions of `EXTENSION_KINDS`."""

    MISSION_CREATED = "mission.created"
    MISSION_SUBMITTED = "mission.submitted_for_approval"
    MISSION_APPROVED = "mission.approved"
    MISSION_TERMINATED = "mission.terminated"
    MISSION_CANCELLED = "mission.cancelled"
    MISSION_SEALED = "mission.sealed"
    SNAPSHOT_CREATED = "group.snapshot.created"
    GROUP_ARCHIVED = "group.archived"
    MEMBERSHIP_ENDED = "membership.ended"
    MEMBERSHIP_CHANGED = "membership.changed"
    AUTHORIZED = "work.authorized"
    OFFERED = "work.offer.created"
    ACCEPTED = "work.offer.accepted"
    OFFER_DECLINED = "work.offer.declined"
    REPRIORITISED = "work.reprioritised"
    STARTED = "work.started"
    SCHEDULE_DISCLOSED = "work.schedule.disclosed"
    PROGRESSED = "work.progressed"
    PROGRESS_SAVED = "work.progress_saved"
    CHECKPOINTED = "work.checkpointed"
    PREEMPTION_REQUESTED = "work.preemption.requested"
    PREEMPTION_OVERDUE = "work.preemption.overdue"
    BLOCKED = "work.blocked"
    UNBLOCKED = "work.unblocked"
    RELEASED = "work.released"
    LAPSED = "work.lease_lapsed"
    REQUEUED = "work.requeued"
    SUBMITTED = "work.submitted"
    RESULT_ACCEPTED = "work.result.accepted"
    FAILED = "work.failed"
    RETRIES_ENDED = "work.retries_ended"
    PARKED = "work.parked"
    EXECUTION_APPROVED = "work.execution.approved"
    EXPIRED = "work.expired"
    CANCELLED = "work.cancelled"
    GROUP_REPAIRED = "group.repaired"


EXTENSION_KINDS = frozenset(
    {
        *(EventKind.MISSION_SEALED, EventKind.OFFER_DECLINED, EventKind.PROGRESS_SAVED, EventKind.RELEASED),
        *(EventKind.LAPSED, EventKind.REQUEUED, EventKind.RETRIES_ENDED, EventKind.PARKED),
        EventKind.EXECUTION_APPROVED,
        *(EventKind.EXPIRED, EventKind.GROUP_REPAIRED, EventKind.SCHEDULE_DISCLOSED),
        *(EventKind.PREEMPTION_REQUESTED, EventKind.PREEMPTION_OVERDUE, EventKind.REPRIORITISED),
    }
)
"""Kinds the protocol has no word for; an export writes them as `ext.treadle.<kind>`."""

EVENT_FIELDS: Mapping[EventKind, tuple[str, ...]] = {
    EventKind.MISSION_CREATED: ("digest", "account", "weight", "class", "items"),
    EventKind.MISSION_SUBMITTED: ("revision",),
    EventKind.MISSION_APPROVED: ("basis",),
    EventKind.MISSION_TERMINATED: ("reason",),
    EventKind.MISSION_CANCELLED: ("reason",),
    EventKind.MISSION_SEALED: ("items",),
    EventKind.SNAPSHOT_CREATED: ("through", "digest", "size"),
    EventKind.GROUP_ARCHIVED: ("digest",),
    EventKind.MEMBERSHIP_ENDED: ("agent", "epoch", "reason"),
    EventKind.MEMBERSHIP_CHANGED: ("agent", "epoch"),
    EventKind.AUTHORIZED: ("capability", "width", "dependencies"),
    EventKind.OFFERED: ("capability", "cause", "to", "expires_ms"),
    EventKind.ACCEPTED: ("epoch", "start_by_ms", "basis"),
    EventKind.OFFER_DECLINED: ("agent", "reason"),
    EventKind.REPRIORITISED: ("urgency", "deadline_ms", "impact"),
    EventKind.STARTED: ("epoch", "lease", "expires_ms", "number"),
    EventKind.SCHEDULE_DISCLOSED: ("epoch", "start_from_ms", "start_to_ms", "end_ms", "confidence", "capacity"),
    EventKind.PROGRESSED: ("epoch", "phase", "milestones", "done", "total"),
    EventKind.PROGRESS_SAVED: ("epoch", "number", "digest", "size"),
    EventKind.CHECKPOINTED: ("epoch", "number", "digest", "size", "start_by_ms"),
    EventKind.PREEMPTION_REQUESTED: ("epoch", "lease", "reason"),
    EventKind.PREEMPTION_OVERDUE: ("epoch", "lease"),
    EventKind.BLOCKED: ("epoch", "number", "digest", "size", "expires_ms", "reason"),
    EventKind.UNBLOCKED: ("epoch", "start_by_ms", "digest", "size"),
    EventKind.RELEASED: ("epoch", "reason"),
    EventKind.LAPSED: ("epoch", "agent", "what", "at_ms"),
    EventKind.REQUEUED: ("epoch", "agent", "session", "reason", "start_by_ms"),
    EventKind.SUBMITTED: ("epoch", "digest", "size"),
    EventKind.RESULT_ACCEPTED: ("epoch", "basis"),
    EventKind.FAILED: ("epoch", "digest", "retry_ms"),
    EventKind.RETRIES_ENDED: ("reason",),
    EventKind.PARKED: ("reason", "lost_runs"),
    EventKind.EXECUTION_APPROVED: ("reason",),
    EventKind.EXPIRED: ("reason",),
    EventKind.CANCELLED: ("reason",),
    EventKind.GROUP_REPAIRED: ("incarnation", "through", "digest", "reason"),
}
"""The tokens of each kind's data, in order; as payload behind them `work.failed` carries its Evidence, `work.blocked` what
it needs.

`retry_ms` is when the item is offered again, 0 where it has failed for good; `start_by_ms` of `work.unblocked` is 0 where
its ownership was over: it is open. `to` is `-` for everybody, else the mode and who is asked, `named:a,b`; `expires_ms` of an
offer is 0 where it holds until it is accepted. The basis of an acceptance (R26) is `all`, `named` or `preferred`: whom its
offer had asked. `work.schedule.disclosed` was computed at the Event's own time; its `end_ms` is 0 where it is unknown, its
`confidence` in percent (docs/disclosure.md). Of `work.progressed` a `-` is none: no phase, no milestone reached since the
one before it; several are separated by commas. `work.reprioritised` says all three as they are from then on, changed or
not; its `deadline_ms` is 0 for none.
"""


INCARNATION = 1
"""Of a Group's log; one that is made anew by a repair gets the next one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a Group's log. Its Event ID is derived: the same entry has the same id wherever it is read."""

    group: GroupId
    incarnation: int
    seq: int
    kind: EventKind
    at_ms: int
    item: ItemId | None
    by: str
    """Who caused it: `agent@session`, an actor's token, `timer`, or `policy`."""
    data: tuple[str, ...] = ()
    payload: bytes = b""
    quarantined: str = ""
    """Why its payload, or all it says, was left out ('' where it was not): no state hangs on it, it counts as processed."""
    is_void: bool = False
    """Whether all that it says was left out: there is nothing in it to be acted upon."""

    @property
    def event_id(self) -> EventId:
        return EventId(f"{self.group}.{self.incarnation}.{self.seq}")

    @property
    def begins_anew(self) -> bool:
        """Whether a repair made the log anew from here on: what came before is in no log any more, and is not missed."""
        return self.kind is EventKind.GROUP_REPAIRED and int(self.get("through")) == self.seq - 1

    def get(self, name: str) -> str:
        """The data token called `name` in `EVENT_FIELDS`; KeyError where this kind has none of that name."""
        try:
            return self.data[EVENT_FIELDS[self.kind].index(name)]
        except (ValueError, IndexError):
            raise KeyError(f"{self.kind} {self.event_id} has no {name!r}") from None


_NEEDS = r"&([a-z0-9._=,-]+=[0-9]+)"
_SORT_KEY = re.compile(rf".*:([^:*+&]*)(?:\*([0-9]{{1,14}}))?(?:\+([0-9]{{1,14}}))?(?:{_NEEDS})?(?:@(\S+))?")


@dataclass(frozen=True, slots=True)
class SortKey:
    """What a place in the order of a Group says of its item.

    `<due><urgency><impact>:<item>[*<width>][+<timeout_ms>][&<resources>]`. In the directory `@<agent>` stands behind it
    while a Worker keeps free for the item what it needs.
    """

    item: ItemId = ItemId("")
    width: int = 1
    timeout_ms: int = 0
    """0: none."""
    resources: Resources = ()
    """Of resources, besides slots."""
    holder: AgentId = AgentId("")
    """Who keeps slots free for it; '' for nobody."""

    @classmethod
    def parse(cls, key: str) -> SortKey:
        """Of a key that the store wrote; of anything else it is of no item."""
        found = _SORT_KEY.fullmatch(key)
        if found is None:
            return cls()
        item, width, timeout_ms, needs, holder = found.groups()
        return cls(ItemId(item), int(width or 1), int(timeout_ms or 0), unpacked(needs or ""), AgentId(holder or ""))


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """What a Worker knows of one Group's takeable work of one capability, as of a directory version."""

    partition: int
    group: GroupId
    capability: Capability
    takeable: int
    """How many items may be taken now; 0 is a tombstone."""
    head: str
    """The sort key of the first one (`SortKey`), '' where none."""
    account: str
    weight: float
    priority_class: str
    usage: Usage
    code: str = ""
    """Why a take got nothing: '' (nothing asked or something given), EMPTY, PAUSED, LOG_FOREIGN, LOG_REBORN, ..."""

    @property
    def head_item(self) -> ItemId:
        """The first one; '' where none."""
        return SortKey.parse(self.head).item

    @property
    def head_width(self) -> int:
        """The slots that the first one fills at once."""
        return SortKey.parse(self.head).width if "*" in self.head else 1

    @property
    def head_timeout_ms(self) -> int:
        """How long a run of the first one may take; 0: as long as it likes."""
        return SortKey.parse(self.head).timeout_ms if "+" in self.head else 0

    @property
    def head_needs(self) -> Resources:
        """What the first one fills besides slots."""
        return SortKey.parse(self.head).resources if "&" in self.head else ()

    @property
    def head_holder(self) -> AgentId:
        """The Worker that keeps slots free for the first one; '' for none."""
        return SortKey.parse(self.head).holder if "@" in self.head else AgentId("")


@dataclass(frozen=True, slots=True)
class NewItem:
    """A WorkItem to be created. `inputs` and `contract` are msgpack bytes; `contract` is empty where all is default."""

    item: ItemId
    capability: Capability
    """Where it asks for a version, with it: `thumbnails~1.2.0`."""
    inputs: bytes
    contract: bytes = b""
    after: tuple[ItemId, ...] = ()
    width: int = 1
    urgency: Urgency = Urgency.NORMAL
    business_impact: int = 0
    deadline_ms: int = 0
    """0: none of its own."""
    start_by_s: int = 60
    not_before: str = ""
    """'': at once; '1764450000000': milliseconds since the epoch; '+5000': so long after the store takes it."""
    retry: str = ""
    """'retries first_ms most_ms'; '': three retries, from 1 s to 5 min."""
    digest: str = ""
    """Of its content, for an item of an open Mission: tells a repetition from another item under the same id."""
    offer: str = ""
    """'': to everybody; else 'named:a,b 0', 'preferred:a,b 10000' or '- 5000': whom it asks, and for how many milliseconds."""
    timeout_ms: int = 0
    """How long one run may take, as the contract says it in seconds; 0: as long as it likes. It stands in the sort key."""
    gates: str = ""
    """What must be given besides a slot: 'approval' of a person, or ''."""
    risk: Risk = Risk.NONE
    resources: Resources = ()
    """What it needs besides slots while it runs."""


@dataclass(frozen=True, slots=True)
class Priority:
    """What is to change of an item's place in its own Group (C8); None leaves a value as it is."""

    urgency: Urgency | None = None
    deadline_ms: int | None = None
    """0: none from now on."""
    business_impact: int | None = None


@dataclass(frozen=True, slots=True)
class NewMission:
    """A Mission to be created, its items in topological order. `digest` tells two contents under one id apart."""

    mission: MissionId
    group: GroupId
    digest: str
    actor: str
    objective: str
    account: str
    weight: float
    priority_class: str
    deadline_ms: int
    items: tuple[NewItem, ...]
    keep_results_s: int = 7 * 86_400
    """How long after its end its items are kept; in an open Mission, each item after its own end."""
    open: bool = False
    """Whether it grows until it is sealed."""
    budget_ms: int = 0
    """Slot-milliseconds after which nothing more of it starts; 0: no bound."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An Execution Lease as granted (WRK-013), with its fencing token."""

    lease_id: LeaseId
    group: GroupId
    item: ItemId
    agent: AgentId
    session_epoch: int
    ownership_epoch: int
    number: int
    """How many leases this item has had, this one included: also the attempt number."""
    expires_ms: int
    incarnation: int
    replid: str

    @property
    def token(self) -> tuple[int, int, int, str]:
        """The fencing token: (incarnation, Ownership Epoch, lease number, replid), design.md 3.11."""
        return (self.incarnation, self.ownership_epoch, self.number, self.replid)


@dataclass(frozen=True, slots=True)
class Grant:
    """One WorkItem given to a Worker by a take: accepted, and started where `lease` is there."""

    partition: int
    group: GroupId
    item: ItemId
    capability: Capability
    width: int
    ownership_epoch: int
    start_by_ms: int
    seq: int
    """The sequence of its `work.offer.accepted` Event; `work.started` is the next."""
    lease: Lease | None
    checkpoint_number: int
    after: tuple[ItemId, ...]
    inputs: bytes
    contract: bytes
    checkpoint_digest: str = ""
    checkpoint_before: str = ""
    """Digests of the newest Checkpoint and of the one before it, which is kept too; '' for none."""
    has_resolution: bool = False
    basis: str = "all"
    """Whom the offer that was accepted had asked."""
    version: str = ""
    """The version of its capability that it asks for; '': any."""
    resources: Resources = ()
    """What it fills besides slots."""


@dataclass(frozen=True, slots=True)
class Session:
    """One runtime of an Agent, current until a newer one is opened (R42)."""

    agent: AgentId
    epoch: int
    lease_ttl_ms: int
    capabilities: tuple[Capability, ...]
    replid: str
