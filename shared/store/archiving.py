"""Ended Missions on their way into an archive: read with plain commands, a page at a time, and recorded once they are there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ..answers import MissionView
from ..archive import BODIES, Header, Scribe
from ..errors import Corrupt, Refused
from ..lifecycle import TERMINAL_MISSIONS
from ..model import GroupId, ItemId
from . import keys, log, views
from .snapshots import newest
from .store import Store

PAGE = 500


_NOT_FIELDS = {*BODIES, keys.checkpoint_name(0), keys.checkpoint_name(1)}
"""Of an item's hash: written as bodies, or left out."""


async def unarchived(store: Store, *, most: int) -> list[MissionView]:
    """Missions that have ended and have no archive yet, the oldest first."""
    found = await store.missions(most=most)
    return [view for view in found if view.state in TERMINAL_MISSIONS and not view.archive]


async def lines(store: Store, group: GroupId, scribe: Scribe) -> AsyncGenerator[bytes]:
    """The lines of an ended Mission's archive, the end last.

    Refused where the Mission is not there (GROUP_NOT_FOUND), or has not ended, or is still being withdrawn
    (INVALID_STATE_TRANSITION); Corrupt where its log is not whole.
    """
    base = store.base(store.partition_of(group))
    header, record = await store.run(_opened, base, group)
    yield scribe.header(header)
    yield scribe.mission(record)
    if header.first > 1 and (snapshot := await newest(store, group)) is not None:
        for line in scribe.snapshot(snapshot.pack()):
            yield line
    after = header.first - 1
    while after < header.through:
        entries = await store.run(_log, base, group, after, min(PAGE, header.through - after))
        for entry_id, fields in entries:
            if entry_id != b"%d-0" % (after + 1):
                break
            after += 1
            yield scribe.event(entry_id, fields)
        else:
            if entries:
                continue
        raise Corrupt(
            f"log of group {group}: sequence {after + 1} of {header.through} is missing; it cannot be archived"
        )
    names = await store.run(views.item_ids, base, group)
    for start in range(0, len(names), PAGE):
        for item, fields in await store.run(_items, base, group, names[start : start + PAGE]):
            bodies = {name: raw for name in BODIES if (raw := await _body(store, base, group, item, fields, name))}
            kept = {name: value for name, value in fields.items() if name.decode() not in _NOT_FIELDS}
            for line in scribe.item(item, kept, bodies):
                yield line
    yield scribe.end()


async def record(store: Store, group: GroupId, *, seq: int, digest: str, actor: str) -> bool:
    """Records an archive of a Mission up to `seq`; False where just this one was recorded before.

    Refused (REVISION_CONFLICT) where the Group has gone on since.
    """
    answer = await store.call("archived", store.partition_of(group), (group, seq, digest, actor))
    return answer[1] == b"done"


async def require(store: Store, required: bool) -> bool:
    """Sets whether ended Missions stay until they are archived, in every partition; False where that was so."""
    calls = [("require_archive", partition, (store.replid, int(required))) for partition in range(store.partitions)]
    return any(reply[1] == b"1" for reply in await store.call_all(calls))


async def _opened(client: Any, base: str, group: GroupId) -> tuple[Header, dict[bytes, bytes]]:
    async with client.pipeline(transaction=False) as pipe:
        pipe.hgetall(keys.mission(base, group))
        pipe.hget(keys.seqs(base), group)
        pipe.xrange(keys.log(base, group), count=1)
        pipe.zscore(keys.due(base), f"z {group} 0")
        pipe.hget(keys.groups(base), group)
        raw, seq, first, expiry, listed = await pipe.execute()
    if b"state" not in raw or seq is None:
        raise Refused(f"group {group}: there is no Mission of it, or its time was over", code="GROUP_NOT_FOUND")
    if expiry is None:
        state = "still withdrawing what is left of it" if b"ended" in raw else raw[b"state"].decode()
        raise Refused(f"group {group}: its Mission is {state}; only one that has ended can be archived")
    if not first:
        raise Corrupt(
            f"log of group {group}: it is empty, but the store counts {int(seq)} Events; it cannot be archived"
        )
    view = views.mission_of(group, 0, raw, seq)
    oldest = int(first[0][0].partition(b"-")[0])
    return Header(view.mission, group, log.incarnation_of(listed), view.created_ms, oldest, int(seq)), raw


async def _log(
    client: Any, base: str, group: GroupId, after: int, count: int
) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]]
    found = await client.xrange(keys.log(base, group), min=f"{after + 1}-0", max="+", count=count)
    return found


async def _items(
    client: Any, base: str, group: GroupId, names: Sequence[ItemId]
) -> list[tuple[ItemId, dict[bytes, bytes]]]:
    async with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(keys.item(base, group, name))
        found = await pipe.execute()
    return [(name, raw) for name, raw in zip(names, found, strict=True) if raw]


async def _body(
    store: Store, base: str, group: GroupId, item: ItemId, fields: dict[bytes, bytes], name: str
) -> bytes | None:
    """One body at a time where it is long: a page of them could be gigabytes."""
    if (short := fields.get(name.encode())) is not None or f"{name}x".encode() not in fields:
        return short
    found: bytes | None = await store.run(_long_body, keys.body(base, group, item, name))
    return found


async def _long_body(client: Any, key: str) -> bytes | None:
    found: bytes | None = await client.get(key)
    return found
