"""The table of refusals, continued: what finds and repairs a damaged Group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from builders import GROUP
from store.refused import Call, plain, refusal
from store.world import World

REPAIRS: dict[str, Sequence[Any]] = {
    "inspect": ("a",),
    "halt": (),
    "drop_item": ("a", "index", "digest", "evidence"),
    "stage": (3, "digest", 1, "chunk"),
    "unlist": ("@take:index",),
    "repair": ("ana", "reason", 1, 3, "digest", 1, 0, 0, 0, 1, 0, 0, 0, 5, 1),
    "recall": (f"n {GROUP} a",),
}
"""What each is called with behind the Group."""


def repairing(world: World, name: str, *arguments: Any, group: str = GROUP) -> Call:
    return plain(world, name, world.store.replid, group, *(arguments or REPAIRS[name]))


async def halted(world: World) -> None:
    world.audited = False
    await world.mission()
    await repairing(world, "halt")()


def _of_an_unknown_group(name: str) -> Callable[[World], Awaitable[Call]]:
    async def an_unknown_group(world: World) -> Call:
        return repairing(world, name, group="nowhere")

    return an_unknown_group


for _name in REPAIRS:
    refusal(_name, "GROUP_NOT_FOUND")(_of_an_unknown_group(_name))


def _of_a_group_that_is_not_halted(name: str) -> Callable[[World], Awaitable[Call]]:
    async def a_group_that_is_not_halted(world: World) -> Call:
        await world.mission()
        return repairing(world, name)

    return a_group_that_is_not_halted


for _name in ("drop_item", "unlist", "stage", "repair"):
    refusal(_name, "INVALID_STATE_TRANSITION")(_of_a_group_that_is_not_halted(_name))


@refusal("recall", "INVALID_STATE_TRANSITION")
async def what_was_set_aside_with_a_group_still_halted(world: World) -> Call:
    await halted(world)
    return repairing(world, "recall")


@refusal("drop_item", "INVALID_STATE_TRANSITION")
async def an_item_that_can_be_read_is_dropped(world: World) -> Call:
    await halted(world)
    return repairing(world, "drop_item")


@refusal("drop_item", "SCHEMA_VALIDATION_FAILED")
async def evidence_of_a_dropped_item_beyond_its_bound(world: World) -> Call:
    await halted(world)
    return repairing(world, "drop_item", "a", "index", "digest", "e" * 16_385)


@refusal("unlist", "SCHEMA_VALIDATION_FAILED")
async def a_key_that_is_no_index(world: World) -> Call:
    await halted(world)
    return repairing(world, "unlist", "@due")


@refusal("repair", "REVISION_CONFLICT")
async def a_log_that_went_on_since_it_was_looked_at(world: World) -> Call:
    await halted(world)
    return repairing(world, "repair", "ana", "reason", 1, 2, "digest", 1, 0, 0, 0, 1, 0, 0, 0, 5, 1)


@refusal("repair", "REVISION_CONFLICT")
async def a_snapshot_of_which_a_chunk_is_not_there(world: World) -> Call:
    await halted(world)
    return repairing(world, "repair")


@refusal("stage", "SCHEMA_VALIDATION_FAILED")
async def a_chunk_beyond_the_last_one(world: World) -> Call:
    await halted(world)
    return repairing(world, "stage", 3, "digest", 257, "chunk")


@refusal("repair", "LOG_FOREIGN")
async def a_mission_that_nobody_could_read(world: World) -> Call:
    await halted(world)
    await repairing(world, "stage")()
    await world.raw.hdel(world.key(f"{GROUP}:mission"), "account")
    return repairing(world, "repair")


@refusal("recount", "REVISION_CONFLICT")
async def what_has_changed_since_it_was_counted(world: World) -> Call:
    await world.mission()
    return plain(world, "recount", world.store.replid, "acme", 7, 8)


@refusal("recount", "SCHEMA_VALIDATION_FAILED")
async def a_count_that_is_no_number(world: World) -> Call:
    return plain(world, "recount", world.store.replid, "acme", 0, "-1")
