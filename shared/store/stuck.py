"""WorkItems that need a person: failed for good, waiting for another attempt, parked, blocked. Read with plain commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from .. import codec
from ..damage import Damage
from ..facts import ENDED, BlockedFacts, FailureFacts, StuckFacts
from ..model import AgentId, GroupId, ItemId, ItemState
from ..names import name_of
from ..versions import parted
from . import keys, views
from .pictures import evidence
from .store import Store

PAGE = 500


async def failures(store: Store, group: GroupId, *, most: int) -> list[FailureFacts]:
    """The first failed items of a Mission, in its order."""
    found: list[FailureFacts] = []
    base = store.base(store.partition_of(group))
    start = 0
    while len(found) < most and (page := await store.run(_page, base, group, start)):
        start += len(page)
        failed = [item for item, state, *_ in page if state == ItemState.FAILED]
        found += await store.run(_evidence_of, base, group, failed[: most - len(found)])
    return found


async def parked(store: Store, *, most: int = 1000) -> list[StuckFacts]:
    """Parked items, the longest parked first, each with the digest of its inputs."""
    found: list[StuckFacts] = []
    for partition in range(store.partitions):
        found += await store.run(_parked, store.base(partition), most)
    listed: list[StuckFacts] = []
    for one in sorted(found, key=lambda one: (one.since_ms, one.mission, one.item))[:most]:
        inputs = await store.run(_inputs, store.base(store.partition_of(one.group)), one.group, one.token)
        listed.append(replace(one, digest=codec.digest(inputs)))
    return listed


async def blocked(store: Store, *, most: int = 1000) -> list[BlockedFacts]:
    """Blocked items, the longest blocked first, each with what it needs."""
    found: list[BlockedFacts] = []
    for partition in range(store.partitions):
        found += await store.run(_blocked, store.base(partition), most)
    return sorted(found, key=lambda one: (one.block.since_ms, one.mission, one.item))[:most]


async def _blocked(client: Any, base: str, most: int) -> list[BlockedFacts]:
    found: list[BlockedFacts] = []
    for member in await client.zrange(keys.blocked(base), 0, most - 1):
        group, item = (GroupId(part) for part in member.decode().split(" "))
        raw = await client.hgetall(keys.item(base, group, item))
        record = (await client.hget(keys.groups(base), group) or b"- - -").decode().split(" ")
        block = await views.block(client, base, group, ItemId(item), raw)
        if block is not None:
            owner = AgentId(raw[b"own"].decode()) if b"own" in raw else None
            capability, _ = parted(raw[b"cap"].decode())
            found.append(BlockedFacts(name_of(group), name_of(item), name_of(record[2]), capability, owner, block))
    return found


async def _inputs(client: Any, base: str, group: GroupId, item: ItemId) -> bytes:
    """As they are stored: with the item where they are short, else beside it."""
    short: bytes | None = await client.hget(keys.item(base, group, item), "in")
    return short or await views.body(client, base, group, item, "in") or b""


async def stuck(store: Store, *, states: frozenset[str], with_type: bool) -> AsyncIterator[list[StuckFacts]]:
    """Items in these states (`failed`, `waiting`, `parked`) of Missions that have not ended, by pages.

    The type of the failure is read only where asked for: it costs a read an item.
    """
    for partition in range(store.partitions):
        base = store.base(partition)
        for group, account, failed in await store.run(_groups, base):
            if states == {"failed"} and not failed:
                continue
            start = 0
            while page := await store.run(_page, base, group, start):
                start += len(page)
                rows = [row for one in page if (row := _stuck(group, account, one)) is not None and row.state in states]
                if rows and with_type:
                    rows = await store.run(_typed, base, group, rows)
                if rows:
                    yield rows


_FIELDS = ("st", "cap", "nb", "hold", "lp", "bad")
_Row = tuple[ItemId, str, str, int, str, int, str]
"""Item, state, capability, when it is tried again, why it is parked, runs lost, what of it is damaged."""


async def _page(client: Any, base: str, group: GroupId, start: int) -> list[_Row]:
    """A page of a Mission's items: they stand in a list, or, where it is or was open, in a sorted set."""
    listed = await client.lrange(keys.items(base, group), start, start + PAGE - 1)
    listed = listed or await client.zrange(keys.jobs(base, group), start, start + PAGE - 1)
    async with client.pipeline(transaction=False) as pipe:
        for raw in listed:
            pipe.hmget(keys.item(base, group, raw.decode()), *_FIELDS)
        records = await pipe.execute()
    page: list[_Row] = []
    for raw, record in zip(listed, records, strict=True):
        page.append(_row(raw.decode(), record))
    return page


def _row(item: str, fields: Sequence[bytes | None]) -> _Row:
    state, capability, next_ms, held, lost, bad = ((field or b"").decode() for field in fields)
    return ItemId(item), state, capability, int(next_ms or "0"), held, int(lost or "0"), bad


def _stuck(group: GroupId, account: str, row: _Row) -> StuckFacts | None:
    item, state, capability, next_ms, held, lost_runs, bad = row
    if held:
        what = "parked"
    elif state == ItemState.FAILED:
        what = "waiting" if next_ms else "failed"
    else:
        return None
    return StuckFacts(
        mission=name_of(group),
        group=group,
        item=name_of(item),
        token=item,
        account=account,
        capability=parted(capability)[0],
        state=what,
        held=held,
        damage=Damage.parse(bad),
        lost_runs=lost_runs,
        next_ms=next_ms,
    )


async def _groups(client: Any, base: str) -> list[tuple[GroupId, str, int]]:
    """Groups of Missions that have not ended, with their account and how many items have failed for good."""
    records = await client.hgetall(keys.groups(base))
    live = {GroupId(name.decode()): record.decode().split(" ") for name, record in records.items()}
    names = [name for name, record in live.items() if record[0] not in (*ENDED, "loading")]
    found: list[tuple[GroupId, str, int]] = []
    for start in range(0, len(names), PAGE):
        page = names[start : start + PAGE]
        async with client.pipeline(transaction=False) as pipe:
            for name in page:
                pipe.hget(keys.mission(base, name), "failed")
            counts = await pipe.execute()
        found += [(name, name_of(live[name][2]), int(count or b"0")) for name, count in zip(page, counts, strict=True)]
    return sorted(found)


async def _typed(client: Any, base: str, group: GroupId, rows: Sequence[StuckFacts]) -> list[StuckFacts]:
    told = await _evidence_of(client, base, group, [row.token for row in rows])
    return [replace(row, type=one.type, text=one.text) for row, one in zip(rows, told, strict=True)]


async def _evidence_of(client: Any, base: str, group: GroupId, items: Sequence[ItemId]) -> list[FailureFacts]:
    async with client.pipeline(transaction=False) as pipe:
        for item in items:
            pipe.hmget(keys.item(base, group, item), "fl", "flx")
        records = await pipe.execute()
    return [
        await evidence(client, base, group, item, short, long)
        for item, (short, long) in zip(items, records, strict=True)
    ]


async def _parked(client: Any, base: str, most: int) -> list[StuckFacts]:
    listed = await client.zrange(keys.parked(base), 0, most - 1, withscores=True)
    pairs = [(*member.decode().split(" "), int(since)) for member, since in listed]
    async with client.pipeline(transaction=False) as pipe:
        for group, item, _ in pairs:
            pipe.hmget(keys.item(base, GroupId(group), item), *_FIELDS)
            pipe.hget(keys.groups(base), group)
        answers = await pipe.execute()
    found: list[StuckFacts] = []
    for (group, item, since_ms), fields, record in zip(pairs, answers[::2], answers[1::2], strict=True):
        account = name_of((record or b"- - -").decode().split(" ")[2])
        if (one := _stuck(GroupId(group), account, _row(item, fields))) is not None:
            found.append(replace(one, since_ms=since_ms))
    return found
