"""Whether a Group's log, its items and what its partition lists of it say the same: the reading behind `treadle verify`.

    verify(store, group) -> Verified      every difference with where it is, what was expected and what is there

The log is folded from its beginning, or from the newest Snapshot where it was trimmed, and compared with the items' own
keys; these with the indexes, the due entries and the lists of what Agents hold. A Group that moves meanwhile is read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import TreadleError, Unavailable
from ..model import STARTS_EPOCH_MS, Event, GroupId, ItemId, ItemState, MissionState, Usage
from ..names import name_of, unknown_mission
from ..projection import Projection
from . import keys, listed, log, views
from .counting import unfinished_of
from .differences import Difference, differences
from .replies import parse_usage
from .snapshots import newest
from .standing import state_of
from .store import Store

PAGE = 2_000
_RECORD = "record"
"""What differs where something cannot be read at all."""
_GROWN = ("open", "sealed")
INSPECTED = 256
ATTEMPTS = 5
SHOWN_MAX = 1_000
"""Differences gathered of one Group; beyond that it is said that there are more."""
Progress = Callable[[int, int], None]
"""Told how many Events of how many were folded."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of verifying one Group."""

    group: GroupId
    events: int
    """Folded, or covered by the Snapshot."""
    items: int
    halted: str
    differences: tuple[Difference, ...]
    quarantined: tuple[Event, ...] = ()
    """The first SHOWN_MAX Events of its log, or payloads of them, that cannot be read, and on which no state hangs."""
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class Inspected:
    """The items of a Group as the store's own reader finds them."""

    ids: tuple[ItemId, ...]
    damaged: tuple[tuple[ItemId, str], ...]
    """Those that are not what the store wrote: `damaged`, or `gone`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a Mission's items, as `_mission.lua` keeps them."""

    total: int = 0
    verified: int = 0
    failed: int = 0
    cancelled: int = 0
    live: int = 0


async def verify(store: Store, group: GroupId, *, progress: Progress | None = None) -> Verified:
    """Compare one Group; Refused (GROUP_NOT_FOUND) where there is none, Unavailable where it never stands still."""
    base = store.base(store.partition_of(group))
    for _ in range(ATTEMPTS):
        before = await store.run(_mark, base, group)
        if before[0] is None:
            raise unknown_mission(group)
        found = await _compare(store, base, group, progress)
        if before == await store.run(_mark, base, group):
            return found
    raise Unavailable(
        f"mission {name_of(group)} changes faster than it can be compared: pause it first "
        f"(`treadle pause mission:{name_of(group)}`), then verify it again"
    )


async def _mark(client: Any, base: str, group: GroupId) -> tuple[Any, Any]:
    """What moves whenever something of the Group does."""
    async with client.pipeline(transaction=False) as pipe:
        pipe.hget(keys.groups(base), group)
        pipe.hget(keys.seqs(base), group)
        record, seq = await pipe.execute()
    return record, seq


async def _compare(store: Store, base: str, group: GroupId, progress: Progress | None) -> Verified:
    record, recorded = await store.run(_mark, base, group)
    found: list[Difference] = []
    if not log.is_record(record):
        found.append(Difference("mission", _RECORD, "as the store wrote it", repr(record[:100])))
    through = int(recorded) if recorded is not None and recorded.isdigit() else 0
    left_out: list[Event] = []
    told = await _told(store, base, group, through, found, left_out, progress)
    inspected = await inspect(store, group, found)
    if inspected is not None:
        found += [Difference(item, _RECORD, "as the store wrote it", what) for item, what in inspected.damaged]
        if not inspected.damaged:
            found += await _compare_state(store, base, group, told)
        if all(one.what != _RECORD for one in found):
            found += await _compare_account(store, group)
            found += await store.run(listed.listed, base, group, inspected.ids, views.halted(record))
    events, items = through, len(inspected.ids) if inspected else 0
    return Verified(
        group, events, items, views.halted(record), tuple(found[:SHOWN_MAX]), tuple(left_out), len(found) > SHOWN_MAX
    )


async def _compare_state(store: Store, base: str, group: GroupId, told: Projection | None) -> list[Difference]:
    try:
        state, stored = await store.run(_mission, base, group)
        counts = await counts_of(store, base, group)
        ids = await store.run(views.item_ids, base, group)
        whole = await store.run(state_of, base, group)
    except Unavailable:
        raise
    except (ValueError, TreadleError) as problem:
        return [Difference("mission", _RECORD, "as the store wrote it", str(problem)[:200])]
    found: list[Difference] = []
    for name in ("verified", "failed", "cancelled", "live"):
        if getattr(counts, name) != getattr(stored, name) and (name != "live" or state == MissionState.ACTIVE):
            found.append(Difference("mission", name, str(getattr(counts, name)), str(getattr(stored, name))))
    expected = await running_of(store, base, group, ids)
    usage = await store.run(_usage, base, group)
    if (usage.running, usage.starts_ms, usage.estimate_ms) != expected:
        found.append(Difference("@usage", "what runs", str(expected[0]), str(usage.running)))
    if told is not None:
        found += [one for one in differences(told, whole) if one not in found]
    return found


async def _compare_account(store: Store, group: GroupId) -> list[Difference]:
    """How many items of its account have not ended in the partition, which is what `queued` is held against."""
    unfinished = await unfinished_of(store, group)
    if unfinished is None or unfinished.kept == str(unfinished.counted):
        return []
    return [Difference("@tally", f"q:{unfinished.account}", str(unfinished.counted), unfinished.kept)]


async def _mission(client: Any, base: str, group: GroupId) -> tuple[str, Counts]:
    """State and counters of a Mission as its own key has them."""
    names = ("state", "total", "verified", "failed", "cancelled", "live")
    state, *counts = await client.hmget(keys.mission(base, group), *names)
    if state is None or None in counts:
        raise ValueError("its state or a counter is not there")
    return state.decode(), Counts(*map(int, counts))


async def _usage(client: Any, base: str, group: GroupId) -> Usage:
    packed = await client.hget(keys.usage(base), f"g:{group}")
    return parse_usage(packed.decode().split()) if packed else Usage()


async def _told(
    store: Store,
    base: str,
    group: GroupId,
    through: int,
    found: list[Difference],
    left_out: list[Event],
    progress: Progress | None,
) -> Projection | None:
    """What the log folds to at a sequence; None, with the difference noted, where it cannot be trusted."""
    told = Projection(group)
    try:
        if (await store.run(log.bounds, base, group))[0] > 1:
            told = await newest(store, group) or told
        while told.through < through:
            events = await store.run(log.read_after, base, group, told.through, PAGE)
            if not events:  # it went meanwhile, and so did what it is compared with
                return told
            for event in events[: through - told.through]:
                told.fold(event)
                if event.quarantined and len(left_out) < SHOWN_MAX:
                    left_out.append(event)
            if progress is not None:
                progress(told.through, through)
        await store.run(log.read_after, base, group, through, 1)  # behind its end there is nothing
    except Unavailable:
        raise
    except TreadleError as error:
        found.append(Difference("log", f"after sequence {told.through}", f"Events up to {through}", str(error)))
        return None
    return told


async def inspect(store: Store, group: GroupId, found: list[Difference] | None = None) -> Inspected | None:
    """The items that the Group's list names; None, with the difference noted, where that is no list."""
    partition = store.partition_of(group)
    try:
        ids = await store.run(views.item_ids, store.base(partition), group)
    except Unavailable:
        raise
    except TreadleError as error:
        if found is not None:
            found.append(Difference("mission", "list of items", "a list", str(error)[:200]))
        return None
    damaged: list[tuple[ItemId, str]] = []
    for start in range(0, len(ids), INSPECTED):
        page = ids[start : start + INSPECTED]
        reply = await store.call("inspect", partition, (group, *page))
        words = reply[1].decode().split()
        damaged += [(item, word) for item, word in zip(page, words, strict=True) if word != "sound"]
    return Inspected(tuple(ids), tuple(damaged))


async def counts_of(store: Store, base: str, group: GroupId) -> Counts:
    """The counters of a Mission, made anew from its items; of one that grew, what ended and is gone stays counted."""
    ids = await store.run(views.item_ids, base, group)
    states: dict[str, int] = {}
    live = 0
    async for _, fields in states_of(store, base, group, ids):
        waits = fields["st"] == ItemState.FAILED and fields["nb"]
        has_ended = fields["st"] in (ItemState.VERIFIED, ItemState.CANCELLED, ItemState.FAILED) and not waits
        if has_ended:
            states[fields["st"]] = states.get(fields["st"], 0) + 1
        live += bool(fields["rel"]) or (not has_ended and fields["dep"] in ("", "0"))
    failed, cancelled = states.get(ItemState.FAILED, 0), states.get(ItemState.CANCELLED, 0)
    gone = 0
    form, *stored = await store.run(_stored_counts, base, group)
    if form in _GROWN:
        gone = max(0, stored[0] - failed) + max(0, stored[1] - cancelled)
        failed, cancelled = max(failed, stored[0]), max(cancelled, stored[1])
    return Counts(len(ids) + gone, states.get(ItemState.VERIFIED, 0), failed, cancelled, live)


async def running_of(store: Store, base: str, group: GroupId, ids: Sequence[ItemId]) -> tuple[int, int, int]:
    """What runs: the widths, the starts and the estimates, summed as `_usage.lua` does."""
    running = starts_ms = estimate_ms = 0
    async for _, fields in states_of(store, base, group, ids, ("st", "w", "t0", "est")):
        if fields["st"] == ItemState.ACTIVE:
            width = int(fields["w"] or 1)
            running += width
            starts_ms += width * (int(fields["t0"]) - STARTS_EPOCH_MS)
            estimate_ms += width * int(fields["est"])
    return running, starts_ms, estimate_ms


async def _stored_counts(client: Any, base: str, group: GroupId) -> tuple[str, int, int]:
    form, failed, cancelled = await client.hmget(keys.mission(base, group), "form", "failed", "cancelled")
    numbers = [int(raw) if (raw or b"").isdigit() else 0 for raw in (failed, cancelled)]
    return (form or b"").decode(), numbers[0], numbers[1]


async def states_of(
    store: Store, base: str, group: GroupId, ids: Sequence[ItemId], names: Sequence[str] = ("st", "nb", "dep", "rel")
) -> AsyncIterator[tuple[ItemId, dict[str, str]]]:
    """Fields of each of these items, '' where there is none; of themselves what counts in a Mission."""
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        for item, fields in zip(page, await store.run(views.fields_of, base, group, page, names), strict=True):
            yield item, fields
