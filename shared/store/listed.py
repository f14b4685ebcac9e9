"""What a partition lists of a Group - indexes, due entries, held and parked items - against the items themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from ..model import GroupId, ItemId, ItemState
from ..versions import shelf
from . import keys, views
from .differences import Difference

PAGE = 2_000

_FIELDS: tuple[str, ...] = ("st", "cap", "key", "own", "nb", "hold", "rel", "dep", "out", "to", "ox", "ya", "rsv")
_TIMERS = {ItemState.ACTIVE: "l", ItemState.QUEUED: "s", ItemState.BLOCKED: "b"}


async def listed(client: Any, base: str, group: GroupId, ids: Sequence[ItemId], halted: str) -> list[Difference]:
    """The indexes, due entries and held items of a Group against its items; of a halted one these are set aside."""
    if halted:
        return []
    raw_state, raw_caps = await client.hmget(keys.mission(base, group), "state", "caps")
    is_active = raw_state in (b"active", b"loading")
    expected: dict[str, dict[str, bool]] = {}
    dependents: dict[ItemId, int] = {}
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        for item, fields in zip(page, await views.fields_of(client, base, group, page, _FIELDS), strict=True):
            if fields["out"]:
                dependents[item] = int(fields["out"])
            for name, member in _expected(group, item, fields, is_active=is_active):
                # Whether an offer for a time is still listed is up to the next tick.
                expected.setdefault(name, {})[member] = not (fields["ox"] and name.startswith("@take:"))
    if is_active:
        for capability in (raw_caps or b"").decode().split():
            expected.setdefault(f"@take:{shelf(capability)}", {})
    found = [difference async for difference in _strays_and_gaps(client, base, group, expected)]
    return found + [difference async for difference in _lost_dependents(client, base, group, dependents)]


def _expected(group: GroupId, item: ItemId, fields: dict[str, str], *, is_active: bool) -> Iterator[tuple[str, str]]:
    """Where one item must stand in its partition: the key's name and the member."""
    state = ItemState(fields["st"])
    if state is ItemState.OFFERED and is_active:
        asked = [f">{agent}" for agent in fields["to"].partition(":")[2].split(",") if agent]
        for name in asked if fields["to"] else [shelf(fields["cap"])]:
            yield f"@take:{name}", f"{group} {fields['key']}"
    if fields["rsv"] and state is ItemState.OFFERED:
        yield "@due", f"h {group} {item}"
    if fields["own"] and state in _TIMERS:
        yield f"@held:{fields['own']}", f"{group} {item}"
        yield "@due", f"{_TIMERS[state]} {group} {item}"
    if fields["ya"] not in ("", "0"):
        yield "@due", f"v {group} {item}"
    if fields["nb"] and is_active and fields["dep"] in ("", "0"):
        yield "@due", f"n {group} {item}"
    if fields["rel"]:
        yield "@due", f"r {group} {item}"
    if state is ItemState.BLOCKED:
        yield "@blocked", f"{group} {item}"
    if fields["hold"]:
        yield "@parked", f"{group} {item}"


async def _lost_dependents(
    client: Any, base: str, group: GroupId, dependents: dict[ItemId, int]
) -> AsyncIterator[Difference]:
    items = list(dependents)
    for start in range(0, len(items), PAGE):
        page = items[start : start + PAGE]
        async with client.pipeline(transaction=False) as pipe:
            for item in page:
                pipe.llen(keys.dependents(base, group, item))
            lengths = await pipe.execute(raise_on_error=False)
        for item, length in zip(page, lengths, strict=True):
            if length != dependents[item]:
                yield Difference(item, "dependents", str(dependents[item]), str(length)[:100])


async def _strays_and_gaps(
    client: Any, base: str, group: GroupId, expected: dict[str, dict[str, bool]]
) -> AsyncIterator[Difference]:
    for name, members in sorted(expected.items()):
        listed = sorted(member for member, is_sure in members.items() if is_sure)
        for start in range(0, len(listed), PAGE):
            page = listed[start : start + PAGE]
            async with client.pipeline(transaction=False) as pipe:
                for member in page:
                    pipe.zscore(base + name, member)
                scores = await pipe.execute()
            for member, score in zip(page, scores, strict=True):
                if score is None:
                    yield Difference(name, member, "an entry", "none")
        if name.startswith(("@take:", "@held:")):
            for raw in await client.zrangebylex(base + name, f"[{group} ", f"({group}!"):
                if raw.decode() not in members:
                    yield Difference(name, raw.decode(), "no entry", "an entry")
