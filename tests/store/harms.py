"""What may happen to a Group's keys behind the store's back, and who finds it: the table of damage (S12, faults 40, 43, 46)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from builders import GROUP
from store.world import World
from treadle.shared import codec

FAR = 1_000


@dataclass(frozen=True)
class Damage:
    """One harm to the Group `m-1`, which has items `a` (running), `b`, and `c` (waiting for `a`)."""

    harm: Callable[[World], Awaitable[None]]
    writer: str
    """What the next operation that writes to the Group is answered; OK where only readers can see the harm."""
    reader: str
    """What a read of the log from its start says, a pattern; '' where the log itself is whole."""


def _key(world: World, name: str) -> str:
    return world.key(f"{GROUP}:{name}")


async def entries(world: World) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The raw entries of the log."""
    found: list[tuple[bytes, dict[bytes, bytes]]] = await world.raw.xrange(_key(world, "log"))
    return found


async def _remade(world: World, kept: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
    """Write a log anew that holds these entries alone."""
    await world.raw.delete(_key(world, "log"))
    for entry_id, fields in kept:
        await world.raw.xadd(_key(world, "log"), dict(fields), id=entry_id)


async def _last(world: World) -> int:
    return int((await entries(world))[-1][0].split(b"-")[0])


async def _hole(world: World) -> None:
    await world.raw.xdel(_key(world, "log"), "3-0")


async def _cut(world: World) -> None:
    for entry_id, _ in (await entries(world))[-2:]:
        await world.raw.xdel(_key(world, "log"), entry_id)


async def _trimmed(world: World) -> None:
    await world.raw.xtrim(_key(world, "log"), minid="4-0", approximate=False)


async def _foreign(world: World, entry_id: str, fields: dict[Any, Any] | None = None) -> None:
    await world.raw.xadd(_key(world, "log"), fields or {"who": "me"}, id=entry_id)


async def _foreign_next(world: World) -> None:
    await _foreign(world, f"{await _last(world) + 1}-0")


async def _foreign_far(world: World) -> None:
    await _foreign(world, f"{FAR}-0", (await entries(world))[1][1])


async def _foreign_by_the_clock(world: World) -> None:
    await _foreign(world, "*")


async def _foreign_event(world: World) -> None:
    """A second Coordinator with an old sequence (fault 13): what it writes looks like an Event."""
    await _foreign(world, f"{await _last(world) + 1}-0", (await entries(world))[1][1])


async def _deleted(world: World) -> None:
    await world.raw.delete(_key(world, "log"))


async def _gone_back(world: World) -> None:
    await _remade(world, (await entries(world))[:3])


async def _changed(world: World, change: dict[bytes, bytes]) -> None:
    found = await entries(world)
    found[2] = (found[2][0], {**found[2][1], **change})
    await _remade(world, found)


async def garble(world: World, seq: int, data: bytes) -> None:
    """Put other data into one Event of the log."""
    found = await entries(world)
    found[seq - 1] = (found[seq - 1][0], {**found[seq - 1][1], b"d": data})
    await _remade(world, found)


async def _malformed(world: World) -> None:
    await _changed(world, {b"d": b"not what such an Event holds"})


async def _payload(world: World) -> None:
    data = (await entries(world))[2][1][b"d"]
    await _changed(world, {b"d": data + b"\n" + b"\xc1" * (codec.EVENT_MAX + 1)})


def _of_another_type(name: str) -> Callable[[World], Awaitable[None]]:
    async def another_type(world: World) -> None:
        await world.raw.delete(_key(world, name))
        await world.raw.set(_key(world, name), "something else")

    return another_type


def _gone(name: str) -> Callable[[World], Awaitable[None]]:
    async def gone(world: World) -> None:
        assert await world.raw.delete(_key(world, name)) == 1

    return gone


def _field(name: str, field: str, value: str) -> Callable[[World], Awaitable[None]]:
    async def changed(world: World) -> None:
        await world.raw.hset(world.key(name), field, value)

    return changed


FOREIGN, REBORN, OK = "LOG_FOREIGN", "LOG_REBORN", "OK"

DAMAGE: dict[str, Damage] = {
    "a hole in the log": Damage(_hole, OK, "sequence 3 is missing, 4 follows"),
    "a log without its tail": Damage(_cut, OK, r"it ends at or before \d+, but \d+ were written"),
    "a log cut at its beginning": Damage(_trimmed, OK, r"sequences 1\.\.3 are missing, 4 follows"),
    "a log gone back": Damage(_gone_back, OK, r"it ends at or before 3, but \d+ were written"),
    "a deleted log": Damage(_deleted, REBORN, r"it ends at or before 0, but \d+ were written"),
    "a log of another type": Damage(_of_another_type("log"), FOREIGN, "its key holds no stream"),
    "a foreign entry": Damage(_foreign_next, FOREIGN, "is not an Event"),
    "a foreign entry far beyond": Damage(_foreign_far, FOREIGN, r"sequences \d+\.\.999 are missing, 1000 follows"),
    "a foreign entry with a clock's id": Damage(_foreign_by_the_clock, FOREIGN, "is not an Event"),
    "an Event that another wrote": Damage(_foreign_event, FOREIGN, r"sequence \d+ is there, but only \d+ were written"),
    "a malformed Event": Damage(_malformed, OK, "is not an Event"),
    "a malformed payload": Damage(_payload, OK, ""),
    "an item of another type": Damage(_of_another_type("i:a"), FOREIGN, ""),
    "an item that is gone": Damage(_gone("i:a"), "INVALID_COMMAND", ""),
    "an item with a lease that is no time": Damage(_field(f"{GROUP}:i:a", "lex", "soon"), FOREIGN, ""),
    "an item with a Checkpoint whose number is none": Damage(_field(f"{GROUP}:i:a", "ckn", "nan"), FOREIGN, ""),
    "an item with a digest of two lines": Damage(_field(f"{GROUP}:i:a", "ckd", "1\n2"), FOREIGN, ""),
    "an item with needs that are none": Damage(_field(f"{GROUP}:i:a", "need", "gpu"), FOREIGN, ""),
    "an item in no state known": Damage(_field(f"{GROUP}:i:a", "st", "asleep"), FOREIGN, ""),
    "a Mission of another type": Damage(_of_another_type("mission"), FOREIGN, ""),
    "a Mission that is gone": Damage(_gone("mission"), FOREIGN, ""),
    "a Mission whose count is no number": Damage(_field(f"{GROUP}:mission", "live", "many"), FOREIGN, ""),
    "a list of dependents of another type": Damage(_of_another_type("out:a"), FOREIGN, ""),
    "a record that nobody could read": Damage(_field("@groups", GROUP, "hello"), FOREIGN, ""),
    "a sequence that is no number": Damage(_field("@seqs", GROUP, "x"), FOREIGN, "its recorded sequence is b'x'"),
}
