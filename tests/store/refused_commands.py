"""The table of refusals, continued: what people have the store do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from builders import GROUP, a_new_mission, a_raw_item
from store.refused import HALT, Call, plain, refusal
from store.world import World, a_block, a_submit
from treadle.shared.model import GroupId
from treadle.shared.store import policies

COMMANDS: dict[str, Sequence[Any]] = {
    "add": (0, "ana", "- - 0", *a_raw_item()),
    "seal": ("ana",),
    "cancel": ("a", "ana", "reason"),
    "fail_item": ("a", "ana", "digest", "evidence"),
    "retry": ("a", "ana", "action"),
    "unblock": ("a", "ana", "action", "digest", "resolution"),
    "offer": ("a", "ana", "action", "- 0"),
    "approve": ("a", "ana", "reason"),
    "prioritise": ("a", "ana", "action", "critical", "-", "-"),
}
"""What each is called with behind the Group."""


def command(world: World, name: str, *arguments: Any, group: str = GROUP) -> Call:
    return plain(world, name, world.store.replid, group, *(arguments or COMMANDS[name]))


async def growing(world: World, gates: str = "") -> GroupId:
    """An open Mission with one item that has failed: whatever the command, it changes something."""
    mission = replace(a_new_mission(GROUP), items=(), open=True)
    group = (await world.store.create(mission)).group
    await command(world, "add", 0, "ana", "- - 0", *a_raw_item("a", gates=gates))()
    return group


def _each(case: Callable[[str], Callable[[World], Awaitable[Call]]], code: str, *changes: str) -> None:
    for name in COMMANDS:
        refusal(name, code, *changes)(case(name))


def _of_an_unknown_group(name: str) -> Callable[[World], Awaitable[Call]]:
    async def an_unknown_group(world: World) -> Call:
        return command(world, name, group="nowhere")

    return an_unknown_group


_each(_of_an_unknown_group, "GROUP_NOT_FOUND")


async def _prepared(world: World, name: str) -> None:
    """Bring the item where the command would change something."""
    if name == "retry":
        await command(world, "fail_item")()
    if name == "unblock":
        hand = await world.hand()
        await hand.do(a_block(await hand.started()))


def _of_a_foreign_log(name: str) -> Callable[[World], Awaitable[Call]]:
    async def a_foreign_log(world: World) -> Call:
        await growing(world, "approval" if name == "approve" else "")
        await _prepared(world, name)
        await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id="99-0")
        return command(world, name)

    return a_foreign_log


def _of_a_reborn_log(name: str) -> Callable[[World], Awaitable[Call]]:
    async def a_reborn_log(world: World) -> Call:
        await growing(world, "approval" if name == "approve" else "")
        await _prepared(world, name)
        await world.raw.delete(world.key(f"{GROUP}:log"))
        return command(world, name)

    return a_reborn_log


_each(_of_a_foreign_log, "LOG_FOREIGN", *HALT)
_each(_of_a_reborn_log, "LOG_REBORN", *HALT)


def _of_an_unknown_item(name: str) -> Callable[[World], Awaitable[Call]]:
    async def an_unknown_item(world: World) -> Call:
        await growing(world)
        return command(world, name, "nobody", *COMMANDS[name][1:])

    return an_unknown_item


for _name in ("cancel", "fail_item", "retry", "offer", "prioritise", "unblock", "approve"):
    refusal(_name, "INVALID_COMMAND")(_of_an_unknown_item(_name))


def _of_a_verified_item(name: str) -> Callable[[World], Awaitable[Call]]:
    async def a_verified_item(world: World) -> Call:
        await growing(world)
        hand = await world.hand()
        await hand.do(a_submit(await hand.started()))
        return command(world, name)

    return a_verified_item


for _name in ("cancel", "fail_item", "retry", "offer", "prioritise", "unblock", "approve"):
    refusal(_name, "INVALID_STATE_TRANSITION")(_of_a_verified_item(_name))


@refusal("cancel", "INVALID_STATE_TRANSITION")
async def a_mission_that_ended(world: World) -> Call:
    await growing(world)
    await command(world, "fail_item")()
    await command(world, "seal")()
    return command(world, "cancel", "-", "ana", "reason")


@refusal("seal", "INVALID_STATE_TRANSITION")
async def a_cancelled_mission_is_sealed(world: World) -> Call:
    await growing(world)
    await command(world, "cancel", "-", "ana", "reason")()
    return command(world, "seal")


@refusal("fail_item", "SCHEMA_VALIDATION_FAILED")
async def evidence_beyond_its_bound(world: World) -> Call:
    await growing(world)
    return command(world, "fail_item", "a", "ana", "digest", "e" * 16_385)


@refusal("unblock", "SCHEMA_VALIDATION_FAILED")
async def a_resolution_beyond_its_bound(world: World) -> Call:
    await growing(world)
    await _prepared(world, "unblock")
    return command(world, "unblock", "a", "ana", "action", "digest", "r" * ((1 << 20) + 1))


@refusal("unblock", "INVALID_STATE_TRANSITION")
async def what_is_not_blocked_is_unblocked(world: World) -> Call:
    await growing(world)
    return command(world, "unblock")


@refusal("unblock", "INVALID_STATE_TRANSITION")
async def what_a_cancelled_mission_left_blocked_is_unblocked(world: World) -> Call:
    await growing(world)
    await _prepared(world, "unblock")
    await command(world, "cancel", "-", "ana", "reason")()
    return command(world, "unblock")


@refusal("add", "ACTION_ID_COLLISION")
async def an_item_with_other_content(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- - 0", *a_raw_item("a", digest="other"))


@refusal("add", "INVALID_STATE_TRANSITION")
async def a_sealed_mission_is_added_to(world: World) -> Call:
    await world.mission()
    return command(world, "add")


@refusal("add", "INVALID_STATE_TRANSITION")
async def a_chunk_for_what_is_not_loaded(world: World) -> Call:
    await growing(world)
    return command(world, "add", 1, *COMMANDS["add"][1:])


@refusal("add", "REVISION_CONFLICT")
async def a_chunk_too_far(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "load", 600, "- - 0")
    await plain(world, "create", world.store.replid, *mission)()
    return command(world, "add", 2, *COMMANDS["add"][1:])


@refusal("add", "REVISION_CONFLICT")
async def bounds_of_an_older_policy_than_is_known_here(world: World) -> Call:
    await growing(world)
    await policies.apply(world.store, "", actor="ana")
    return command(world, "add", 0, "ana", "- - 0 0", *a_raw_item())


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def nothing_is_added(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- - 0")


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def what_is_added_waits_for_nobody_known(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- - 0", *a_raw_item(after="nobody"))


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def a_chunk_that_is_no_number(world: World) -> Call:
    await growing(world)
    return command(world, "add", "one", *COMMANDS["add"][1:])


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def an_unknown_form(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "heap", 1)
    return plain(world, "create", world.store.replid, *mission, *COMMANDS["add"][2:])


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def more_dependencies_than_a_call_may_bring(world: World) -> Call:
    await growing(world)
    names = [f"s{n}" for n in range(20)]
    many = " ".join(names)
    sources = [part for name in names for part in a_raw_item(name)]
    await command(world, "add", 0, "ana", "- - 0", *sources)()
    rest = [part for n in range(205) for part in a_raw_item(f"w{n}", after=many)]
    return command(world, "add", 0, "ana", "- - 0", *rest)


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def more_capabilities_than_a_mission_may_need(world: World) -> Call:
    await growing(world)
    for start in (0, 256):
        items = [part for n in range(start, start + 256) for part in a_raw_item(f"i{n}", capability=f"c{n}")]
        if start == 0:
            await command(world, "add", 0, "ana", "- - 0", *items)()
    return command(world, "add", 0, "ana", "- - 0", *items)


@refusal("offer", "WORK_ALREADY_OWNED")
async def what_a_worker_runs_is_offered(world: World) -> Call:
    await growing(world)
    await (await world.hand()).started()
    return command(world, "offer")


@refusal("offer", "WORK_ALREADY_OWNED")
async def what_a_worker_has_accepted_is_offered(world: World) -> Call:
    await growing(world)
    await (await world.hand()).accepted()
    return command(world, "offer")


@refusal("offer", "INVALID_STATE_TRANSITION")
async def what_waits_for_another_is_offered(world: World) -> Call:
    await growing(world)
    await command(world, "add", 0, "ana", "- - 0", *a_raw_item("b", after="a"))()
    return command(world, "offer", "b", "ana", "action", "- 0")


WRONG_OFFERS = (
    *("-", "named:a", "named: 0", "anybody:a 0", "named:a 2592000001", "preferred:a 0", "named:a:b 5"),
    "named:" + ",".join(f"w{number}" for number in range(17)) + " 0",
)


def _wrong_offer(offer: str) -> None:
    @refusal("offer", "SCHEMA_VALIDATION_FAILED")
    async def an_offer_that_says_nothing(world: World) -> Call:
        await growing(world)
        return command(world, "offer", "a", "ana", "action", offer)

    @refusal("add", "SCHEMA_VALIDATION_FAILED")
    async def an_item_whose_offer_says_nothing(world: World) -> Call:
        await growing(world)
        return command(world, "add", 0, "ana", "- - 0", *a_raw_item(offer=offer))


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def an_item_whose_time_out_is_no_time(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- - 0", *a_raw_item(timeout_ms="1 s"))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def a_risk_that_nobody_knows(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "whole", 1, "- - 0")
    return plain(world, "create", world.store.replid, *mission, *a_raw_item(gates="approval risk:some"))


for _offer in WRONG_OFFERS:
    _wrong_offer(_offer)

WRONG_PRIORITIES = (
    *(("urgent", "-", "-"), ("", "-", "-"), ("-", "soon", "-"), ("-", "-1", "-"), ("-", "1" + 14 * "0", "-")),
    *(("-", "-", "100000"), ("-", "-", "-1"), ("-", "-", "1.5"), ("-", "-", "")),
    ("-", "-", "-"),
)


def _wrong_priority(*wanted: str) -> None:
    @refusal("prioritise", "SCHEMA_VALIDATION_FAILED")
    async def a_priority_that_is_none(world: World) -> Call:
        await growing(world)
        return command(world, "prioritise", "a", "ana", "action", *wanted)


for _wanted in WRONG_PRIORITIES:
    _wrong_priority(*_wanted)


@refusal("prioritise", "INVALID_STATE_TRANSITION")
async def what_is_cancelled_is_prioritised(world: World) -> Call:
    await growing(world)
    await command(world, "cancel")()
    return command(world, "prioritise")


@refusal("prioritise", "INVALID_STATE_TRANSITION")
async def what_failed_for_good_is_prioritised(world: World) -> Call:
    await growing(world)
    await command(world, "fail_item")()
    return command(world, "prioritise")


@refusal("prioritise", "INVALID_STATE_TRANSITION")
async def an_item_of_a_cancelled_mission_is_prioritised(world: World) -> Call:
    await growing(world)
    await command(world, "cancel", "-", "ana", "reason")()
    return command(world, "prioritise")


ARCHIVED = ("5", "a1" * 32, "ana")
"""What `archived` is called with behind the Group: sequence, digest, actor."""


async def ended(world: World) -> None:
    """A Mission whose one item was cancelled: five Events, and nothing left to withdraw."""
    await world.mission(GROUP)
    await command(world, "cancel", "-", "ana", "reason")()
    for _ in range(3):
        await world.authority.tick(0)


@refusal("archived", "GROUP_NOT_FOUND")
async def an_archive_of_nothing(world: World) -> Call:
    return command(world, "archived", *ARCHIVED)


@refusal("archived", "INVALID_STATE_TRANSITION")
async def an_archive_of_what_has_not_ended(world: World) -> Call:
    await world.mission(GROUP)
    return command(world, "archived", *ARCHIVED)


@refusal("archived", "INVALID_STATE_TRANSITION")
async def an_archive_of_what_is_still_withdrawn(world: World) -> Call:
    await world.mission(GROUP)
    await command(world, "cancel", "-", "ana", "reason")()
    return command(world, "archived", *ARCHIVED)


@refusal("archived", "REVISION_CONFLICT")
async def an_archive_that_misses_an_event(world: World) -> Call:
    await ended(world)
    return command(world, "archived", "4", *ARCHIVED[1:])


@refusal("archived", "SCHEMA_VALIDATION_FAILED")
async def an_archive_without_its_digest(world: World) -> Call:
    await ended(world)
    return command(world, "archived", "5", "digest", "ana")


@refusal("archived", "LOG_FOREIGN", *HALT)
async def an_archive_of_a_foreign_log(world: World) -> Call:
    await ended(world)
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id="99-0")
    return command(world, "archived", *ARCHIVED)


@refusal("archived", "LOG_REBORN", *HALT)
async def an_archive_of_a_reborn_log(world: World) -> Call:
    await ended(world)
    await world.raw.delete(world.key(f"{GROUP}:log"))
    return command(world, "archived", *ARCHIVED)


@refusal("require_archive", "SCHEMA_VALIDATION_FAILED")
async def neither_required_nor_not(world: World) -> Call:
    return plain(world, "require_archive", world.store.replid, "perhaps")


@refusal("retry", "APPROVAL_REQUIRED")
async def what_nobody_approved_is_to_be_tried_again(world: World) -> Call:
    await growing(world, "approval")
    return command(world, "retry")


@refusal("offer", "APPROVAL_REQUIRED")
async def what_nobody_approved_is_to_be_offered(world: World) -> Call:
    await growing(world, "approval")
    return command(world, "offer")


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def a_gate_that_nobody_knows(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- - 0", *a_raw_item(gates="moonlight"))


@refusal("add", "QUOTA_EXCEEDED")
async def more_items_than_its_mission_may_have(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "- 1 0", *COMMANDS["add"][3:])


@refusal("add", "QUOTA_EXCEEDED")
async def more_items_than_its_account_may_have(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "3 9 2", *COMMANDS["add"][3:])


@refusal("create", "QUOTA_EXCEEDED")
async def a_load_that_will_be_too_large(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "load", 600, "599 - 0")
    return plain(world, "create", world.store.replid, *mission)


@refusal("add", "SCHEMA_VALIDATION_FAILED")
async def bounds_that_are_none(world: World) -> Call:
    await growing(world)
    return command(world, "add", 0, "ana", "many", *COMMANDS["add"][3:])


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def a_mission_with_bounds_that_are_none(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "whole", 1, "3 3")
    return plain(world, "create", world.store.replid, *mission, *COMMANDS["add"][3:])


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def a_budget_that_is_no_number(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, "-1", "whole", 1, "- - 0")
    return plain(world, "create", world.store.replid, *mission, *COMMANDS["add"][3:])
