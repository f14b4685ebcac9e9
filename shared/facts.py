"""What readings of the store found, for people who ask what runs, what waits and why: plain values, nothing judged."""

from __future__ import annotations

from dataclasses import dataclass

from .answers import Block, Offer
from .damage import Damage
from .disclosure import Disclosure
from .model import AgentId, Capability, GroupId, ItemId, ItemState, MissionState, Risk
from .progress import Said
from .resources import Resources
from .versions import does

NEVER_MS = 90_000_000_000_000
"""The end of a quarantine that only a person ends (`_quarantine.lua`)."""
ENDED = ("ended", "cancelled")
"""States of a Group whose Mission has ended."""
SILENT_AFTER_TTLS = 4
"""A live session tells every partition each second TTL that it is there; after four of silence it is as good as gone."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One session that the store lists: a Worker's present runtime."""

    agent: AgentId
    epoch: int
    capabilities: tuple[Capability, ...]
    slots: int
    """0: by the policy it takes nothing."""
    ttl_ms: int
    renewed_ms: int
    """When it last told the store that it is there, in the store's time."""
    held: int
    """WorkItems it has accepted and not finished."""
    versions: tuple[Capability, ...] = ()
    """The same capabilities with the version of each handler, `thumbnails~1.2.0`."""
    resources: Resources = ()
    """What it has besides slots."""

    def can(self, capability: str) -> bool:
        """Whether it does work of a capability, in the version that is asked for."""
        return any(does(one, capability) for one in (*self.capabilities, *self.versions))

    def is_silent(self, now_ms: int) -> bool:
        return now_ms - self.renewed_ms > SILENT_AFTER_TTLS * self.ttl_ms


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A Mission's Group as the Workers see it: whether it may be served, what is takeable, what it has had."""

    mission: str
    group: GroupId
    partition: int
    state: str
    """`active`, `paused`, `ended`, `cancelled` or `halted:CODE`."""
    account: str
    weight: float
    priority_class: str
    takeable: int
    running: int
    """Slots that run for it now."""
    used_ms: int
    """Slot-milliseconds it has had, those of what runs now included."""
    seq: int
    log_length: int
    items: int = 0
    """Those in the store: of an open Mission some may have been kept for their time and be gone."""
    first_seq: int = 0
    """Where its log begins; 0 where it is empty."""
    snapshot_seq: int | None = None
    """Through which Event its newest Snapshot goes; None where it has none."""
    bytes: int | None = None
    """Of memory, about; None where it was not asked for, or the server cannot say."""
    payload_bytes: int | None = None
    """Of inputs, Checkpoints, results and failures over 64 bytes, exactly; None where it was not asked for."""
    takes: tuple[str, ...] = ()
    """Where in the index something of it is takeable: by capability, with the major version where one is asked for, or
    `>AGENT`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one Mission is."""

    mission: str
    group: GroupId
    state: MissionState
    total: int
    verified: int
    failed: int
    cancelled: int
    running: int
    """Slots that run for it now."""
    is_open: bool = False
    """Whether items may still be added."""

    @property
    def ended(self) -> int:
        return self.verified + self.failed + self.cancelled

    @property
    def waiting(self) -> int:
        return max(0, self.total - self.ended - self.running)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One WorkItem that runs now."""

    mission: str
    group: GroupId
    item: str
    worker: str
    attempt: int
    started_ms: int
    progress: Said | None
    """None where it said nothing."""


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """One failed WorkItem, as its Worker's Evidence has it."""

    item: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class ItemFacts:
    """All that the store knows of what one WorkItem waits for; nothing of it is about another Group."""

    now_ms: int
    mission: str
    item: str
    mission_state: MissionState
    group_state: str
    """As of `GroupFacts.state`."""
    state: ItemState
    capability: Capability
    """With the version, where it asks for one."""
    width: int = 1
    resources: Resources = ()
    """What it needs besides slots."""
    waits_for: tuple[tuple[ItemId, ItemState], ...] = ()
    """What of `after` is not verified: as many as are shown."""
    dependencies_left: int = 0
    next_ms: int = 0
    """Until when a not-before or a backoff lasts; 0: none."""
    failures: int = 0
    held: str = ""
    """`POISON`, `CHECKPOINT`, `APPROVAL`, or '' where it is not parked."""
    damage: Damage | None = None
    """What of it stands damaged in the store, where it is parked for that."""
    needs_approval: bool = False
    """Whether a person has to approve its execution, and none has."""
    risk: Risk = Risk.NONE
    lost_runs: int = 0
    """Runs lost with their Worker since its last new Checkpoint."""
    offer: Offer | None = None
    """Where it is offered to some Workers only, or for a time."""
    owner: AgentId | None = None
    start_by_ms: int = 0
    lease_expires_ms: int = 0
    started_ms: int = 0
    runs: int = 0
    """How many runs of it have begun."""
    failure: str = ""
    """Type and text of its last Evidence."""
    blocked: Block | None = None
    budget_ms: int = 0
    """Slot-milliseconds that its Mission may have; 0: no bound."""
    spent_ms: int = 0
    """Those that it has had, of what runs now up to now."""
    forecast: Disclosure | None = None
    """Of its present run, or of the next one of what is accepted."""
    progress: Said | None = None
    """How far its latest run said it is."""
    ahead: int = 0
    """Takeable items of its Group and capability that come before it."""
    paused: tuple[str, ...] = ()
    """The pauses that hold it: `all`, `account:NAME`, `capability:NAME`, `mission:ID`."""
    quarantine_ms: int = 0
    """As of `ServerFacts`, of its partition."""
    workers: tuple[WorkerFacts, ...] = ()
    """The live sessions that offer its capability."""
    kept_out: tuple[AgentId, ...] = ()
    """Agents whose Membership in its Mission was ended (R6)."""
    busy: int = 0
    """Slots of theirs that run something now."""


@dataclass(frozen=True, slots=True)
class StuckFacts:
    """One WorkItem that needs a person, or will."""

    mission: str
    group: GroupId
    item: str
    token: ItemId
    account: str
    capability: Capability
    state: str
    """`failed` (for good), `waiting` (for another attempt) or `parked`."""
    held: str = ""
    """Why it is parked."""
    damage: Damage | None = None
    """What of it stands damaged in the store, where it is parked for that."""
    lost_runs: int = 0
    next_ms: int = 0
    """When it is tried again."""
    since_ms: int = 0
    """Since when it is parked; 0: not known here."""
    digest: str = ""
    """Of its inputs, where they were read: what kills its Workers can be known again."""
    type: str = ""
    """Of its last Evidence, where that was read."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class BlockedFacts:
    """One WorkItem that waits for what somebody decides."""

    mission: str
    item: str
    account: str
    capability: Capability
    owner: AgentId | None
    block: Block


@dataclass(frozen=True, slots=True)
class IncarnationFacts:
    """An incarnation of the store that a person began: which, when, by whom and why."""

    number: int
    at_ms: int
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself and of one store on it; None wherever it cannot or will not say."""

    address: str
    prefix: str
    unreachable: str = ""
    """Why nothing else is known; '' where it answers."""
    product: str | None = None
    version: str | None = None
    role: str | None = None
    is_cluster: bool | None = None
    is_loading: bool | None = None
    eviction: str | None = None
    appends: bool | None = None
    """Whether it keeps an append-only file."""
    fsync: str | None = None
    appends_well: bool | None = None
    """Whether its last writes of that file went well."""
    used_bytes: int | None = None
    limit_bytes: int | None = None
    """0: no limit."""
    node_bytes: int | None = None
    """`stream-node-max-bytes`."""
    skew_ms: float | None = None
    """This machine's clock less the server's."""
    latency_ms: float | None = None
    """Median of some round trips."""
    latency_worst_ms: float | None = None
    library: str = ""
    """The function library of this program."""
    libraries: tuple[str, ...] | None = None
    """Those of any version of this program that the server has."""
    damage: str = ""
    """What of the store could not be read, and not for want of the server; '' where all could."""
    format_wanted: int = 0
    format_version: str | None = None
    """None: there is no store of this prefix yet."""
    partitions: int | None = None
    quarantine_ms: int = 0
    """Until when nothing is accepted or started, or was at the last change of server; NEVER_MS: until a person says so."""
    doubt: str = ""
    """The Agent that found the store gone back in time."""
    incarnations: tuple[IncarnationFacts, ...] = ()
    """Those that people began, newest first."""
    bound_elsewhere: int = 0
    """Partitions that are bound to another server, or to this one before its last restart."""
    workers: tuple[WorkerFacts, ...] = ()
    now_ms: int = 0
    overdue_ms: int = 0
    """How long the earliest due entry has been due; a live Worker carries it out at once."""
    halted: tuple[str, ...] = ()
    """Missions whose Group was halted because its log is damaged."""
    unserved: tuple[Capability, ...] = ()
    """Capabilities with takeable work and no live session that offers them."""
