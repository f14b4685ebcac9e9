"""One store as a client sees it: its format, its partitions, Missions in, pictures and logs out."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

from ..answers import ItemView, MissionView, Receipt
from ..errors import Misuse, Refused, StoreLost, TreadleError, Unavailable
from ..model import UNBOUNDED, AgentId, Event, GroupId, ItemId, NewMission, Queued
from ..names import unknown_mission
from . import keys, log, views
from .connection import BLOCK_MARGIN_S, Call, Endpoint, Lineage, Link, RedisEndpoint
from .loading import bounds_argument, chunks_of, item_arguments, mission_arguments, who_could

_P = ParamSpec("_P")
_T = TypeVar("_T")

FencedCall = tuple[str, int, Sequence[str | bytes | int | float]]
"""Function, partition, and all its arguments, the replid of its session first."""

LOOK_AGAIN_S = 5.0
"""A waiter looks at the state itself this often, since a doorbell can be lost."""
WATCH_TTL_MS = 60_000


class Store:
    """A connection to one store, for one call at a time: tasks that share it wait for each other's answers."""

    def __init__(self, endpoint: Endpoint, prefix: str, link: Link) -> None:
        self.endpoint = endpoint
        self.prefix = prefix
        self._block_s = max(0.1, link.timeout_s - BLOCK_MARGIN_S)
        self.partitions = 0
        self.link = link
        self._lock = anyio.Lock()
        self._replid = ""
        self.id = ""
        """Of the store as this connection knew it first; '' before that, or where its record has none."""
        self._waiter = f"client.{secrets.token_hex(8)}"
        """The inbox this connection waits at: one for life, since a Mission counts those that watch it."""

    @classmethod
    async def connect(
        cls,
        url: str | Endpoint,
        *,
        prefix: str = "treadle",
        partitions: int | None = None,
        timeout_s: float = 5.0,
        known: str = "",
    ) -> Store:
        """Opens the store, creating its record where it is new.

        `known`: its id, where this process knew it before: StoreLost where it is not there any more.
        Misuse where it has another format version or number of partitions; Unavailable where it cannot be reached.
        """
        endpoint = RedisEndpoint(url) if isinstance(url, str) else url
        if partitions is not None and not 1 <= partitions <= keys.PARTITIONS_MAX:
            raise Misuse(f"TREADLE_PARTITIONS: {partitions}, must be 1 to {keys.PARTITIONS_MAX}")
        store = cls(endpoint, prefix, Link(endpoint, timeout_s=timeout_s))
        store.id = known
        try:
            await store._open(partitions or 0)
        except BaseException:
            await store.aclose()
            raise
        return store

    async def _open(self, partitions: int) -> None:
        self.partitions = partitions
        await self.adopt()

    async def _read_record(self) -> None:
        """Makes the store's record where there is none, so that all who come later count as many partitions as this one.

        It is read by a plain command first: a full server lets that through, and those who finish the work get in. StoreLost
        where the store that was known is not there any more: one that was emptied is not made again by who knew it (S24).
        """
        key = keys.store_record(self.prefix)
        found = await self.link.run(lambda client: views.store_record(client, key))
        self._compare(found)
        if found is None:
            try:
                given = (keys.FORMAT_VERSION, self.partitions, secrets.token_hex(8))
                version, partitions, id_ = (part.decode() for part in await self.link.call(("open_store", key, given)))
                found = version, partitions, id_
            except Refused as refused:  # somebody else made it meanwhile
                said = refused.details
                found = said.get("format", str(keys.FORMAT_VERSION)), said.get("partitions", ""), ""
        version, partitions, self.id = found
        where = f"store {self.endpoint.shown}, prefix {self.prefix!r}"
        if version != str(keys.FORMAT_VERSION):
            raise Misuse(
                f"{where}: it has format version {version}, this program speaks {keys.FORMAT_VERSION}; "
                "use a program of that version, or another TREADLE_PREFIX"
            )
        if self.partitions and partitions != str(self.partitions):
            raise Misuse(
                f"TREADLE_PARTITIONS: {self.partitions}, but {where} was created with {partitions}, which is for "
                "life; leave the setting out, or use another TREADLE_PREFIX"
            )
        self.partitions = int(partitions)

    def _compare(self, found: tuple[str, str, str] | None) -> None:
        if not self.id or (found is not None and found[2] == self.id):
            return
        what = (
            "has no record any more"
            if found is None
            else f"is another one now (id {found[2] or 'none'}, was {self.id})"
        )
        raise StoreLost(
            f"store {self.endpoint.shown}, prefix {self.prefix!r}: it {what}; its server was emptied or its data replaced. "
            "Nothing is made in its place: restore its data (docs/operations.md), or start this program anew to begin an "
            "empty store"
        )

    async def check_there(self) -> None:
        """Raises StoreLost where the store is gone: asked where a reading found nothing, which must never mean that (S24)."""
        key = keys.store_record(self.prefix)
        self._compare(await self.run(views.store_record, key))

    @property
    def replid(self) -> str:
        """The server this store was opened on; every fenced call carries it."""
        return self._replid

    def base(self, partition: int) -> str:
        return keys.base(self.prefix, partition, self.partitions)

    def partition_of(self, token: str) -> int:
        return keys.partition_of(token, self.partitions)

    async def adopt(self) -> Lineage:
        """Binds every partition to the server of the present connection, where it was bound to another (design.md 3.11).

        StoreLost where that server has not the store that was known: it had been emptied, or is another one.
        """
        async with self._lock:
            return await self._adopt()

    async def _adopt(self) -> Lineage:
        self.link.expect(None)
        lineage = await self.link.lineage()
        await self._read_record()
        names = [keys.meta(self.base(p)) for p in range(self.partitions)]
        for _ in range(3):
            bound = await self.link.run(lambda client: views.bound_replids(client, names))
            calls: list[Call] = [
                ("adopt", name, (lineage.replid, lineage.run_id, lineage.replid2, seen or "-"))
                for name, seen in zip(names, bound, strict=True)
                if seen != lineage.replid
            ]
            if not calls:
                self._replid = lineage.replid
                self.link.expect(lineage.replid)
                return lineage
            await self.link.calls(calls)
        raise Unavailable(
            f"store {self.endpoint.shown}: its partitions are being bound to several servers; it is asked again"
        )

    async def call(self, function: str, partition: int, arguments: Sequence[str | bytes | int | float]) -> list[bytes]:
        """Runs one function in a partition, on the server this store was opened on."""
        async with self._lock:
            return await self.link.call((function, keys.meta(self.base(partition)), (self._replid, *arguments)))

    async def call_org(self, function: str, key: str, arguments: Sequence[str | bytes | int | float]) -> list[bytes]:
        """Runs one function on a key of the Organization's own, which belongs to no partition."""
        async with self._lock:
            return await self.link.call((function, key, arguments))

    async def run(
        self, reading: Callable[Concatenate[Any, _P], Awaitable[_T]], *args: _P.args, **named: _P.kwargs
    ) -> _T:
        """Runs one of the readings of `views` and `log` on this connection."""
        async with self._lock:
            return await self.link.run(lambda client: reading(client, *args, **named))

    async def call_each(self, calls: Sequence[FencedCall]) -> list[list[bytes] | TreadleError]:
        """Runs functions in one pipeline; refusals are values."""
        async with self._lock:
            return await self.link.calls([(name, keys.meta(self.base(p)), arguments) for name, p, arguments in calls])

    async def call_all(self, calls: Sequence[FencedCall]) -> list[list[bytes]]:
        """The same; raises what stands for all: a refusal where there is one, since repeating does not help there."""
        answers = await self.call_each(calls)
        errors = [answer for answer in answers if isinstance(answer, TreadleError)]
        for error in sorted(errors, key=lambda error: not isinstance(error, Refused)):
            raise error
        return [answer for answer in answers if not isinstance(answer, TreadleError)]

    async def now_ms(self) -> int:
        """The store's own time, in milliseconds since the Unix epoch."""
        return await self.run(views.now_ms)

    async def unfinished(self, account: str) -> dict[int, int]:
        """By partition, how many items of an account have not ended."""
        bases = [self.base(partition) for partition in range(self.partitions)]
        return dict(enumerate(await self.run(views.unfinished, bases, account)))

    async def account_of(self, group: GroupId) -> str:
        """The account of a Mission; '' where it is not there."""
        return await self.run(views.account_of, self.base(self.partition_of(group)), group)

    async def bounds(self, queued: Queued, group: GroupId, account: str | None = None) -> str:
        """What a submission brings of its bounds; one of an account is judged with what is in other partitions just now."""
        partition = self.partition_of(group)
        if queued.account is None:
            return bounds_argument(queued, 0)
        if account is None:
            account = await self.account_of(group)
        counts = await self.unfinished(account)
        return bounds_argument(queued, sum(counts.values()) - counts[partition])

    async def create(
        self,
        mission: NewMission,
        *,
        queued: Queued = UNBOUNDED,
        loaded: Callable[[int], None] | None = None,
    ) -> Receipt:
        """Creates a Mission of any size, or answers with the first receipt where the same one is there already.

        A large one is loaded in chunks, unseen by everybody until it is sealed; whoever repeats it goes on where the first
        attempt stopped; `loaded` is told how many of its items are there, now and then. Refused (ACTION_ID_COLLISION) where
        that id has other content, and (QUOTA_EXCEEDED) where its items would be more than may be `queued`: then nothing was
        written.
        """
        partition = self.partition_of(mission.group)
        chunks = chunks_of(mission.items)
        form = "load" if len(chunks) > 1 else "open" if mission.open else "whole"
        first = item_arguments(mission.items) if form != "load" else []
        bounds = await self.bounds(queued, mission.group, mission.account)
        answer = await self.call("create", partition, [*mission_arguments(mission, form), bounds, *first])
        created, repeated, state, done = answer[1].decode().split()
        missing, narrow, lacking = who_could(answer[2:])
        if state == "loading":
            there = sum(map(len, chunks[: int(done)]))
            for number in range(int(done), len(chunks)):
                items = item_arguments(chunks[number])
                added = await self.call(
                    "add", partition, (mission.group, number + 1, mission.actor, bounds_argument(UNBOUNDED, 0), *items)
                )
                more, wide, without = who_could(added[2:])
                missing, narrow = tuple(dict.fromkeys((*missing, *more))), narrow | wide
                lacking |= without
                there += len(chunks[number])
                if loaded is not None:
                    loaded(there)
            await self.call("seal", partition, (mission.group, mission.actor))
        return Receipt(
            mission.mission,
            mission.group,
            partition,
            int(created),
            len(mission.items),
            repeated == "1" and state != "loading",
            missing,
            narrow,
            lacking,
        )

    async def mission(self, group: GroupId) -> MissionView | None:
        """The Mission as it is now; None where there is none."""
        partition = self.partition_of(group)
        found = await self.run(views.mission, self.base(partition), group, partition)
        if found is None:
            await self.check_there()
        return found

    async def missions(self, *, most: int = 1000) -> list[MissionView]:
        """Missions of the store, oldest first: all of them up to `most`, else as many, whichever are met first."""
        found: list[MissionView] = []
        for partition in range(self.partitions):
            base = self.base(partition)
            found += await self.run(views.missions, base, partition, most)
        if not found:
            await self.check_there()
        return sorted(found, key=lambda view: (view.created_ms, view.group))[-most:]

    async def items(self, group: GroupId, *, bodies: bool = False) -> list[ItemView]:
        """The Mission's WorkItems in the order they were given; with `bodies`, results and failure Evidence too."""
        base = self.base(self.partition_of(group))
        found = await self.run(views.items, base, group, bodies)
        if not found:
            await self.check_there()
        return found

    async def item(self, group: GroupId, item: ItemId, *, bodies: bool = False) -> ItemView | None:
        """One WorkItem; None where it is not in the store: it never was, or its time is over."""
        base = self.base(self.partition_of(group))
        found = await self.run(views.some_items, base, group, [item], bodies)
        if not found:
            await self.check_there()
        return found[0] if found else None

    async def asked(self, group: GroupId, agent: AgentId) -> list[ItemView]:
        """What a Group offers to an Agent by name now, the most pressing first; 64 at most."""
        return await self.run(views.asked, self.base(self.partition_of(group)), group, agent)

    async def read_log(self, group: GroupId, *, after: int = 0, count: int = 1000) -> list[Event]:
        """Events after a sequence, in order; Corrupt where one is missing."""
        base = self.base(self.partition_of(group))
        found = await self.run(log.read_after, base, group, after, count)
        if not found:
            await self.check_there()
        return found

    async def wait_log(self, group: GroupId, *, after: int, timeout_s: float) -> list[Event]:
        """Events after a sequence as soon as there are some; none at the time-out."""
        base = self.base(self.partition_of(group))
        deadline = anyio.current_time() + timeout_s
        while True:
            left = max(0.0, deadline - anyio.current_time())
            found = await self.run(log.wait_after, base, group, after, min(left, self._block_s))
            if not found:
                await self.check_there()
            if found or left <= self._block_s:
                return found

    async def watch(self, group: GroupId, item: ItemId | None, inbox: str) -> bool:
        """Has an inbox rung at the end of an item, or of the Mission; False where there is nothing to wait for.

        Refused (GROUP_NOT_FOUND) where there is no such Mission, (BACKPRESSURE) where 64 inboxes are to be rung already.
        """
        answer = await self.call("watch", self.partition_of(group), (group, item or "-", inbox, WATCH_TTL_MS))
        return answer[1] == b"waits"

    async def listen(self, inbox: str, *, timeout_s: float) -> list[tuple[GroupId, ItemId | None]]:
        """What has rung an inbox, as soon as something has: ends of items, and of Missions (None); none at the time-out."""
        names = [keys.inbox(self.base(partition), inbox) for partition in range(self.partitions)]
        rung = await self.run(views.pop_all, names, min(timeout_s, self._block_s))
        ends = (entry.split(" ", 1) for entry in rung)
        return [(GroupId(group), None if item == "-" else ItemId(item)) for group, item in ends]

    async def wait_finished(self, group: GroupId, *, timeout_s: float) -> MissionView:
        """The Mission once it has ended, or as it is at the time-out."""
        await self._wait(group, None, timeout_s)
        view = await self.mission(group)
        if view is None:
            raise unknown_mission(group)
        return view

    async def wait_item(self, group: GroupId, item: ItemId, *, timeout_s: float) -> ItemView | None:
        """The item, with its bodies, once it has ended or as it is at the time-out; None where it is not in the store."""
        await self._wait(group, item, timeout_s)
        return await self.item(group, item, bodies=True)

    async def _wait(self, group: GroupId, item: ItemId | None, timeout_s: float) -> None:
        """Returns at an end, which rings this connection's inbox and is looked for anyway, or at the time-out."""
        deadline = anyio.current_time() + timeout_s
        while await self.watch(group, item, self._waiter):
            left = deadline - anyio.current_time()
            if left <= 0:
                return
            await self.listen(self._waiter, timeout_s=min(left, LOOK_AGAIN_S))

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.link.aclose()
