"""What a Worker's `turn` carries: the typed face of the operations in `lua/`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from .. import codec
from ..disclosure import Disclosure
from ..model import (
    Capability,
    Grant,
    GroupId,
    ItemId,
    LeaseId,
    Limits,
    Session,
)
from ..progress import Said
from ..resources import Resources, capacity

Arguments = list[str | bytes | int | float]
OPERATIONS_MAX = 64
DECLINE_REASONS = ("capacity", "deadline", "capability", "authorization", "dependency", "budget", "other")
"""Why an offer is declined (R25)."""
TURN_BYTES_MAX = 1 << 20
"""Bytes of payload in one turn; one larger operation travels alone."""


@dataclass(frozen=True, slots=True)
class Take:
    """Accepts up to `most` items of a Group, and starts them while the turn has free slots."""

    group: GroupId
    capability: Capability
    most: int
    offset: int
    """What the Group's offset is lifted to at its first accept after an entry (rule 3); 0 lifts nothing."""
    limits: Limits | None = None
    sets: int | None = None
    """From which value it is set to that, up or down, at any accept: a lag that was kept at a change of weight (rule 7)."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Accepts one item that is offered to this Worker; a `Start` starts it."""

    group: GroupId
    item: ItemId


@dataclass(frozen=True, slots=True)
class Decline:
    """Says that this Worker does not do an item it was asked to do by name, and why: one of `DECLINE_REASONS`."""

    group: GroupId
    item: ItemId
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Reserves an offered item that is too wide for the slots that are free, or lets it go (scheduler.md, rule 8)."""

    group: GroupId
    item: ItemId
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Starts an item that this Worker owns and that is queued."""

    group: GroupId
    item: ItemId
    epoch: int
    capability: Capability
    width: int = 1
    """The slots it will fill; the store knows it by itself."""
    limits: Limits | None = None
    """The slots that its Group and account may use."""
    resources: Resources = ()
    """What it will fill besides."""

    @classmethod
    def of(cls, grant: Grant, limits: Limits | None) -> Start:
        """Of what was granted."""
        target = (grant.group, grant.item, grant.ownership_epoch, grant.capability, grant.width)
        return cls(*target, limits, grant.resources)


@dataclass(frozen=True, slots=True)
class Disclose:
    """Says when an owned item is expected to start and to end; refused less than `interval_ms` after the last time."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId | None
    """None of what is accepted and not started."""
    interval_ms: int
    said: Disclosure


@dataclass(frozen=True, slots=True)
class Progress:
    """Says how far an active item is; a phase or a milestone that is new is an Event too."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    said: Said


@dataclass(frozen=True, slots=True)
class Save:
    """Saves progress number `number` of an active item."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    number: int
    digest: str
    state: bytes


@dataclass(frozen=True, slots=True)
class Yield:
    """Ends the run at a Checkpoint; `keep` keeps the ownership, else the item is offered to everybody."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    number: int
    digest: str
    state: bytes
    keep: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Ends the run because it cannot go on before somebody decided something; the ownership is kept for `ttl_ms`.

    `state` may be empty where a save of this number and digest was asked for before.
    """

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    number: int
    digest: str
    state: bytes
    reason: str
    """A token."""
    needs: bytes
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class BeginEffect:
    """Begins an effect of an active item, or asks what came of it.

    OK: it is new. REPEATED: it was begun, and nobody recorded what came of it. STORED: its result.
    """

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    effect: str
    """The token of its name, behind it `/` and the Ownership Epoch where each ownership does it anew."""


@dataclass(frozen=True, slots=True)
class CommitEffect:
    """Records the result of an effect that was begun; the first one stands, and is the outcome's where it is another."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    effect: str
    result: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Gives an owned item back at its last Checkpoint."""

    group: GroupId
    item: ItemId
    epoch: int
    reason: str
    found: str = ""
    """What of it is damaged, where it is parked for that (`Damage.token`)."""


@dataclass(frozen=True, slots=True)
class AskYield:
    """Records that an active item is asked for its slot: its run gives it up at its next safe point."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    overdue_ms: int
    """After which it is said, once, that no safe point was reached: at most a day."""
    reason: str = "fair_share"
    """A token; it names nobody."""


@dataclass(frozen=True, slots=True)
class ReserveSlot:
    """Notes that a Group waits for the slot of the run under `lease`, which may be of any Group and partition."""

    group: GroupId
    capability: Capability
    lease: LeaseId
    most: int
    """How many slots it may wait for, this one included: 64 at most (scheduler.md rule 9)."""
    ttl_ms: int
    """After which it is over by itself: at most a day."""


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """Says that a Group does not wait for that slot any more."""

    group: GroupId
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Submit:
    """Submits an item's result."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    digest: str
    result: bytes


@dataclass(frozen=True, slots=True)
class Fail:
    """Ends a run as failed, with its Evidence; `retryable` lets the item's contract grant another attempt."""

    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId
    digest: str
    evidence: bytes
    retryable: bool = False


Preemption = AskYield | ReserveSlot | FreeSlot
Effect = BeginEffect | CommitEffect
Operation = (
    Take
    | Accept
    | Decline
    | Hold
    | Start
    | Disclose
    | Progress
    | Save
    | Yield
    | Block
    | Release
    | Submit
    | Fail
    | Preemption
    | Effect
)


def payload_size(operation: Operation) -> int:
    """Bytes of payload this operation carries."""
    match operation:
        case Save() | Yield():
            return len(operation.state)
        case Block():
            return len(operation.state) + len(operation.needs)
        case Submit() | CommitEffect():
            return len(operation.result)
        case Fail():
            return len(operation.evidence)
        case _:
            return 0


def _wire(limits: Limits | None) -> str:
    return limits.wire() if limits else "-"


def _arguments(op: Operation) -> Arguments:
    match op:
        case Take():
            offset = op.offset if op.sets is None else f"{op.sets}={op.offset}"
            return ["take", op.group, op.capability, op.most, offset, _wire(op.limits)]
        case Accept():
            return ["accept", op.group, op.item]
        case Decline():
            return ["decline", op.group, op.item, op.reason]
        case Hold():
            return ["hold", op.group, op.item, "1" if op.keep else "0"]
        case Start():
            return ["start", op.group, op.item, op.epoch, _wire(op.limits)]
        case Disclose():
            said = op.said
            lease = op.lease or "-"
            window: Arguments = [said.start_from_ms, said.start_to_ms, said.end_ms]
            rest: Arguments = [*window, said.confidence, said.capacity_state.value]
            return ["disclose", op.group, op.item, op.epoch, lease, op.interval_ms, *rest]
        case Progress():
            return ["progress", op.group, op.item, op.epoch, op.lease, *op.said.tokens()]
        case Save():
            return ["save", op.group, op.item, op.epoch, op.lease, op.number, op.digest, op.state]
        case Yield():
            keep = "1" if op.keep else "0"
            return ["yield", op.group, op.item, op.epoch, op.lease, op.number, op.digest, op.state, keep]
        case Block():
            checkpoint: Arguments = [op.number, op.digest, op.state]
            return ["block", op.group, op.item, op.epoch, op.lease, *checkpoint, op.reason, op.needs, op.ttl_ms]
        case BeginEffect():
            return ["effect", op.group, op.item, op.epoch, op.lease, op.effect]
        case CommitEffect():
            return ["commit", op.group, op.item, op.epoch, op.lease, op.effect, op.result]
        case Release():
            return ["release", op.group, op.item, op.epoch, op.reason, op.found]
        case AskYield():
            return ["ask_yield", op.group, op.item, op.epoch, op.lease, op.overdue_ms, op.reason]
        case ReserveSlot():
            return ["reserve_slot", op.group, op.capability, op.lease, op.most, op.ttl_ms]
        case FreeSlot():
            return ["free_slot", op.group, op.lease]
        case Submit():
            return ["submit", op.group, op.item, op.epoch, op.lease, op.digest, op.result]
        case Fail():
            retryable = "1" if op.retryable else "0"
            return ["fail", op.group, op.item, op.epoch, op.lease, op.digest, op.evidence, retryable]
        case _:
            assert_never(op)


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of one lane, frozen: it is repeated byte for byte until it is answered (design.md 3.5)."""

    partition: int
    number: int
    operations: tuple[Operation, ...]
    slots: int = 0
    """Total width that may be started."""
    ahead: int = 0
    """How many items more may be accepted without being started."""
    token: str = "-"
    """The wake token that led here, to be handed on where nothing is got."""
    cursors: tuple[tuple[GroupId, int], ...] = ()
    lane: int = 0
    resources: Resources = ()
    """What may be filled besides slots."""

    def arguments(self, session: Session) -> Arguments:
        """The arguments of `turn.lua`."""
        plain: Arguments = [capacity(self.slots, self.resources), self.ahead, self.token, len(self.cursors)]
        for group, seq in self.cursors:
            plain += (group, seq)
        for operation in self.operations:
            plain += _arguments(operation)
        rest = [part if isinstance(part, bytes) else str(part).encode() for part in plain]
        digest = codec.digest(b"\0".join(rest))
        head: Arguments = [session.replid, session.agent, session.epoch, session.lease_ttl_ms, self.partition]
        return [*head, self.lane, self.number, digest, *rest]
