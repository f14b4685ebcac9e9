"""Repairing a Group that was halted: what it would take, and doing it, each step safe to repeat (S12, faults 40 and 46).

    examine(store, group) -> Plan       what is damaged, and what a repair makes of it
    repair(store, group, ...)           the log is made anew, in the Group's next incarnation, from its items as they stand

While a Group is halted nobody writes to it, so what is read here stands still. Whoever is killed between two steps, or
loses an answer, begins again: what was done is found done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from .. import codec
from ..errors import Refused
from ..model import GroupId, ItemId, ItemState
from ..names import name_of, unknown_mission
from . import keys, log, standing, views
from .counting import recount
from .snapshots import CHUNK_BYTES, digest_of
from .store import Store
from .verifying import Counts, counts_of, inspect, running_of, states_of

UNLISTED, RECALLED = 64, 256
SEQ_MAX = 999_999_999_999
"""As `repair.lua`: an entry above it has the id of somebody's clock."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do with one Group."""

    group: GroupId
    partition: int
    halted: str
    """Why it was halted, '' where it was not."""
    incarnation: int
    """Of the log that ends."""
    through: int
    """The last sequence that the log or the record knew."""
    state: str
    """Of the Mission."""
    items: int
    damaged: tuple[tuple[ItemId, str], ...]
    """Items that nobody could read, `damaged` or `gone`: they are failed by a repair, if that is asked for."""
    takeable: int
    aside: int
    """Due entries that were set aside with the Group."""


async def examine(store: Store, group: GroupId) -> Plan:
    """What a repair of this Group would do; Refused where there is none, or where its Mission itself cannot be read."""
    partition = store.partition_of(group)
    base = store.base(partition)
    record, recorded, mission = await store.run(_read, base, group)
    if record is None:
        raise unknown_mission(group)
    inspected = await inspect(store, group)
    if inspected is None or None in mission:
        raise Refused(
            f"mission {name_of(group)} cannot be repaired: its own record, or the list of its items, is not what the "
            "store wrote; submit its work again under another id",
            code="LOG_FOREIGN",
        )
    state, *_ = (value.decode() for value in mission)
    bad = {item for item, _ in inspected.damaged}
    sound = [item for item in inspected.ids if item not in bad]
    takeable = sum([fields["st"] == ItemState.OFFERED async for _, fields in states_of(store, base, group, sound)])
    aside = [member async for page in _aside(store, base, group) for member in page]
    last = await store.run(_last_entry, base, group)
    return Plan(
        group=group,
        partition=partition,
        halted=views.halted(record),
        incarnation=log.incarnation_of(record),
        through=max(last, int(recorded) if (recorded or b"").isdigit() else 0),
        state=state,
        items=len(inspected.ids),
        damaged=inspected.damaged,
        takeable=takeable,
        aside=len(aside),
    )


async def halt(store: Store, group: GroupId) -> str:
    """Halts a Group whose log a reader found damaged, before it is repaired; gives the reason that it is halted for."""
    answer = await store.call("halt", store.partition_of(group), (group,))
    return answer[1].decode()


async def repair(store: Store, group: GroupId, *, actor: str, reason: str, drop_damaged: bool = False) -> Plan:
    """Repairs a Group that is halted, and gives what is so then. `actor` and `reason` are tokens.

    Refused (LOG_FOREIGN) where items are damaged that may not be dropped; REVISION_CONFLICT where something wrote to the
    log meanwhile: look at it again.
    """
    plan = await examine(store, group)
    base = store.base(plan.partition)
    if plan.halted:
        if plan.damaged and not drop_damaged:
            named = ", ".join(f"{name_of(item)} ({what})" for item, what in plan.damaged[:5])
            raise Refused(
                f"mission {name_of(group)}: {len(plan.damaged)} items cannot be read ({named}); "
                "--drop-damaged fails them, and repairs the rest",
                code="LOG_FOREIGN",
            )
        for item, what in plan.damaged:
            await _drop(store, plan, item, what, actor)
        await _unlist(store, plan)
        await _begin_anew(store, plan, actor, reason)
    async for page in _aside(store, base, group):
        for start in range(0, len(page), RECALLED):
            await store.call("recall", plan.partition, (group, *page[start : start + RECALLED]))
    await recount(store, group)
    return await examine(store, group)


async def _drop(store: Store, plan: Plan, item: ItemId, what: str, actor: str) -> None:
    said = {"type": "DamagedItem", "text": f"it was {what} when its Group was repaired by {name_of(actor)}"}
    evidence = codec.pack(said, field="evidence", limit=codec.EVIDENCE_MAX)
    base = store.base(plan.partition)
    capability = await store.run(_capability, base, plan.group, item)
    await store.call("drop_item", plan.partition, (plan.group, item, capability, codec.digest(evidence), evidence))


async def _unlist(store: Store, plan: Plan) -> None:
    """Takes the Group out of every index: what is there is listed anew, and nothing else is left."""
    base = store.base(plan.partition)
    indexes = [name async for name in _indexes(store, base)]
    for start in range(0, len(indexes), UNLISTED):
        page = indexes[start : start + UNLISTED]
        while (await store.call("unlist", plan.partition, (plan.group, *page)))[1] != b"0":
            pass


async def _begin_anew(store: Store, plan: Plan, actor: str, reason: str) -> None:
    base, group = store.base(plan.partition), plan.group
    counts = await counts_of(store, base, group)
    numbers = (counts.total, counts.verified, counts.failed, counts.cancelled, counts.live)
    running = await running_of(store, base, group, await store.run(views.item_ids, base, group))
    raw = await _snapshot(store, plan, counts)
    chunks = [raw[start : start + CHUNK_BYTES] for start in range(0, len(raw), CHUNK_BYTES)]
    digest = digest_of(raw)
    for number, chunk in enumerate(chunks, 1):
        await store.call("stage", plan.partition, (group, plan.through, digest, number, chunk))
    told = (plan.incarnation, plan.through, digest, *numbers, *running, len(raw), len(chunks))
    await store.call("repair", plan.partition, (group, actor, reason, *told))


async def _snapshot(store: Store, plan: Plan, counts: Counts) -> bytes:
    """The body of the Snapshot that the new log begins with: the Group's state as its keys have it."""
    state = await store.run(standing.state_of, store.base(plan.partition), plan.group)
    state.incarnation, state.through = plan.incarnation + 1, plan.through
    state.total, state.verified = counts.total, counts.verified
    state.failed, state.cancelled = counts.failed, counts.cancelled
    return state.pack()


# --- readings ---


async def _read(client: Any, base: str, group: GroupId) -> tuple[Any, Any, list[Any]]:
    async with client.pipeline(transaction=False) as pipe:
        pipe.hget(keys.groups(base), group)
        pipe.hget(keys.seqs(base), group)
        record, recorded = await pipe.execute()
    try:
        names = ("state", "weight", "account", "class", "keep", "digest")
        return record, recorded, await client.hmget(keys.mission(base, group), *names)
    except ResponseError:  # of another type
        return record, recorded, [None]


async def _last_entry(client: Any, base: str, group: GroupId) -> int:
    """The last sequence in what is there of the log, 0 for none."""
    try:
        entries = await client.xrevrange(keys.log(base, group), max=f"{SEQ_MAX}-0", count=1)
    except ResponseError:
        return 0
    return int(entries[0][0].split(b"-")[0]) if entries else 0


async def _capability(client: Any, base: str, group: GroupId, item: ItemId) -> str:
    """Of an item that nobody could read: by its own hash, else one of its Mission's."""
    try:
        raw = await client.hget(keys.item(base, group, item), "cap")
    except ResponseError:
        raw = None
    known = (await client.hget(keys.mission(base, group), "caps") or b"unknown").split()
    return (raw or known[0]).decode()


async def _aside(store: Store, base: str, group: GroupId) -> AsyncIterator[list[str]]:
    """Pages of the due entries that were set aside with a Group."""

    async def page_of(client: Any, cursor: int) -> tuple[int, list[tuple[bytes, float]]]:
        found: tuple[int, list[tuple[bytes, float]]] = await client.zscan(
            keys.halted(base), cursor, match=f"? {group} *", count=1_000
        )
        return found

    cursor = -1
    while cursor:
        cursor, members = await store.run(page_of, max(0, cursor))
        if members:
            yield [member.decode() for member, _ in members]


async def _indexes(store: Store, base: str) -> AsyncIterator[str]:
    """The names of the partition's indexes of takeable and of held items."""

    async def page_of(client: Any, cursor: int, kind: str) -> tuple[int, list[bytes]]:
        found: tuple[int, list[bytes]] = await client.scan(cursor, match=f"{base}{kind}:*", count=1_000)
        return found

    for kind in ("@take", "@held"):
        cursor = -1
        while cursor:
            cursor, names = await store.run(page_of, max(0, cursor), kind)
            for name in names:
                yield name.decode().removeprefix(base)
