"""A client, and a Worker by hand beside it that takes one WorkItem at a time: what the SDK's tests stand on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from treadle.coordinator import Client, Job, Mission
from treadle.shared import codec
from treadle.shared.model import AgentId, Capability, Event, Grant, GroupId, Session
from treadle.shared.names import token
from treadle.shared.store import Authority, Endpoint, Fail, Operation, Outcome, Save, Start, Store, Submit, Take, Turn

CAPABILITY = Capability("index")


class HandWorker:
    """A Worker by hand: takes one item at a time and ends it."""

    def __init__(self, store: Store, session: Session) -> None:
        self.store, self.authority, self.session = store, Authority(store), session
        self.numbers = dict.fromkeys(range(store.partitions), 0)

    @classmethod
    async def open(cls, store: Store, *, nonce: str = "n", slots: int = 1) -> HandWorker:
        session, _ = await Authority(store).open_session(
            AgentId("hand"), [CAPABILITY], lease_ttl_ms=10_000, nonce=nonce, slots=slots
        )
        return cls(store, session)

    async def turn(self, group: GroupId, operation: Operation, *, slots: int = 1, ahead: int = 0) -> Outcome:
        partition = self.store.partition_of(group)
        self.numbers[partition] += 1
        turn = Turn(partition, self.numbers[partition], (operation,), slots=slots, ahead=ahead)
        (reply,) = await self.authority.turns(self.session, [turn])
        if isinstance(reply, Exception):
            raise reply
        return reply.outcomes[0]

    async def take(self, where: Mission | Job[Any] | GroupId) -> Grant:
        """Start the next item of a Mission, or of the Mission a job is in."""
        group = group_of(where)
        (grant,) = (await self.turn(group, Take(group, CAPABILITY, 1, 0))).grants
        assert grant.lease is not None
        return grant

    async def accept(self, where: Mission | Job[Any] | GroupId) -> Grant:
        """Accept the next item and do not start it yet."""
        group = group_of(where)
        (grant,) = (await self.turn(group, Take(group, CAPABILITY, 1, 0), slots=0, ahead=1)).grants
        assert grant.lease is None
        return grant

    async def start(self, grant: Grant) -> Outcome:
        return await self.turn(grant.group, Start(grant.group, grant.item, grant.ownership_epoch, grant.capability))

    async def has_nothing(self, where: Mission | Job[Any] | GroupId) -> bool:
        """Whether a take is given nothing."""
        group = group_of(where)
        return not (await self.turn(group, Take(group, CAPABILITY, 1, 0))).grants

    async def log(self, where: Mission | Job[Any] | GroupId) -> list[Event]:
        return await self.store.read_log(group_of(where), count=100_000)

    async def save(self, grant: Grant, state: Any) -> Outcome:
        assert grant.lease is not None
        raw = codec.pack(state, field="state", limit=codec.CHECKPOINT_MAX)
        number = grant.checkpoint_number + 1
        save = Save(
            grant.group, grant.item, grant.ownership_epoch, grant.lease.lease_id, number, codec.digest(raw), raw
        )
        return await self.turn(grant.group, save)

    async def end(self, grant: Grant, result: Any = None, *, fails: str = "", retryable: bool = False) -> Outcome:
        """End a run: with its result, or as failed."""
        assert grant.lease is not None
        body = {"type": "ValueError", "text": fails, "place": "handlers.py:7"} if fails else result
        raw = codec.pack(body, field="result", limit=codec.RESULT_MAX)
        fields = (grant.group, grant.item, grant.ownership_epoch, grant.lease.lease_id, codec.digest(raw), raw)
        ending = Fail(*fields, retryable=retryable) if fails else Submit(*fields)
        return await self.turn(grant.group, ending)

    async def tick(self, where: Mission | Job[Any] | GroupId) -> None:
        """Carry out what is due in the partition of a Mission."""
        await self.authority.tick(self.store.partition_of(group_of(where)))

    async def end_next(self, where: Mission | Job[Any] | GroupId, *, fails: bool = False) -> None:
        """Take the next item and end it."""
        grant = await self.take(where)
        outcome = await self.end(grant, {"done": grant.item}, fails="no such file" if fails else "")
        assert outcome.code == "OK"


def group_of(where: Mission | Job[Any] | GroupId) -> GroupId:
    if isinstance(where, Job):
        return GroupId(token(where.mission, field="mission"))
    return where.group if isinstance(where, Mission) else where


async def connected(endpoint: str | Endpoint) -> AsyncGenerator[tuple[Client, HandWorker]]:
    store = await Store.connect(endpoint)
    try:
        async with Client.connect(endpoint, actor="ann") as client:
            yield client, await HandWorker.open(store)
    finally:
        await store.aclose()
