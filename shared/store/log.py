"""Reading a Group's log: ids are `<seq>-0`, from 1 without holes (design.md 3.2); a hole is said, never skipped.

What a Snapshot covers may be trimmed. Where the log begins since then stands in its Mission's record: a log that begins
anywhere else was cut by somebody else.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from .. import codec
from ..errors import Corrupt, CursorTooOld
from ..model import INCARNATION, Event, EventKind, GroupId
from ..names import shown
from . import keys

_log = logging.getLogger("treadle.store")


def is_record(record: bytes | None) -> bool:
    """Whether it is a Group's record, "state weight account class incarnation form"."""
    words = (record or b"").split()
    return len(words) > 4 and words[4].isdigit()


def incarnation_of(record: bytes | None) -> int:
    """The incarnation of a Group's log, as its record has it; the first where that cannot be read."""
    return int((record or b"").split()[4]) if is_record(record) else INCARNATION


@contextmanager
def _of_a_stream(group: GroupId) -> Generator[None]:
    try:
        yield
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise Corrupt(f"log of group {group}: its key holds no stream; halt this Group") from None


Entry = tuple[bytes, Mapping[bytes, bytes]]
"""One entry of a stream: its id and its fields."""


async def bounds(client: Any, base: str, group: GroupId) -> tuple[int, int]:
    """The first sequence that the log was trimmed to (1: never), and the sequence of the Group's Snapshot (0: none).

    (1, 0) where the Mission's record cannot be read: a log that begins later is then one that somebody cut.
    """
    try:
        first, snapshot = await client.hmget(keys.mission(base, group), "first", "snap")
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return 1, 0
    return int(first or 1), int((snapshot or b"0").split()[0])


async def entries_up_to(
    client: Any, base: str, group: GroupId, first: int, last: int, count: int
) -> list[tuple[int, int]]:
    """Sequence and bytes of the entries from `last` down to `first`, the newest first."""
    found = await client.xrevrange(keys.log(base, group), max=f"{last}-0", min=f"{first}-0", count=count)
    return [(int(entry_id.partition(b"-")[0]), sum(map(len, fields.values()))) for entry_id, fields in found]


async def entries_after(client: Any, base: str, group: GroupId, after: int, count: int) -> list[Entry]:
    """Up to `count` entries after a sequence, as the stream has them.

    CursorTooOld where what follows it was trimmed; Corrupt where it is missing otherwise.
    """
    with _of_a_stream(group):
        entries: list[Entry] = await client.xrange(keys.log(base, group), min=f"{after + 1}-0", max="+", count=count)
    await _check_beginning(client, base, group, after, entries)
    return entries


async def _check_beginning(client: Any, base: str, group: GroupId, after: int, entries: list[Entry]) -> None:
    """CursorTooOld where a log begins above what is read, because it was trimmed so far and not because it was cut."""
    if not entries or entries[0][0] == b"%d-0" % (after + 1):
        return
    first, snapshot = await bounds(client, base, group)
    made_anew = entries[0][1].get(b"k") == EventKind.GROUP_REPAIRED.value.encode()
    if after + 1 < first and entries[0][0] == b"%d-0" % first and not made_anew:
        raise too_old(group, after, first, snapshot)


def too_old(group: GroupId, after: int, first: int, snapshot: int) -> CursorTooOld:
    """The refusal to read from a sequence on that was trimmed."""
    return CursorTooOld(
        f"CURSOR_TOO_OLD: group={group} after={after} first={first} snapshot={snapshot}: its log was trimmed up to "
        f"sequence {first - 1}; go on from its Snapshot at {snapshot}",
        details={"group": group, "after": str(after), "first": str(first), "snapshot": str(snapshot)},
    )


def left_out(event: Event) -> str:
    """What is said of an Event that was quarantined."""
    what = "the payload of " if not event.is_void else ""
    return (
        f"group {shown(event.group)}: {what}Event {event.seq} ({event.kind}, entry {event.seq}-0 of its log) is left out: "
        f"{event.quarantined}; no state hangs on it, the Group goes on; `treadle verify {shown(event.group)}` counts them"
    )


def events_from(group: GroupId, incarnation: int, after: int, entries: Iterable[Entry]) -> list[Event]:
    """The Events of a log's entries; Corrupt where the one behind `after` is missing, or a later one."""
    events: list[Event] = []
    for entry_id, fields in entries:
        event = codec.read_event(group, incarnation, entry_id, fields)
        if event.seq != after + 1 and not event.begins_anew:
            gap = (
                f"sequence {after + 1} is" if event.seq == after + 2 else f"sequences {after + 1}..{event.seq - 1} are"
            )
            raise Corrupt(f"log of group {group}: {gap} missing, {event.seq} follows; halt this Group")
        if event.quarantined:
            _log.warning("%s", left_out(event))
        after = event.seq
        events.append(event)
    return events


async def read_after(client: Any, base: str, group: GroupId, after: int, count: int) -> list[Event]:
    """Up to `count` Events after a sequence; CursorTooOld where what follows it was trimmed.

    Corrupt where the log is not what the store wrote: a hole, an entry that is no Event, an end before the sequence that
    the store recorded or behind it, or a reader that is ahead of that. A script writes a log and its sequence at once, so
    the one read before the log is not above its end, and the one read after it not below.
    """
    with _of_a_stream(group):
        async with client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.groups(base), group)
            pipe.hget(keys.seqs(base), group)
            pipe.xrange(keys.log(base, group), min=f"{after + 1}-0", max="+", count=count)
            pipe.hget(keys.seqs(base), group)
            record, before, entries, behind = await pipe.execute()
    await _check_beginning(client, base, group, after, entries)
    events = events_from(group, incarnation_of(record), after, entries)
    if record is not None:
        check_end(group, after, events, before, behind, is_whole=len(events) < count)
    return events


def check_end(
    group: GroupId, after: int, events: list[Event], before: bytes | None, behind: bytes | None, *, is_whole: bool
) -> None:
    """Compare where a log ends with the sequence that the store recorded, read before the log and behind it."""
    if not (before or b"").isdigit() or not (behind or b"").isdigit():
        raise Corrupt(f"group {group}: its recorded sequence is {before!r}; halt this Group")
    least, most, last = int(before or 0), int(behind or 0), events[-1].seq if events else after
    if after > most:
        raise Corrupt(f"log of group {group}: read after {after}, but only {most} were written; it went back")
    if last > most:
        raise Corrupt(f"log of group {group}: sequence {last} is there, but only {most} were written; halt this Group")
    if last < least and is_whole:
        raise Corrupt(f"log of group {group}: it ends at or before {last}, but {least} were written; halt this Group")


async def wait_after(client: Any, base: str, group: GroupId, after: int, timeout_s: float) -> list[Event]:
    """Events after a sequence, waiting for the first at most so long; CursorTooOld as above."""
    block_ms = max(1, int(timeout_s * 1000))
    with _of_a_stream(group):
        await client.xread({keys.log(base, group): f"{after}-0"}, count=1, block=block_ms)
    return await read_after(client, base, group, after, 1000)
