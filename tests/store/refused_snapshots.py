"""The table of refusals, continued: Snapshots and what they allow to be trimmed."""

from __future__ import annotations

from typing import Any

from builders import GROUP
from store.refused import HALT, Call, plain, refusal
from store.world import World
from treadle.shared.store import snapshots


def _snapshot(world: World, **changes: Any) -> Call:
    """The last call of an installation of one chunk, which another call brought."""
    given = {"group": GROUP, "through": 2, "size": 5, "chunks": 1, "number": 0, "chunk": b"", **changes}
    head = (given["group"], "ana", given["through"], "digest", given["size"], given["chunks"])
    return plain(world, "snapshot", world.store.replid, *head, given["number"], given["chunk"])


async def _gathered(world: World) -> None:
    await world.mission()
    await _snapshot(world, number=1, chunk=b"bytes")()


def _trim(world: World, first: object = 2, group: str = GROUP) -> Call:
    return plain(world, "trim", world.store.replid, group, first)


@refusal("snapshot", "GROUP_NOT_FOUND")
async def a_snapshot_of_an_unknown_group(world: World) -> Call:
    return _snapshot(world, group="nowhere")


@refusal("snapshot", "LOG_FOREIGN", *HALT)
async def a_snapshot_of_a_foreign_log(world: World) -> Call:
    await _gathered(world)
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id="99-0")
    return _snapshot(world)


@refusal("snapshot", "LOG_REBORN", *HALT)
async def a_snapshot_of_a_reborn_log(world: World) -> Call:
    await _gathered(world)
    await world.raw.delete(world.key(f"{GROUP}:log"))
    return _snapshot(world)


@refusal("snapshot", "INVALID_STATE_TRANSITION")
async def a_snapshot_of_an_ended_mission(world: World) -> Call:
    await _gathered(world)
    await plain(world, "cancel", world.store.replid, GROUP, "-", "ana", "reason")()
    return _snapshot(world)


@refusal("snapshot", "SCHEMA_VALIDATION_FAILED")
async def more_chunks_than_allowed(world: World) -> Call:
    await world.mission()
    return _snapshot(world, chunks=257)


@refusal("snapshot", "SCHEMA_VALIDATION_FAILED")
async def a_chunk_too_large(world: World) -> Call:
    await world.mission()
    return _snapshot(world, number=1, chunk=b"x" * ((1 << 20) + 1))


@refusal("snapshot", "REVISION_CONFLICT")
async def a_snapshot_ahead_of_the_log(world: World) -> Call:
    await _gathered(world)
    return _snapshot(world, through=99)


@refusal("snapshot", "REVISION_CONFLICT")
async def a_snapshot_with_a_chunk_missing(world: World) -> Call:
    await _gathered(world)
    return _snapshot(world, chunks=2)


@refusal("snapshot", "REVISION_CONFLICT")
async def a_snapshot_of_another_size(world: World) -> Call:
    await _gathered(world)
    return _snapshot(world, size=6)


@refusal("trim", "GROUP_NOT_FOUND")
async def an_unknown_group_is_trimmed(world: World) -> Call:
    return _trim(world, group="nowhere")


@refusal("trim", "SCHEMA_VALIDATION_FAILED")
async def trimmed_to_what_is_no_sequence(world: World) -> Call:
    await world.mission()
    return _trim(world, "all")


@refusal("trim", "LOG_FOREIGN")
async def a_log_that_somebody_else_trimmed(world: World) -> Call:
    world.audited = False
    await snapshots.create(world.store, await world.mission())
    await world.raw.xtrim(world.key(f"{GROUP}:log"), minid="3-0", approximate=False)
    return _trim(world)


@refusal("trim", "LOG_REBORN")
async def a_log_that_is_gone(world: World) -> Call:
    world.audited = False
    await snapshots.create(world.store, await world.mission())
    await world.raw.delete(world.key(f"{GROUP}:log"))
    return _trim(world)
