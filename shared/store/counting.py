"""How many items of an account have not ended in a partition: what is kept of it, against the counters of its Missions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import Refused, Unavailable
from ..model import GroupId
from . import keys, log, views
from .store import Store

ATTEMPTS = 5
COUNTED_MAX = 10_000
"""Missions of one account in one partition that are read at one instant; of more it is not known."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Of one account in one partition, at one instant."""

    account: str
    kept: str
    """As the partition has it, whatever it is; 0 where it has nothing."""
    counted: int


async def unfinished_of(store: Store, group: GroupId) -> Unfinished | None:
    """Of the account of a Group; None where that, or a counter of one of its Missions, cannot be read, or there are too many.

    Unavailable where Missions come and go faster than they are counted.
    """
    base = store.base(store.partition_of(group))
    for _ in range(ATTEMPTS):
        records = await store.run(_records, base)
        if not log.is_record(records.get(group.encode())):
            return None
        account = records[group.encode()].split()[2]
        if not all(log.is_record(record) for record in records.values()):
            return None
        names = sorted(name for name, record in records.items() if record.split()[2] == account)
        if len(names) > COUNTED_MAX or any(views.halted(records[name]) for name in names):
            return None
        found = await store.run(_counts, base, account.decode(), [GroupId(name.decode()) for name in names])
        if found[0] == records.keys():
            return found[1]
    raise Unavailable("Missions come and go faster than they are counted: verify it again at a quieter time")


async def recount(store: Store, group: GroupId) -> None:
    """Puts it right, where it can be counted."""
    for _ in range(ATTEMPTS):
        found = await unfinished_of(store, group)
        if found is None or found.kept == str(found.counted):
            return
        try:
            arguments = (found.account, found.kept, found.counted)
            await store.call("recount", store.partition_of(group), arguments)
            return
        except Refused as refused:
            if refused.code != "REVISION_CONFLICT":
                raise


async def _records(client: Any, base: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = await client.hgetall(keys.groups(base))
    return found


async def _counts(client: Any, base: str, account: str, groups: list[GroupId]) -> tuple[set[bytes], Unfinished | None]:
    """The Groups that there are, and what is counted, at one instant."""
    async with client.pipeline(transaction=True) as pipe:
        pipe.hkeys(keys.groups(base))
        pipe.hget(keys.tally(base), f"q:{account}")
        for group in groups:
            pipe.hmget(keys.mission(base, group), "total", "verified", "failed", "cancelled")
        there, kept, *counts = await pipe.execute(raise_on_error=False)
    try:
        unfinished = sum(int(total) - sum(map(int, ended)) for total, *ended in counts)
    except (TypeError, ValueError):  # one is not what the store wrote: that is said where it is verified itself
        return set(there), None
    return set(there), Unfinished(account, (kept or b"0").decode(), unfinished)
