"""Reading a Group's log: ids are `<seq>-0`, from 1 without holes (design.md 3.2); a hole is said, never skipped."""

from __future__ import annotations

from typing import Any

from .. import codec
from ..errors import Corrupt
from ..model import INCARNATION, Event, GroupId
from . import keys


def _events(group: GroupId, after: int, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> list[Event]:
    events: list[Event] = []
    for entry_id, fields in entries:
        event = codec.read_event(group, INCARNATION, entry_id, fields)
        if event.seq != after + 1:
            raise Corrupt(
                f"log of group {group}: sequence {after + 1} is missing, {event.seq} follows; halt this Group"
            )
        after = event.seq
        events.append(event)
    return events


async def read_after(client: Any, base: str, group: GroupId, after: int, count: int) -> list[Event]:
    """Up to `count` Events after a sequence."""
    entries = await client.xrange(keys.log(base, group), min=f"{after + 1}-0", max="+", count=count)
    return _events(group, after, entries)


async def wait_after(client: Any, base: str, group: GroupId, after: int, timeout_s: float) -> list[Event]:
    """Events after a sequence, waiting for the first at most so long."""
    block_ms = max(1, int(timeout_s * 1000))
    found = await client.xread({keys.log(base, group): f"{after}-0"}, count=1000, block=block_ms)
    return _events(group, after, found[0][1]) if found else []
