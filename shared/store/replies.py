"""What comes back from the store, typed: envelopes, outcomes, grants, doorbells, directory entries. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from ..errors import Corrupt
from ..model import (
    INCARNATION,
    AgentId,
    Capability,
    DirectoryEntry,
    Event,
    EventKind,
    Grant,
    GroupId,
    ItemId,
    Lease,
    LeaseId,
    NodeUsage,
    Session,
    Usage,
)
from ..resources import parse_capacity
from ..versions import parted
from .operations import (
    Accept,
    AskYield,
    BeginEffect,
    Block,
    CommitEffect,
    Decline,
    Disclose,
    Fail,
    FreeSlot,
    Hold,
    Progress,
    Release,
    ReserveSlot,
    Save,
    Start,
    Submit,
    Take,
    Turn,
    Yield,
)

_BELL = re.compile(r"(\S+) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18})")
_RUN = re.compile(_BELL.pattern + r"(?: ([0-9]{1,14}))?")
_NODE = "% "
_WAKE_TOKEN = re.compile(r"\S+ \S+ [0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What every reply begins with."""

    now_ms: int
    due_ms: int | None
    """The partition's earliest due time; None for none."""
    version: int
    incarnation: int
    policy: int = 0
    """The version of the policy that was noted in the partition; 0: the default one."""

    @classmethod
    def parse(cls, raw: bytes) -> Envelope:
        now, due, version, incarnation, policy = raw.split()
        return cls(int(now), None if due == b"-" else int(due), int(version), int(incarnation), int(policy))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one operation: the protocol's code, OK, REPEATED (it had been done before), or STORED (of an effect)."""

    code: str
    seq: int | None = None
    grants: tuple[Grant, ...] = ()
    at_ms: int = 0
    """Of a yield: the new start-by deadline. Of a block: when its blocked lease ends. Of a hold: until when. Of a failure:
    when the item is offered again; 0 for never. Of a QUOTA: when the window of its rate ends; 0 where slots were missing.
    Of a run that is asked for its slot: by when it is to give it up. Of a disclosure that came too soon: when it may be
    said again."""
    size: int = 0
    """Of a block: that of its Checkpoint."""
    result: bytes | None = None
    """Of an effect that was recorded before."""

    @property
    def done(self) -> bool:
        return self.code in ("OK", "REPEATED", "STORED")


@dataclass(frozen=True, slots=True)
class Bell:
    """Events first..last of a Group concern this Agent; the last one before that did was `previous`."""

    group: GroupId
    previous: int
    first: int
    last: int
    incarnation: int = INCARNATION
    """Of the Group's log, where it is another than the first."""

    @classmethod
    def parse(cls, text: str, *, where: str) -> Bell:
        """The doorbell of a text; Corrupt, naming where it stood, for anything else."""
        found = _BELL.fullmatch(text)
        if found is None:
            raise Corrupt(f"{where}: {text[:200]!r} is no doorbell (group previous first last)")
        group, previous, first, last = found.groups()
        return cls(GroupId(group), int(previous), int(first), int(last))

    @classmethod
    def of_turn(cls, text: str, *, where: str) -> Bell:
        """The same of a turn's own run of Events, which says the incarnation of a log that was made anew."""
        found = _RUN.fullmatch(text)
        if found is None:
            raise Corrupt(f"{where}: {text[:200]!r} is no run of Events (group previous first last [incarnation])")
        group, previous, first, last, incarnation = found.groups()
        return cls(GroupId(group), int(previous), int(first), int(last), int(incarnation or INCARNATION))


def wake_token(text: str, *, where: str) -> str:
    """A wake token as it is; Corrupt, naming where it stood, for anything else."""
    if _WAKE_TOKEN.fullmatch(text) is None:
        raise Corrupt(f"{where}: {text[:200]!r} is no wake token (capability group hop)")
    return text


@dataclass(frozen=True, slots=True)
class TurnReply:
    """The answer to a turn, operation by operation."""

    envelope: Envelope
    outcomes: tuple[Outcome, ...]
    bells: tuple[Bell, ...]
    entries: tuple[DirectoryEntry, ...]
    nodes: tuple[NodeUsage, ...] = ()
    """The accounts and classes whose service the turn read or changed, as of this answer."""
    at_ms: int = 0
    """When the turn was carried out; `envelope` is as of this answer, which may be that of a later repetition."""


def parse_usage(tokens: Sequence[str]) -> Usage:
    """A node's nine numbers, as `_usage.lua` packs them."""
    used, running, starts, estimate, typical, offset, entry, entry_ms, served = map(int, tokens)
    return Usage(used, running, starts, estimate, typical, offset, entry, entry_ms, served == 1)


def parse_entries(raw: bytes, partition: int) -> tuple[tuple[DirectoryEntry, ...], tuple[NodeUsage, ...]]:
    """The directory lines of a reply (`T.entry`), and those of accounts and classes (`T.node_lines`)."""
    entries: list[DirectoryEntry] = []
    nodes: list[NodeUsage] = []
    for line in raw.decode().splitlines():
        if line.startswith(_NODE):
            _, node, *numbers = line.split(" ")
            nodes.append(NodeUsage(partition, node, parse_usage(numbers)))
            continue
        group, capability, count, head, weight, account, class_, *usage, code = line.split(" ")
        entries.append(
            DirectoryEntry(
                partition=partition,
                group=GroupId(group),
                capability=Capability(capability),
                takeable=int(count),
                head="" if head == "-" else head,
                account=account,
                weight=float(weight),
                priority_class=class_,
                usage=parse_usage(usage),
                code="" if code in ("-", "OK") else code,
            )
        )
    return tuple(entries), tuple(nodes)


def parse_grant(line: str, bodies: Iterator[bytes], *, partition: int, session: Session, incarnation: int) -> Grant:
    """A `+` line (`T.granted`) of a partition's reply, with its two bodies."""
    _, group, item, capability, epoch, start_by, seq, lease, expires, number, width, checkpoint, *rest = line.split(" ")
    after, basis, digest, before, resolution = rest
    name, version = parted(capability)
    slots, resources = parse_capacity(width)
    granted = None
    if lease != "-":
        granted = Lease(
            lease_id=LeaseId(lease),
            group=GroupId(group),
            item=ItemId(item),
            agent=session.agent,
            session_epoch=session.epoch,
            ownership_epoch=int(epoch),
            number=int(number),
            expires_ms=int(expires),
            incarnation=incarnation,
            replid=session.replid,
        )
    return Grant(
        partition=partition,
        group=GroupId(group),
        item=ItemId(item),
        capability=name,
        version=version,
        width=slots,
        resources=resources,
        ownership_epoch=int(epoch),
        start_by_ms=int(start_by),
        seq=int(seq),
        lease=granted,
        checkpoint_number=int(checkpoint),
        after=() if after == "-" else tuple(ItemId(other) for other in after.split(",")),
        inputs=next(bodies),
        contract=next(bodies),
        basis=basis,
        checkpoint_digest="" if digest == "-" else digest,
        checkpoint_before="" if before == "-" else before,
        has_resolution=resolution == "1",
    )


def parse_turn(turn: Turn, session: Session, reply: Sequence[bytes]) -> TurnReply:
    """The typed answer; Corrupt where the lines do not match the operations."""
    envelope = Envelope.parse(reply[0])
    lines = reply[1].decode().split("\n")
    bodies = iter(reply[3:])
    outcomes: list[Outcome] = []
    at = 0
    for operation in turn.operations:
        if at >= len(lines) - 1:
            raise Corrupt(
                f"turn {turn.number} of partition {turn.partition}: {len(turn.operations)} operations, {reply[1]!r}"
            )
        code, number, *moment = lines[at].split(" ")
        at += 1
        if isinstance(operation, Take | Accept | Start) and code == "OK":
            grants = tuple(
                parse_grant(line, bodies, partition=turn.partition, session=session, incarnation=envelope.incarnation)
                for line in lines[at : at + int(number)]
            )
            at += int(number)
            outcomes.append(Outcome(code, None, grants))
        elif code == "STORED":
            at += int(number)
            outcomes.append(Outcome(code, result=next(bodies)[1:]))
        else:
            at_ms, size, *_ = *map(int, moment), 0, 0
            outcomes.append(Outcome(code, int(number) if code == "OK" else None, at_ms=at_ms, size=size))
    bells = tuple(
        Bell.of_turn(line[2:], where=f"turn {turn.number} of partition {turn.partition}") for line in lines[at:-1]
    )
    carried_out_ms = int(lines[-1].removeprefix("= "))
    entries, nodes = parse_entries(reply[2], turn.partition)
    return TurnReply(envelope, tuple(outcomes), bells, entries, nodes, carried_out_ms)


def events_of(turn: Turn, session: Session, reply: TurnReply) -> dict[GroupId, list[Event]]:
    """The Events this turn appended about the caller's own items, just as the log has them, in order, by Group."""
    by = f"{session.agent}@{session.epoch}"
    incarnations = {bell.group: bell.incarnation for bell in reply.bells}
    found: dict[GroupId, list[Event]] = {}

    def note(group: GroupId, item: ItemId, seq: int, kind: EventKind, *data: object, payload: bytes = b"") -> None:
        author = "policy" if kind is EventKind.RESULT_ACCEPTED else by
        incarnation = incarnations.get(group, INCARNATION)
        event = Event(group, incarnation, seq, kind, reply.at_ms, item, author, tuple(map(str, data)), payload)
        found.setdefault(group, []).append(event)

    for op, outcome in zip(turn.operations, reply.outcomes, strict=True):
        if isinstance(op, Take | Accept | Start):
            for grant in outcome.grants:
                seq = grant.seq
                if not isinstance(op, Start):
                    accepted = (grant.ownership_epoch, grant.start_by_ms, grant.basis)
                    note(op.group, grant.item, seq, EventKind.ACCEPTED, *accepted)
                    seq += 1
                if lease := grant.lease:
                    data = (grant.ownership_epoch, lease.lease_id, lease.expires_ms, lease.number)
                    note(op.group, grant.item, seq, EventKind.STARTED, *data)
        elif outcome.seq is not None and not isinstance(op, Hold | ReserveSlot | FreeSlot | BeginEffect | CommitEffect):
            _note_ending(op, session.agent, outcome.seq, outcome, note)
    return {group: sorted(events, key=lambda event: event.seq) for group, events in found.items()}


def _note_ending(
    op: Decline | Disclose | Progress | Save | AskYield | Yield | Block | Release | Submit | Fail,
    agent: AgentId,
    seq: int,
    outcome: Outcome,
    note: Callable[..., None],
) -> None:
    at_ms = outcome.at_ms
    match op:
        case Decline():
            note(op.group, op.item, seq, EventKind.OFFER_DECLINED, agent, op.reason)
        case Disclose():
            said = op.said
            window = (said.start_from_ms, said.start_to_ms, said.end_ms)
            note(
                op.group,
                op.item,
                seq,
                EventKind.SCHEDULE_DISCLOSED,
                op.epoch,
                *window,
                said.confidence,
                said.capacity_state,
            )
        case Progress():
            if seq:  # not every word of progress is an Event
                done, total, phase, milestones, _ = op.said.tokens()
                note(op.group, op.item, seq, EventKind.PROGRESSED, op.epoch, phase, milestones, done, total)
        case Save():
            note(op.group, op.item, seq, EventKind.PROGRESS_SAVED, op.epoch, op.number, op.digest, len(op.state))
        case AskYield():
            note(op.group, op.item, seq, EventKind.PREEMPTION_REQUESTED, op.epoch, op.lease, op.reason)
        case Yield():
            data = (op.epoch, op.number, op.digest, len(op.state), at_ms)
            note(op.group, op.item, seq, EventKind.CHECKPOINTED, *data)
            if not op.keep:
                note(op.group, op.item, seq + 1, EventKind.RELEASED, op.epoch, "yielded")
        case Block():
            blocked = (op.epoch, op.number, op.digest, outcome.size, at_ms, op.reason)
            note(op.group, op.item, seq, EventKind.BLOCKED, *blocked, payload=op.needs)
        case Release():
            note(op.group, op.item, seq, EventKind.RELEASED, op.epoch, op.reason)
        case Submit():
            note(op.group, op.item, seq, EventKind.SUBMITTED, op.epoch, op.digest, len(op.result))
            note(op.group, op.item, seq + 1, EventKind.RESULT_ACCEPTED, op.epoch, "evidence")
        case Fail():
            note(op.group, op.item, seq, EventKind.FAILED, op.epoch, op.digest, at_ms, payload=op.evidence)
        case _:
            assert_never(op)
