"""What the store answers those who submit and ask: receipts, and Missions and WorkItems as they are now. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .damage import Damage
from .disclosure import Disclosure
from .model import AgentId, Capability, GroupId, ItemId, ItemState, MissionId, MissionState, Urgency
from .progress import Said
from .resources import Resources


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submission was answered, the same each time it is repeated."""

    mission: MissionId
    group: GroupId
    partition: int
    created_ms: int
    items: int
    repeated: bool
    no_worker: tuple[Capability, ...]
    """Capabilities that no live Worker offers now: their items wait with reason NO_WORKER."""
    unschedulable: Mapping[Capability, int] = field(default_factory=dict[Capability, int])
    """Capabilities of items that are wider than every live Worker that offers them, with the slots of the largest."""
    lacking: Mapping[Capability, Mapping[str, int]] = field(default_factory=dict[Capability, Mapping[str, int]])
    """Capabilities of items that need more resources than any live Worker that offers them has, with the most of each."""


@dataclass(frozen=True, slots=True)
class Added:
    """What an addition to an open Mission was answered."""

    created: int
    repeated: int
    """Items that were there already, with the same content."""
    no_worker: tuple[Capability, ...]
    unschedulable: Mapping[Capability, int]
    lacking: Mapping[Capability, Mapping[str, int]] = field(default_factory=dict[Capability, Mapping[str, int]])


@dataclass(frozen=True, slots=True)
class Ended:
    """What the end of a Membership came to; the Agent is kept out whether or not it was a member, or had been before."""

    was_member: bool
    items: int  # lost at once; more than 64 go one tick after the other
    repeated: bool


@dataclass(frozen=True, slots=True)
class MissionView:
    """A Mission as the store has it now."""

    mission: MissionId
    group: GroupId
    partition: int
    state: MissionState
    objective: str
    owner: str
    account: str
    weight: float
    created_ms: int
    ended_ms: int
    deadline_ms: int
    total: int
    verified: int
    failed: int
    cancelled: int = 0
    last_seq: int = 0
    priority_class: str = "standard"
    is_open: bool = False
    """Whether it grows until it is sealed."""
    is_expired: bool = False
    """Whether it was kept for its time after its end and is gone: this is its tombstone."""
    archive: str = ""
    """The SHA-256 of its newest archive, '' where it has none."""
    halted: str = ""
    """Why its Group was halted (LOG_FOREIGN, LOG_REBORN), '' where it was not: nothing of it moves until it is repaired."""
    budget_ms: int = 0
    """Slot-milliseconds after which nothing more of it starts; 0: no bound."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer that asks some Workers only, or holds for a time only (R24)."""

    mode: str
    """`named`, `preferred`, or `all`."""
    asked: tuple[AgentId, ...]
    """Those who are still asked: who declined is not. Of `all`: nobody by name."""
    expires_ms: int
    """0: it holds until it is accepted."""
    is_over: bool
    """Whether it cannot be accepted any more: its time is over by the store's clock, or all have declined."""


@dataclass(frozen=True, slots=True)
class Block:
    """Why a WorkItem cannot go on, as its Worker said, and how long its ownership is kept for the answer."""

    reason: str
    needs: object
    """What it needs, as its handler said it; None where it said nothing."""
    since_ms: int
    until_ms: int
    """When its blocked lease ends; 0 where it belongs to nobody: unblocked, it is offered to everybody."""


@dataclass(frozen=True, slots=True)
class ItemView:
    """A WorkItem as the store has it now."""

    mission: MissionId
    item: ItemId
    state: ItemState
    capability: Capability
    owner: AgentId | None
    ownership_epoch: int
    lease_number: int
    dependencies_left: int
    failure: bytes = b""
    result: bytes | None = field(default=None, repr=False)
    width: int = 1
    urgency: Urgency = Urgency.NORMAL
    deadline_ms: int = 0
    after: tuple[ItemId, ...] = ()
    failures: int = 0
    """Attempts that failed so far and are to be made again."""
    lost_runs: int = 0
    """Runs lost with their Worker since the last new Checkpoint."""
    next_ms: int = 0
    """When a not-before or the wait before another attempt ends; 0 where it waits for no time."""
    held: str = ""
    """Why it is parked ('POISON'), '' where it is not."""
    damage: Damage | None = None
    """What of it stands damaged in the store, where it is parked for that."""
    blocked: Block | None = None
    offer: Offer | None = None
    """Where it is offered to some Workers only, or for a time."""
    version: str = ""
    """The version of its capability that it asks for; '': any."""
    forecast: Disclosure | None = None
    """When its owner expects it to start and to end; None where nothing is disclosed of its present run."""
    resources: Resources = ()
    """What it needs besides slots while it runs."""
    progress: Said | None = None
    """How far its latest run said it is; None where that said nothing."""

    @property
    def has_ended(self) -> bool:
        """Whether it is in a terminal state and will not be tried again."""
        ended = (ItemState.VERIFIED, ItemState.CANCELLED, ItemState.FAILED)
        return self.state in ended and not (self.state is ItemState.FAILED and self.next_ms)
