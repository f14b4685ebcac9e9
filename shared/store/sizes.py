"""How many bytes of the server's memory a Group takes, estimated from some of its items. Read with plain commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from ..model import GroupId
from . import keys, views
from .store import Store

SAMPLED = 64
"""Items that are measured of a Group; the others count as much as these."""
PAGE = 2_000
_BODIES = ("in", "ck0", "ck1", "rs", "fl", "nd", "rv", "ef", "out")
_LENGTHS = tuple(f"{name}x" for name in _BODIES if name != "out")
"""The fields that say how long a body in a key of its own is."""


async def sizes(store: Store, groups: Sequence[GroupId]) -> dict[GroupId, int]:
    """Bytes of each Group's keys, an estimate where it has more than `SAMPLED` items; nothing where the server cannot say."""
    found: dict[GroupId, int] = {}
    for group in groups:
        measured = await store.run(_size, store.base(store.partition_of(group)), group)
        if measured is None:
            return {}
        found[group] = measured
    return found


async def _size(client: Any, base: str, group: GroupId) -> int | None:
    order, log = keys.items(base, group), keys.log(base, group)
    whole = [log, keys.mission(base, group), order, keys.jobs(base, group)]
    sample = await views.some_ids(client, base, group, SAMPLED)
    of_items = [key for item in sample for key in (keys.item(base, group, item), *_bodies(base, group, item))]
    try:
        async with client.pipeline(transaction=False) as pipe:
            for key in (*whole, *of_items):
                pipe.memory_usage(key)
            pipe.llen(order)
            pipe.zcard(keys.jobs(base, group))
            *measured, listed, grown = await pipe.execute()
    except ResponseError:
        return None
    fixed, varied = measured[: len(whole)], measured[len(whole) :]
    per_item = sum(size or 0 for size in varied) / len(sample) if sample else 0
    return sum(size or 0 for size in fixed) + round(per_item * max(int(listed), int(grown)))


def _bodies(base: str, group: GroupId, item: str) -> list[str]:
    return [keys.body(base, group, item, name) for name in _BODIES]


async def payloads(store: Store, groups: Sequence[GroupId]) -> dict[GroupId, int]:
    """Bytes of what stands in each Group's items: inputs, Checkpoints, results, failures and the like, those over 64 bytes."""
    found: dict[GroupId, int] = {}
    for group in groups:
        base, size = store.base(store.partition_of(group)), 0
        ids = await store.run(views.item_ids, base, group)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            for fields in await store.run(views.fields_of, base, group, page, _LENGTHS):
                size += sum(int(length) for length in fields.values() if length.isdigit())
        found[group] = size
    return found
