"""One store on one leg, and hands that work at it as Workers do: what every test of this folder stands on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from builders import CAPABILITY, GROUP, a_new_mission
from treadle.shared import codec
from treadle.shared.disclosure import CapacityState, Disclosure
from treadle.shared.errors import TreadleError
from treadle.shared.model import AgentId, Capability, Event, Grant, GroupId, LeaseId, Limits, NewItem, Session
from treadle.shared.progress import Said
from treadle.shared.resources import Resources
from treadle.shared.store import (
    AskYield,
    Authority,
    BeginEffect,
    Block,
    CommitEffect,
    Disclose,
    Endpoint,
    Fail,
    Held,
    Operation,
    Outcome,
    Progress,
    Release,
    RenewalDoor,
    ReserveSlot,
    Save,
    Start,
    Store,
    Submit,
    Take,
    Turn,
    TurnReply,
    Yield,
    keys,
)
from treadle.shared.testing.faults import FaultyEndpoint

Dump = dict[str, tuple[str, Any]]
"""Every key with its type and content; the type of one that expires ends in `, expires`."""

PREFIX = "t"
TTL_MS = 10_000
SHORT_MS = 150
"""Of a lease that is meant to lapse: long enough that a busy machine does what comes before, short enough to wait for."""
FROZEN_MS = 1_800_000_000_000


class FrozenClock:
    """`time.time` of the fakeredis leg: it moves when a test says so."""

    def __init__(self) -> None:
        self.now_ms = FROZEN_MS

    def __call__(self) -> float:
        return self.now_ms / 1000


@dataclass
class World:
    """A store with its authority, a plain client beside them, and the clock of the leg."""

    leg: str
    endpoint: FaultyEndpoint
    store: Store
    authority: Authority
    raw: Any
    clock: FrozenClock | None
    audited: bool = True
    """Whether the store is audited after the test; a test that tampers with it says no."""
    renewed: dict[str, int] = field(default_factory=dict)
    """The expiry of each lease that was renewed: no Event tells it."""

    @property
    def is_real(self) -> bool:
        return self.clock is None

    # --- time ---

    async def pass_ms(self, span_ms: int) -> None:
        """Let the store's time pass by at least `span_ms`."""
        if self.clock is not None:
            self.clock.now_ms += span_ms
            return
        end_ms = await self.store.now_ms() + span_ms
        await self.eventually(lambda: self._is_past(end_ms), f"{span_ms} ms of the store's time", span_ms / 1000 + 5)

    async def _is_past(self, at_ms: int) -> bool:
        return await self.store.now_ms() >= at_ms

    @staticmethod
    async def eventually(predicate: Callable[[], Awaitable[bool]], description: str, timeout_s: float = 5.0) -> None:
        """Return as soon as `predicate` holds; fail with `description` where it does not in time."""
        with anyio.move_on_after(timeout_s):
            while not await predicate():  # noqa: ASYNC110 - it asks a server, which sets no event here
                await anyio.sleep(0.003)
            return
        pytest.fail(f"not within {timeout_s:g} s: {description}")

    # --- Missions and hands ---

    async def mission(self, mission: str = GROUP, *items: NewItem, **fields: Any) -> GroupId:
        """Create a Mission; its Group."""
        return (await self.store.create(a_new_mission(mission, *items, **fields))).group

    async def hand(
        self,
        agent: str = "worker-1",
        *capabilities: str,
        ttl_ms: int = TTL_MS,
        nonce: str = "nonce",
        authority: Authority | None = None,
        lives: bool = False,
        slots: int = 1,
        resources: Resources = (),
    ) -> Hand:
        """Open a session for an Agent; it offers `index` where no capability is named."""
        offered = [Capability(name) for name in capabilities or (CAPABILITY,)]
        authority = authority or self.authority
        session, grants = await authority.open_session(
            AgentId(agent), offered, lease_ttl_ms=ttl_ms, nonce=nonce, lives=lives, slots=slots, resources=resources
        )
        return Hand(self, authority, session, grants)

    # --- looking ---

    def key(self, name: str, partition: int = 0) -> str:
        """A key of a partition by what follows its tag: `@due`, `m-1:log`."""
        return self.store.base(partition) + name

    async def dump(self) -> Dump:
        return await dump(self.raw)

    async def log(self, group: str = GROUP) -> list[Event]:
        """The whole log; it is Corrupt where a sequence is missing."""
        return await self.store.read_log(GroupId(group), count=100_000)

    async def kinds(self, group: str = GROUP, *, after: int = 0) -> list[str]:
        """The kinds of the Events after a sequence, those of the Mission's creation left out."""
        return [event.kind.value for event in await self.log(group) if event.seq > after]

    async def item(self, group: str = GROUP, item: str = "a") -> dict[str, str]:
        """The item's hash, bodies left out."""
        raw = await self.raw.hgetall(keys.item(self.store.base(self.store.partition_of(group)), GroupId(group), item))
        return {name.decode(): value.decode("latin-1") for name, value in raw.items()}

    async def state(self, group: str = GROUP, item: str = "a") -> str:
        return (await self.item(group, item))["st"]


@dataclass
class Hand:
    """A Worker's hand at the store: one session, its calls counted per partition."""

    world: World
    authority: Authority
    session: Session
    requeued: list[Grant] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    last: Turn | None = None

    async def turn(self, *operations: Operation, partition: int = 0, number: int | None = None, **of: Any) -> TurnReply:
        """One turn; `number` where it is not the lane's next."""
        counted = self.numbers.get(partition, 0) + 1
        self.numbers[partition] = counted if number is None else max(number, counted - 1)
        self.last = Turn(partition, counted if number is None else number, operations, **of)
        return await self.again()

    async def again(self) -> TurnReply:
        """The last turn once more, byte for byte."""
        assert self.last is not None
        (answer,) = await self.authority.turns(self.session, [self.last])
        if isinstance(answer, TreadleError):
            raise answer
        return answer

    async def do(self, operation: Operation, **of: Any) -> Outcome:
        """One operation in a turn of its own."""
        (outcome,) = (await self.turn(operation, **of)).outcomes
        return outcome

    async def take(
        self, group: str = GROUP, most: int = 1, *, slots: int = 64, ahead: int = 0, capability: str = CAPABILITY
    ) -> list[Grant]:
        """What a take gives, started while there are slots."""
        partition = self.world.store.partition_of(group)
        outcome = await self.do(
            a_take(group, most, capability=capability), partition=partition, slots=slots, ahead=ahead
        )
        return list(outcome.grants)

    async def started(self, group: str = GROUP) -> Grant:
        """The first item of a Group, started."""
        (grant,) = await self.take(group)
        assert grant.lease is not None
        return grant

    async def accepted(self, group: str = GROUP) -> Grant:
        """The first item of a Group, accepted and not started."""
        (grant,) = await self.take(group, slots=0, ahead=1)
        assert grant.lease is None
        return grant

    async def restarted(self, grant: Grant) -> Grant:
        """An owned item, started once more."""
        (granted,) = (await self.do(a_start(grant), partition=grant.partition)).grants
        return granted

    async def renew(self, *grants: Grant) -> list[str]:
        """A code for each lease of one partition."""
        door = RenewalDoor(self.authority.store, self.session)
        try:
            leases = [held(grant) for grant in grants]
            if self.world.is_real:  # as in a Worker: off the loop, which may have a proxy to run
                envelope, codes = await anyio.to_thread.run_sync(door.renew, grants[0].partition, leases)
            else:
                envelope, codes = door.renew(grants[0].partition, leases)
        finally:
            door.close()
        for grant, code in zip(grants, codes, strict=True):
            if code == "OK":
                self.world.renewed[lease_of(grant)] = envelope.now_ms + self.session.lease_ttl_ms
        return codes

    async def close(self) -> None:
        await self.authority.close_session(self.session)


def lease_of(grant: Grant) -> LeaseId:
    """The Lease ID of a started item; of one that was not, an ID that nobody ever got."""
    return grant.lease.lease_id if grant.lease else LeaseId("none")


def a_take(
    group: str = GROUP,
    most: int = 1,
    *,
    capability: str = CAPABILITY,
    offset: int = 0,
    limits: Limits | None = None,
    sets: int | None = None,
) -> Take:
    return Take(GroupId(group), Capability(capability), most, offset, limits, sets)


def a_start(grant: Grant, limits: Limits | None = None) -> Start:
    return Start(grant.group, grant.item, grant.ownership_epoch, grant.capability, limits=limits)


SAID = Disclosure(FROZEN_MS, FROZEN_MS + 1000, FROZEN_MS + 5000, 80, CapacityState.AVAILABLE)


def a_disclosure(grant: Grant, said: Disclosure = SAID, *, interval_ms: int = 60_000) -> Disclose:
    """Of its run; of an item that was not started, of the wait for it."""
    lease = grant.lease.lease_id if grant.lease else None
    return Disclose(grant.group, grant.item, grant.ownership_epoch, lease, interval_ms, said)


def a_word(grant: Grant, done: float = 3, total: float = 10, **of: Any) -> Progress:
    """Of progress."""
    said = Said(done, total, **of)
    return Progress(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), said)


def a_save(grant: Grant, number: int = 1, state: bytes = b"state") -> Save:
    digest = codec.digest(state)
    return Save(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), number, digest, state)


def a_yield(grant: Grant, number: int = 1, state: bytes = b"state", *, keep: bool = True) -> Yield:
    digest = codec.digest(state)
    return Yield(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), number, digest, state, keep)


def a_block(grant: Grant, number: int = 1, state: bytes = b"state", *, ttl_ms: int = 60_000, **of: Any) -> Block:
    said = {"reason": "why", "needs": b"needs", "digest": codec.digest(state), **of}
    target = (grant.group, grant.item, grant.ownership_epoch, lease_of(grant), number)
    return Block(*target, state=state, ttl_ms=ttl_ms, **said)


def an_ask(grant: Grant, *, overdue_ms: int = 60_000, reason: str = "fair_share") -> AskYield:
    return AskYield(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), overdue_ms, reason)


def a_reservation(group: str = GROUP, *, lease: str = "a-lease", most: int = 1, ttl_ms: int = 90_000) -> ReserveSlot:
    return ReserveSlot(GroupId(group), Capability(CAPABILITY), LeaseId(lease), most, ttl_ms)


def a_begin(grant: Grant, effect: str = "send-invoice") -> BeginEffect:
    return BeginEffect(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), effect)


def a_commit(grant: Grant, effect: str = "send-invoice", result: bytes = b"sent") -> CommitEffect:
    return CommitEffect(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), effect, result)


def a_release(grant: Grant, reason: str = "stopping") -> Release:
    return Release(grant.group, grant.item, grant.ownership_epoch, reason)


def a_submit(grant: Grant, result: bytes = b"result") -> Submit:
    return Submit(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), codec.digest(result), result)


def a_fail(grant: Grant, evidence: bytes = b"evidence") -> Fail:
    return Fail(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), codec.digest(evidence), evidence)


def held(grant: Grant) -> Held:
    """The lease to renew."""
    return Held(grant.partition, grant.group, grant.item, grant.ownership_epoch, lease_of(grant))


@asynccontextmanager
async def opened(
    leg: str, endpoint: Endpoint, raw: Any, clock: FrozenClock | None, *, partitions: int = 1
) -> AsyncIterator[World]:
    """A world on an endpoint; every connection that it made is closed at the end."""
    faulty = endpoint if isinstance(endpoint, FaultyEndpoint) else FaultyEndpoint(endpoint)
    store = await Store.connect(faulty, prefix=PREFIX, partitions=partitions)
    authority = Authority(store)
    try:
        yield World(leg, faulty, store, authority, raw, clock)
    finally:
        await authority.aclose()
        await store.aclose()
        assert faulty.open == 0, f"{faulty.open} connections were left open"


_READ = {
    b"string": lambda pipe, key: pipe.get(key),
    b"hash": lambda pipe, key: pipe.hgetall(key),
    b"list": lambda pipe, key: pipe.lrange(key, 0, -1),
    b"set": lambda pipe, key: pipe.smembers(key),
    b"zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    b"stream": lambda pipe, key: pipe.xrange(key),
}


async def dump(client: Any) -> Dump:
    """Every key of the database."""
    names = sorted(await client.keys("*"))
    async with client.pipeline(transaction=False) as pipe:
        for key in names:
            pipe.type(key)
            pipe.pttl(key)
        said = await pipe.execute()
        kinds, expiries = said[::2], said[1::2]
        for key, kind in zip(names, kinds, strict=True):
            _READ[kind](pipe, key)
        contents = await pipe.execute()
    return {
        key.decode(): (kind.decode() + (", expires" if expiry >= 0 else ""), content)
        for key, kind, expiry, content in zip(names, kinds, expiries, contents, strict=True)
    }


def differences(before: Dump, after: Dump, *, but_for: Sequence[str] = ()) -> list[str]:
    """The keys that differ, by what follows their tag; `but_for` are those that may, as patterns."""
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    names = [key.partition("}:")[2] for key in changed]
    return [name for name in names if not any(re.fullmatch(pattern, name) for pattern in but_for)]
