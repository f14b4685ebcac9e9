"""Plain commands: views of Missions and items, and what is popped from inboxes or poked into them. Nothing is decided."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import OutOfMemoryError, ResponseError

from .. import codec
from ..answers import Block, ItemView, MissionView, Offer
from ..damage import Damage
from ..disclosure import Disclosure, current
from ..errors import Corrupt
from ..model import AgentId, GroupId, ItemId, ItemState, MissionId, MissionState, SortKey, Urgency
from ..names import name_of
from ..progress import Said, recorded
from ..resources import unpacked
from ..versions import parted
from . import keys

_PAGE = 500
ASKED_MAX = 64
POKE = "poke"
LOOK = "look"
"""An entry of an inbox that says only that there is something to see (`note_policy.lua`)."""


async def now_ms(client: Any) -> int:
    seconds, microseconds = await client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def store_record(client: Any, key: str) -> tuple[str, str, str] | None:
    """Format version, number of partitions and id, as they stand; None where the store is new."""
    version, partitions, id_ = await client.hmget(key, "version", "partitions", "id")
    return (
        None
        if version is None or partitions is None
        else (version.decode(), partitions.decode(), (id_ or b"").decode())
    )


async def bound_replids(client: Any, metas: list[str]) -> list[str | None]:
    """The replid each partition is bound to; None where it is new."""
    async with client.pipeline(transaction=False) as pipe:
        for name in metas:
            pipe.hget(name, "replid")
        found = await pipe.execute()
    return [None if raw is None else raw.decode() for raw in found]


async def unfinished(client: Any, bases: list[str], account: str) -> list[int]:
    """How many items of an account have not ended, by partition."""
    async with client.pipeline(transaction=False) as pipe:
        for base in bases:
            pipe.hget(keys.tally(base), f"q:{account}")
        return [int(raw or 0) for raw in await pipe.execute()]


async def account_of(client: Any, base: str, group: GroupId) -> str:
    """The account of a Group; '' where it is not there."""
    words = (await client.hget(keys.groups(base), group) or b"").decode().split()
    return str(words[2]) if len(words) > 2 else ""


async def pop(client: Any, lists: list[str], timeout_s: float) -> tuple[str, str] | None:
    """The first entry of the first non-empty list: (key, entry); None at the time-out; Corrupt where it is no text."""
    found = await client.blpop(lists, timeout=max(0.01, timeout_s))
    if found is None:
        return None
    key, entry = found[0].decode(), found[1]
    try:
        return key, entry.decode()
    except UnicodeDecodeError:
        raise Corrupt(f"{key}: {entry[:200]!r} is no text, the store wrote no such entry") from None


async def pop_all(client: Any, lists: list[str], timeout_s: float) -> list[str]:
    """The entries of the first non-empty list, as many as one call may bring; none at the time-out."""
    first = await pop(client, lists, timeout_s)
    if first is None:
        return []
    key, entry = first
    rest: list[bytes] = await client.lpop(key, _PAGE) or []
    return [entry, *(raw.decode() for raw in rest)]


async def poke(client: Any, inbox: str) -> None:
    """Rings an inbox with nothing to say; the entry goes by itself where nobody hears it.

    A full server refuses it, and that is no error: who waits there wakes at its time-out.
    """
    async with client.pipeline(transaction=False) as pipe:
        pipe.rpush(inbox, POKE)
        pipe.pexpire(inbox, 60_000)
        with suppress(OutOfMemoryError):
            await pipe.execute()


def halted(record: bytes | None) -> str:
    """Why a Group was halted, '' where it was not."""
    state = (record or b"").split(b" ", 1)[0].decode()
    return state.removeprefix("halted:") if state.startswith("halted:") else ""


def mission_of(
    group: GroupId, partition: int, raw: dict[bytes, bytes], last_seq: bytes | None, record: bytes | None = None
) -> MissionView:
    text = {name.decode(): value.decode() for name, value in raw.items()}
    is_open = text.get("form") == "open" and text["state"] == "active"

    def number(name: str) -> int:
        return int(text.get(name, "0"))

    return MissionView(
        mission=MissionId(name_of(group)),
        group=group,
        partition=partition,
        state=MissionState(text["state"]),
        objective=text.get("objective", ""),
        owner=name_of(text["owner"]),
        account=name_of(text["account"]),
        weight=float(text["weight"]),
        created_ms=number("created"),
        ended_ms=number("ended"),
        deadline_ms=number("deadline"),
        total=number("total"),
        verified=number("verified"),
        failed=number("failed"),
        cancelled=number("cancelled"),
        last_seq=int(last_seq or text.get("seq", "0")),
        priority_class=text.get("class", "standard"),
        is_open=is_open,
        is_expired=text.get("expired") == "1",
        archive=text.get("archive", ""),
        halted=halted(record),
        budget_ms=number("budget"),
    )


def _is_there(raw: dict[bytes, bytes]) -> bool:
    """A Mission that is still being loaded is not there yet for its readers (design.md 3.4)."""
    return raw.get(b"state", b"loading") != b"loading"


async def mission(client: Any, base: str, group: GroupId, partition: int) -> MissionView | None:
    async with client.pipeline(transaction=False) as pipe:
        pipe.hgetall(keys.mission(base, group))
        pipe.hget(keys.seqs(base), group)
        pipe.hget(keys.groups(base), group)
        raw, last_seq, record = await pipe.execute()
    return mission_of(group, partition, raw, last_seq, record) if _is_there(raw) else None


async def missions(client: Any, base: str, partition: int, most: int) -> list[MissionView]:
    records = await client.hgetall(keys.groups(base))
    names = [GroupId(name.decode()) for name in records]
    found: list[MissionView] = []
    for start in range(0, min(len(names), most), _PAGE):
        page = names[start : start + _PAGE]
        async with client.pipeline(transaction=False) as pipe:
            for group in page:
                pipe.hgetall(keys.mission(base, group))
                pipe.hget(keys.seqs(base), group)
            answers = await pipe.execute()
        for i, group in enumerate(page):
            if _is_there(answers[2 * i]):
                found.append(mission_of(group, partition, answers[2 * i], answers[2 * i + 1], records[group.encode()]))
    return found


async def body(client: Any, base: str, group: GroupId, item: ItemId, name: str) -> bytes | None:
    """What stands in a key of its own; None where nothing does, or the key is of another type by now."""
    try:
        found: bytes | None = await client.get(keys.body(base, group, item, name))
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return None
    return found


async def block(client: Any, base: str, group: GroupId, item: ItemId, raw: dict[bytes, bytes]) -> Block | None:
    """Why an item is blocked, by its hash; None where it is not. What cannot be read of its needs is left out."""
    since_ms, _, reason = raw.get(b"br", b"").decode().partition(" ")
    if not since_ms:
        return None
    said = raw.get(b"nd") or (await body(client, base, group, item, "nd") if b"ndx" in raw else None)
    needs = None
    with suppress(Corrupt):
        needs = codec.unpack(said, what="needs") if said else None
    return Block(name_of(reason), needs, int(since_ms), int(raw.get(b"bex", b"0")))


def offer_of(raw: dict[bytes, bytes], now_ms: int) -> Offer | None:
    """The present offer of an item, where it asks some Workers only or holds for a time; None of any other."""
    if raw.get(b"st") != b"offered" or not (b"to" in raw or b"ox" in raw):
        return None
    mode, _, listed = raw.get(b"to", b"all").decode().partition(":")
    asked = tuple(AgentId(agent) for agent in listed.split(",") if agent)
    expires_ms = int(raw.get(b"ox", b"0"))
    is_over = 0 < expires_ms <= now_ms or (mode != "all" and not asked)
    return Offer(mode, asked, expires_ms, is_over)


def forecast_of(raw: dict[bytes, bytes]) -> Disclosure | None:
    """What is disclosed of the present run of an item, or of the next one of what is accepted; what cannot be read is
    left out."""
    state = raw.get(b"st")
    if b"sd" not in raw or state not in (b"queued", b"active"):
        return None
    number = int(raw.get(b"ln", b"0")) + (state == b"queued")
    with suppress(Corrupt):
        return current(raw[b"sd"].decode("utf-8", "replace"), epoch=int(raw.get(b"oe", b"0")), number=number)
    return None


def progress_of(raw: dict[bytes, bytes]) -> Said | None:
    """How far the latest run of an item said it is; what cannot be read is left out."""
    if b"pg" in raw:
        with suppress(Corrupt):
            return recorded(raw[b"pg"].decode("utf-8", "replace"), number=int(raw.get(b"ln", b"0")))
    return None


def damage_of(raw: dict[bytes, bytes]) -> Damage | None:
    """What of a parked item its Worker could not read."""
    return Damage.parse(raw.get(b"bad", b"").decode("utf-8", "replace"))


def _item(
    group: GroupId, item: ItemId, raw: dict[bytes, bytes], result: bytes | None, failure: bytes, now_ms: int
) -> ItemView:
    owner = raw.get(b"own")
    capability, version = parted(raw[b"cap"].decode())
    return ItemView(
        mission=MissionId(name_of(group)),
        item=item,
        state=ItemState(raw[b"st"].decode()),
        capability=capability,
        version=version,
        owner=AgentId(owner.decode()) if owner else None,
        ownership_epoch=int(raw.get(b"oe", b"0")),
        lease_number=int(raw.get(b"ln", b"0")),
        dependencies_left=int(raw.get(b"dep", b"0")),
        failure=failure,
        result=result,
        width=int(raw.get(b"w", b"1")),
        resources=unpacked(raw.get(b"need", b"").decode()),
        urgency=Urgency(raw.get(b"urg", b"normal").decode()),
        deadline_ms=int(raw.get(b"dl", b"0")),
        after=tuple(ItemId(other) for other in raw.get(b"after", b"").decode().split()),
        failures=int(raw.get(b"fc", b"0")),
        lost_runs=int(raw.get(b"lp", b"0")),
        next_ms=int(raw.get(b"nb", b"0")),
        held=raw.get(b"hold", b"").decode(),
        damage=damage_of(raw),
        offer=offer_of(raw, now_ms),
        forecast=forecast_of(raw),
        progress=progress_of(raw),
    )


async def item_ids(client: Any, base: str, group: GroupId) -> list[ItemId]:
    """The items of a Mission in the order in which they were given."""
    raw = await client.lrange(keys.items(base, group), 0, -1) or await client.zrange(keys.jobs(base, group), 0, -1)
    return [ItemId(name.decode()) for name in raw]


async def some_ids(client: Any, base: str, group: GroupId, most: int) -> list[ItemId]:
    """The first of them."""
    raw = await client.lrange(keys.items(base, group), 0, most - 1)
    raw = raw or await client.zrange(keys.jobs(base, group), 0, most - 1)
    return [ItemId(name.decode()) for name in raw]


async def fields_of(
    client: Any, base: str, group: GroupId, page: Sequence[ItemId], names: Sequence[str]
) -> list[dict[str, str]]:
    """Fields of each of these items in one round trip, '' for one that is not there."""
    async with client.pipeline(transaction=False) as pipe:
        for item in page:
            pipe.hmget(keys.item(base, group, item), *names)
        records: list[list[bytes | None]] = await pipe.execute()
    return [dict(zip(names, ((raw or b"").decode() for raw in values), strict=True)) for values in records]


async def items(client: Any, base: str, group: GroupId, bodies: bool) -> list[ItemView]:
    return await some_items(client, base, group, await item_ids(client, base, group), bodies)


async def asked(client: Any, base: str, group: GroupId, agent: AgentId) -> list[ItemView]:
    """The items of a Group that stand in the index under an Agent's name."""
    place = keys.take(base, f">{agent}")
    members = await client.zrangebylex(place, f"[{group} ", f"({group}!", start=0, num=ASKED_MAX)
    ids = [SortKey.parse(member.decode()).item for member in members]
    return await some_items(client, base, group, ids, bodies=False)


async def some_items(client: Any, base: str, group: GroupId, ids: list[ItemId], bodies: bool) -> list[ItemView]:
    """The named items; those that are not there are left out."""
    found: list[ItemView] = []
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        async with client.pipeline(transaction=False) as pipe:
            for item in page:
                pipe.hgetall(keys.item(base, group, item))
            pipe.time()  # whether an offer is over is the store's to say
            *records, (seconds, microseconds) = await pipe.execute()
        at_ms = int(seconds) * 1000 + int(microseconds) // 1000
        for item, raw in zip(page, records, strict=True):
            if not raw:
                continue
            result, failure = raw.get(b"rs"), raw.get(b"fl", b"")
            # One long body at a time: a page of them could be gigabytes.
            if bodies and b"rsx" in raw:
                result = await body(client, base, group, item, "rs")
            if bodies and b"flx" in raw:
                failure = await body(client, base, group, item, "fl") or b""
            view = _item(group, item, raw, result if bodies else None, failure if bodies else b"", at_ms)
            if b"br" in raw:
                view = replace(view, blocked=await block(client, base, group, item, raw))
            found.append(view)
    return found
