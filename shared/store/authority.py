"""The Group Authority as a Worker meets it: one typed method per transaction (design.md 3.3)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import Corrupt, Stale, StoreChanged, TreadleError
from ..model import AgentId, Capability, DirectoryEntry, Event, Grant, GroupId, ItemId, LeaseId, NodeUsage, Session
from ..names import shown
from ..reasons import MARK, Question
from ..resources import Resources, capacity
from . import keys, log, views
from .connection import BLOCK_MARGIN_S, Call, Link, SyncLink
from .operations import Turn
from .replies import Bell, Envelope, TurnReply, parse_entries, parse_grant, parse_turn, wake_token
from .snapshots import LOG_KEEP, carry_out, parse_chores
from .store import FencedCall, Store
from .timetable import fire_due, parse_due

_log = logging.getLogger("treadle.store")
TICK_MAX = 256
RENEW_MAX = 256
TAIL_MAX = 1000


@dataclass(frozen=True, slots=True)
class Look:
    """What changed in a partition's directory. `full`: forget what was known before."""

    envelope: Envelope
    full: bool
    version: int
    entries: tuple[DirectoryEntry, ...]
    nodes: tuple[NodeUsage, ...] = ()
    """Accounts and classes whose service changed; of a full one all that had any."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lease to renew."""

    partition: int
    group: GroupId
    item: ItemId
    epoch: int
    lease: LeaseId


@dataclass(frozen=True, slots=True)
class Tail:
    """What a member may read of a Group's log."""

    start: int
    """The sequence its Membership begins at: what is before does not concern it."""
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Wake:
    """What woke a Worker: a token (capability, Group, hop), a doorbell, or somebody's question; else it is only to look."""

    partition: int
    token: str | None
    bell: Bell | None
    question: Question | None = None


def directed_to(agent: AgentId) -> Capability:
    """The name under which what is offered to an Agent by name stands in the index and the directory."""
    return Capability(f">{agent}")


def capability_set(capabilities: Sequence[Capability]) -> str:
    """The name of a set of capabilities: the same for every session that registers the same ones."""
    return hashlib.sha256(",".join(sorted(capabilities)).encode()).hexdigest()[:16]


class Authority:
    """A Worker's door to the store, for one session at a time."""

    def __init__(self, store: Store, *, log_keep: int = LOG_KEEP) -> None:
        """`log_keep`: how many Events below a Snapshot a log keeps."""
        self.store = store
        self._log_keep = log_keep
        self._wake_link: Link | None = None

    async def open_session(
        self,
        agent: AgentId,
        capabilities: Sequence[Capability],
        *,
        lease_ttl_ms: int,
        nonce: str,
        slots: int = 1,
        resources: Resources = (),
        lives: bool = False,
    ) -> tuple[Session, list[Grant]]:
        """Mints the Agent's next Session Epoch and installs it in every partition; only then may anything start.

        `slots`, `resources`: what it has; it gets no item that needs more. `lives`: whether the process that had the older
        session is this one, so that what it ran does not count as lost with its Worker. Gives the session and what the
        older one held, requeued under it. Stale where a newer one was opened meanwhile.
        """
        home = self.store.partition_of(agent)
        replid = self.store.replid
        answer = await self.store.call("open_session", home, (agent, nonce))
        session = Session(agent, int(answer[1]), lease_ttl_ms, tuple(sorted(capabilities)), replid)
        pending = dict.fromkeys(range(self.store.partitions), "-")
        grants: list[Grant] = []
        chosen = capability_set(capabilities)
        terms = (lease_ttl_ms, capacity(slots, resources), int(lives), chosen, ",".join(session.capabilities))
        arguments = (agent, session.epoch, *terms)
        while pending:
            answers = await self.store.call_each(
                [("install_session", partition, (replid, *arguments, after)) for partition, after in pending.items()]
            )
            again: dict[int, str] = {}
            for partition, reply in zip(pending, answers, strict=True):
                if isinstance(reply, TreadleError):
                    raise reply
                more, _, after = reply[1].decode().partition(" ")
                if more == "more":
                    again[partition] = after
                envelope = Envelope.parse(reply[0])
                bodies = iter(reply[3:])
                grants += [
                    parse_grant(line, bodies, partition=partition, session=session, incarnation=envelope.incarnation)
                    for line in reply[2].decode().splitlines()
                ]
            pending = again
        return session, grants

    async def newest_epoch(self, agent: AgentId) -> int:
        """The newest Session Epoch of an Agent, whether or not that session is still open; 0 where it had none for an hour."""
        base = self.store.base(self.store.partition_of(agent))
        record = await self.store.run(lambda client: client.hget(keys.epochs(base), agent))
        return 0 if record is None else int(record.split()[0])

    async def resize(self, session: Session, slots: int) -> None:
        """Gives the session another number of Capacity Slots in every partition; what it owns stays its own."""
        arguments = (session.replid, session.agent, session.epoch, slots)
        calls = [("resize", partition, arguments) for partition in range(self.store.partitions)]
        for reply in await self.store.call_each(calls):
            if isinstance(reply, TreadleError):
                raise reply

    async def close_session(self, session: Session) -> None:
        """Ends the session in every partition; what it still holds is offered to others."""
        pending = list(range(self.store.partitions))
        while pending:
            calls = [("close_session", p, (session.replid, session.agent, session.epoch)) for p in pending]
            again: list[int] = []
            for partition, reply in zip(pending, await self.store.call_each(calls), strict=True):
                if isinstance(reply, Stale | StoreChanged):
                    continue
                if isinstance(reply, TreadleError):
                    raise reply
                if reply[1] == b"more":
                    again.append(partition)
            pending = again

    async def turns(self, session: Session, turns: Sequence[Turn]) -> list[TurnReply | TreadleError]:
        """Carries out one turn per partition, in one pipeline. ReplyLost: repeat the same turns."""
        calls = [("turn", turn.partition, turn.arguments(session)) for turn in turns]
        answers = await self.store.call_each(calls)
        return [
            answer if isinstance(answer, TreadleError) else parse_turn(turn, session, answer)
            for turn, answer in zip(turns, answers, strict=True)
        ]

    async def tick(self, partition: int, *, most: int = TICK_MAX) -> tuple[Envelope, int]:
        """Carries out what is due in a partition, schedules and Snapshots included; how many entries that were."""
        reply = await self.store.call("tick", partition, (most,))
        envelope = Envelope.parse(reply[0])
        for halted in reply[3].decode().split():
            group, _, why = halted.partition("=")
            _log.error(
                "group %s is halted (%s): nothing of it is taken any more; other Groups go on", shown(group), why
            )
        if reply[4]:
            await carry_out(self.store, parse_chores(reply[4]), keep=self._log_keep)
        if reply[2]:
            envelope = await fire_due(self.store, parse_due(reply[2]), envelope)
        return envelope, int(reply[1])

    async def look(self, since: dict[int, int], capabilities: Sequence[Capability]) -> dict[int, Look]:
        """The directory's changes of each partition since the version known of it (0: everything), one page each."""
        partitions = sorted(since)
        calls: list[FencedCall] = [("look", p, (self.store.replid, since[p], 0, *capabilities)) for p in partitions]
        found: dict[int, Look] = {}
        for partition, reply in zip(partitions, await self.store.call_each(calls), strict=True):
            if isinstance(reply, TreadleError):
                raise reply
            found[partition] = await self._pages(partition, reply, capabilities)
        return found

    async def _pages(self, partition: int, reply: list[bytes], capabilities: Sequence[Capability]) -> Look:
        entries: list[DirectoryEntry] = []
        nodes: list[NodeUsage] = []
        full = reply[1].startswith(b"full")
        while True:
            _, more, version = reply[1].split()
            listed, above = parse_entries(reply[2], partition)
            entries += listed
            nodes += above
            if more != b"more":
                return Look(Envelope.parse(reply[0]), full, int(version), tuple(entries), tuple(nodes))
            reply = await self.store.call("look", partition, (int(version), 1, *capabilities))

    async def tail(self, session: Session, group: GroupId, *, after: int, most: int = TAIL_MAX) -> Tail:
        """Events of a Group behind a sequence, as its member may see them: none before its Membership (R6, R8).

        Stale (MEMBERSHIP_STALE) where its Membership was ended. Refused: MEMBERSHIP_REQUIRED where it has none,
        CURSOR_TOO_OLD where the log begins later, at `details["first"]`. Corrupt where an Event is missing.
        """
        arguments = (session.agent, session.epoch, group, after, most)
        reply: list[Any] = await self.store.call("tail", self.store.partition_of(group), arguments)
        start, incarnation, last = map(int, reply[1].split())
        known = max(after, start - 1)
        entries = ((entry, dict(zip(flat[::2], flat[1::2], strict=True))) for entry, flat in reply[2])
        events = log.events_from(group, incarnation, known, entries)
        end = str(last).encode()
        log.check_end(group, known, events, end, end, is_whole=len(events) < most)
        return Tail(start, tuple(events))

    async def read(self, partition: int, wanted: Sequence[tuple[GroupId, ItemId, str]]) -> list[bytes | None]:
        """Bodies of items (`in`, `ck`, `rs`, `fl`), None where there is none; 64 or about 1 MiB a call."""
        found: list[bytes | None] = []
        while len(found) < len(wanted):
            page = wanted[len(found) : len(found) + 64]
            reply = await self.store.call("read", partition, [part for triple in page for part in triple])
            if not 1 <= len(reply) - 1 <= len(page):
                raise Corrupt(f"read of {len(page)} bodies was answered with {len(reply) - 1}: not our library")
            found += [None if raw == b"-" else raw[1:] for raw in reply[1:]]
        return found

    async def wait(self, session: Session, *, tokens: bool, timeout_s: float) -> Wake | None:
        """What rings next for this Worker, on a connection of its own; None at the time-out; Corrupt for what is no ring.

        `tokens` is False while no slot is free, so that a busy Worker does not swallow a token meant for an idle one.
        """
        if self._wake_link is not None and self._wake_link.timeout_s < timeout_s + BLOCK_MARGIN_S:
            await self._wake_link.aclose()
            self._wake_link = None
        if self._wake_link is None:
            self._wake_link = Link(self.store.endpoint, timeout_s=timeout_s + BLOCK_MARGIN_S)
        self._wake_link.expect(session.replid)
        names: dict[str, int] = {}
        chosen = capability_set(session.capabilities)
        for partition in range(self.store.partitions):
            base = self.store.base(partition)
            names[keys.inbox(base, session.agent)] = partition
            if tokens:
                names[keys.wake(base, chosen)] = partition
        found = await self._wake_link.run(lambda client: views.pop(client, list(names), timeout_s))
        if found is None:
            return None
        key, entry = found
        if entry == views.POKE:
            return None
        if entry == views.LOOK:
            return Wake(names[key], None, None)
        if "@inbox:" in key and entry.startswith(MARK):
            return Wake(names[key], None, None, Question.parse(entry, where=key))
        if "@inbox:" in key:
            return Wake(names[key], None, Bell.parse(entry, where=key))
        return Wake(names[key], wake_token(entry, where=key), None)

    async def poke(self, session: Session) -> None:
        """Ends this Worker's own `wait`, so that it waits anew for other things."""
        base = self.store.base(self.store.partition_of(session.agent))
        await self.store.run(views.poke, keys.inbox(base, session.agent))

    async def aclose(self) -> None:
        if self._wake_link is not None:
            await self._wake_link.aclose()


class RenewalDoor:
    """The synchronous door of what must not wait for the event loop: it renews leases, keeps the session alive, and ends it."""

    def __init__(self, store: Store, session: Session) -> None:
        self._store = store
        self._session = session
        self._link = SyncLink(store.endpoint, timeout_s=max(0.25, session.lease_ttl_ms / 4000), replid=session.replid)

    def renew(self, partition: int, leases: Sequence[Held]) -> tuple[Envelope, list[str]]:
        """Renews leases of one partition; a code each, OK or why not. Raises Stale where the session was replaced."""
        session = self._session
        codes: list[str] = []
        while True:
            page = leases[len(codes) : len(codes) + RENEW_MAX]
            arguments: list[str | int] = [session.replid, session.agent, session.epoch, session.lease_ttl_ms]
            for held in page:
                arguments += [held.group, held.item, held.epoch, held.lease]
            reply = self._link.call(("renew", keys.meta(self._store.base(partition)), arguments))
            said = reply[1].decode().split()
            if len(said) != len(page):
                raise Corrupt(f"renew of {len(page)} leases was answered with {len(said)} codes: not our library")
            codes += said
            if len(codes) == len(leases):
                return Envelope.parse(reply[0]), codes

    def close_session(self) -> None:
        """As `Authority.close_session`: what the session holds is offered to others."""
        session = self._session
        arguments = (session.replid, session.agent, session.epoch)
        for partition in range(self._store.partitions):
            call: Call = ("close_session", keys.meta(self._store.base(partition)), arguments)
            with suppress(Stale, StoreChanged):  # others have it already
                while self._link.call(call)[1] == b"more":
                    pass

    def close(self) -> None:
        self._link.close()
