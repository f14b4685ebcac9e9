"""The table of refusals: for each code in the contract of each Lua file, at least one way to be refused with it.

A case prepares the store and gives the call to be refused; the call gives the code it was answered with. Here are whole
calls; the operations of a turn are in `refused_operations`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from builders import GROUP, a_new_mission, a_raw_item
from store.world import PREFIX, TTL_MS, Hand, World, a_take
from treadle.shared.errors import TreadleError
from treadle.shared.model import AgentId, GroupId
from treadle.shared.store import RenewalDoor, Turn, keys, policies
from treadle.shared.store.library import DOORS, build

Call = Callable[[], Awaitable[str]]
Case = Callable[[World], Awaitable[Call]]


@dataclass(frozen=True)
class Refusal:
    """One way to be refused. `changes`: what may differ in the store afterwards, as patterns, with the reason."""

    file: str
    code: str
    case: Case
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}-{self.code}-{self.case.__name__}"


REFUSALS: list[Refusal] = []
LANE = ("@lanes",)
"""A call that was carried out writes its lane's record, whatever became of its operations (design.md 3.5)."""
HALT = (*LANE, "@groups", "@dir:index", "@tomb:index", "@meta")
"""A Group whose log is not its own is halted in partition keys: record, directory and its version (design.md 3.3)."""


def refusal(file: str, code: str, *changes: str) -> Callable[[Case], Case]:
    def keep(case: Case) -> Case:
        REFUSALS.append(Refusal(file, code, case, changes))
        return case

    return keep


async def code_of(call: Awaitable[object]) -> str:
    """The code a call was refused with."""
    try:
        await call
    except TreadleError as error:
        return error.code
    return "OK"


def plain(world: World, function: str, *arguments: Any, key: str | None = None) -> Call:
    """A call of a function of the library with just these arguments."""
    named = key or world.key("@meta")
    return lambda: code_of(world.store.link.call((function, named, arguments)))


# --- the store changed, for everything that names the server of its session ---


def _store_changed(function: str) -> None:
    async def names_another_server(world: World) -> Call:
        return plain(world, function, "another-server", *["1"] * 30)

    refusal(function, "STORE_CHANGED")(names_another_server)


for _function in build().functions:
    if DOORS[_function][0] == "replid" and _function != "adopt":
        _store_changed(_function)


# --- the store and its Missions ---


@refusal("open_store", "SCHEMA_VALIDATION_FAILED")
async def another_format(world: World) -> Call:
    return plain(world, "open_store", "2", "0", "id", key=keys.store_record(PREFIX))


@refusal("open_store", "SCHEMA_VALIDATION_FAILED")
async def another_number_of_partitions(world: World) -> Call:
    return plain(world, "open_store", "1", "7", "id", key=keys.store_record(PREFIX))


@refusal("set_policy", "REVISION_CONFLICT")
async def somebody_applied_a_policy_meanwhile(world: World) -> Call:
    await policies.apply(world.store, "", actor="ana")
    return plain(world, "set_policy", 0, "digest", "ben", "-", "[disclosure]", key=keys.policy(PREFIX))


@refusal("set_policy", "SCHEMA_VALIDATION_FAILED")
async def a_policy_beyond_its_bound(world: World) -> Call:
    return plain(world, "set_policy", 0, "digest", "ana", "-", "#" * 262_145, key=keys.policy(PREFIX))


@refusal("set_policy", "SCHEMA_VALIDATION_FAILED")
async def a_policy_after_no_version(world: World) -> Call:
    return plain(world, "set_policy", "-1", "digest", "ana", "-", "", key=keys.policy(PREFIX))


@refusal("note_policy", "SCHEMA_VALIDATION_FAILED")
async def a_note_of_no_version(world: World) -> Call:
    return plain(world, "note_policy", world.store.replid, "newest", 0)


@refusal("adopt", "REVISION_CONFLICT")
async def bound_by_somebody_else_meanwhile(world: World) -> Call:
    return plain(world, "adopt", "new-server", "run", "0", "what-I-saw")


@refusal("distrust", "REVISION_CONFLICT")
async def a_person_began_another_incarnation_meanwhile(world: World) -> Call:
    return plain(world, "distrust", world.store.replid, "worker-1", 7, 3, 1)


@refusal("create", "ACTION_ID_COLLISION")
async def the_same_id_with_other_content(world: World) -> Call:
    await world.mission()
    return lambda: code_of(world.store.create(a_new_mission(GROUP, objective="something else")))


@refusal("create", "LOG_FOREIGN")
async def a_log_that_no_mission_wrote(world: World) -> Call:
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"})
    return lambda: code_of(world.store.create(a_new_mission(GROUP)))


def _create(world: World, *items: Sequence[str]) -> Call:
    """Items as (id, after)."""
    flat = [part for item, after in items for part in a_raw_item(item, digest="", after=after)]
    mission = (
        GROUP,
        "digest",
        "ana",
        "objective",
        "acme",
        "1.0",
        "standard",
        0,
        60_000,
        0,
        "whole",
        len(items),
        "- - 0",
    )
    return plain(world, "create", world.store.replid, *mission, *flat)


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def no_items(world: World) -> Call:
    return _create(world)


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def more_than_256_items(world: World) -> Call:
    return _create(world, *((f"i{number}", "") for number in range(257)))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def an_item_twice(world: World) -> Call:
    return _create(world, ("a", ""), ("b", ""), ("a", ""))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def an_unknown_dependency(world: World) -> Call:
    return _create(world, ("a", ""), ("b", "a c"))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def a_cycle(world: World) -> Call:
    return _create(world, ("a", "b"), ("b", "a"))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def an_item_that_waits_for_itself(world: World) -> Call:
    return _create(world, ("a", "a"))


@refusal("create", "SCHEMA_VALIDATION_FAILED")
async def an_item_cut_short(world: World) -> Call:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "whole", 1, "- - 0")
    return plain(world, "create", world.store.replid, *mission, "a", "index")


@refusal("watch", "GROUP_NOT_FOUND")
async def an_unknown_mission_is_watched(world: World) -> Call:
    return plain(world, "watch", world.store.replid, "nowhere", "-", "client", 1000)


@refusal("watch", "BACKPRESSURE")
async def a_65th_client_watches(world: World) -> Call:
    await world.mission()
    for number in range(64):
        await world.store.call("watch", 0, (GROUP, "-", f"client-{number}", 60_000))
    return plain(world, "watch", world.store.replid, GROUP, "-", "client-64", 60_000)


def _pause(world: World, verb: str, what: str) -> Call:
    return plain(world, "pause", world.store.replid, verb, what, "ana", "-")


@refusal("pause", "GROUP_NOT_FOUND")
async def an_unknown_mission_is_paused(world: World) -> Call:
    return _pause(world, "pause", "g:nowhere")


@refusal("pause", "GROUP_NOT_FOUND")
async def a_mission_that_is_still_loading_is_paused(world: World) -> Call:
    await world.mission()
    world.audited = False
    record: bytes = await world.raw.hget(world.key("@groups"), GROUP)
    await world.raw.hset(world.key("@groups"), GROUP, record.replace(b"active", b"loading", 1))
    return _pause(world, "pause", f"g:{GROUP}")


@refusal("pause", "SCHEMA_VALIDATION_FAILED")
async def something_nobody_knows_is_paused(world: World) -> Call:
    return _pause(world, "pause", "x:acme")


@refusal("pause", "SCHEMA_VALIDATION_FAILED")
async def neither_paused_nor_resumed(world: World) -> Call:
    return _pause(world, "stop", "all")


@refusal("pause", "BACKPRESSURE")
async def a_1025th_pause(world: World) -> Call:
    await world.raw.hset(world.key("@pause"), mapping={f"a:x{number}": "ana 1" for number in range(1024)})
    await world.raw.hset(world.key("@meta"), "paused", 1024)
    return _pause(world, "pause", "all")


# --- sessions ---


async def _replaced(world: World) -> Hand:
    old = await world.hand(nonce="old")
    await world.hand(nonce="new")
    return old


@refusal("open_session", "AUTH_STALE_SESSION")
async def an_opening_that_was_overtaken_comes_again(world: World) -> Call:
    await _replaced(world)
    return plain(world, "open_session", world.store.replid, "worker-1", "old")


@refusal("install_session", "AUTH_STALE_SESSION")
async def an_older_epoch_is_installed(world: World) -> Call:
    await _replaced(world)
    return plain(world, "install_session", world.store.replid, "worker-1", 1, TTL_MS, 1, 0, "set", "", "-")


@refusal("close_session", "AUTH_STALE_SESSION")
async def an_older_epoch_is_closed(world: World) -> Call:
    await _replaced(world)
    return plain(world, "close_session", world.store.replid, "worker-1", 1)


@refusal("resize", "AUTH_STALE_SESSION")
async def an_older_epoch_is_resized(world: World) -> Call:
    await _replaced(world)
    return plain(world, "resize", world.store.replid, "worker-1", 1, 4)


def _resized(slots: str) -> None:
    async def to_no_number_of_slots(world: World) -> Call:
        hand = await world.hand()
        return plain(world, "resize", world.store.replid, "worker-1", hand.session.epoch, slots)

    refusal("resize", "SCHEMA_VALIDATION_FAILED")(to_no_number_of_slots)


for _slots in ("-1", "1025", "many"):
    _resized(_slots)


@refusal("renew", "AUTH_STALE_SESSION")
async def a_replaced_session_renews(world: World) -> Call:
    door = RenewalDoor(world.store, (await _replaced(world)).session)

    async def call() -> str:
        try:
            door.renew(0, [])
        except TreadleError as error:
            return error.code
        finally:
            door.close()
        return "OK"

    return call


# --- turns as a whole ---


@refusal("turn", "AUTH_STALE_SESSION")
async def a_replaced_session_works(world: World) -> Call:
    await world.mission()
    old = await _replaced(world)
    return lambda: code_of(old.turn(a_take(), slots=1))


@refusal("turn", "AUTH_STALE_SESSION")
async def a_session_that_never_was(world: World) -> Call:
    hand = await world.hand()
    stranger = replace(hand, session=replace(hand.session, agent=AgentId("stranger")), numbers={})
    return lambda: code_of(stranger.turn())


@refusal("turn", "ACTION_ID_COLLISION")
async def the_same_number_for_another_call(world: World) -> Call:
    hand = await world.hand()
    await hand.turn(a_take())
    return lambda: code_of(hand.turn(a_take(), a_take(), number=1))


@refusal("turn", "ACTION_SUPERSEDED")
async def a_lower_number(world: World) -> Call:
    hand = await world.hand()
    await hand.turn(a_take())
    await hand.turn(a_take())
    return lambda: code_of(hand.turn(a_take(), number=1))


@refusal("turn", "ACTION_SUPERSEDED")
async def number_nought(world: World) -> Call:
    hand = await world.hand()
    await hand.turn()
    return lambda: code_of(hand.turn(number=0))


@refusal("turn", "LANE_REGRESSED")
async def a_number_too_high(world: World) -> Call:
    hand = await world.hand()
    await hand.turn(a_take())
    return lambda: code_of(hand.turn(a_take(), number=3))


@refusal("turn", "LANE_REGRESSED")
async def a_lane_whose_record_was_lost(world: World) -> Call:
    hand = await world.hand()
    await hand.turn(a_take())
    await world.raw.delete(world.key("@lanes"))
    return lambda: code_of(hand.turn(a_take()))


def _raw_turn(world: World, hand: Hand, *rest: Any) -> Call:
    head = Turn(0, 1, ()).arguments(hand.session)[:8]
    return plain(world, "turn", *head, 1, 0, "-", *rest)


@refusal("turn", "SCHEMA_VALIDATION_FAILED")
async def an_operation_nobody_knows(world: World) -> Call:
    return _raw_turn(world, await world.hand(), 0, "steal", GROUP, "a")


@refusal("turn", "SCHEMA_VALIDATION_FAILED")
async def an_operation_cut_short(world: World) -> Call:
    return _raw_turn(world, await world.hand(), 0, "take", GROUP, "index", 1, 0, "start", GROUP)


@refusal("turn", "SCHEMA_VALIDATION_FAILED")
async def more_than_64_operations(world: World) -> Call:
    hand = await world.hand()
    return lambda: code_of(hand.turn(*[a_take()] * 65))


@refusal("turn", "SCHEMA_VALIDATION_FAILED")
async def more_than_256_cursors(world: World) -> Call:
    hand = await world.hand()
    cursors = tuple((GroupId(f"g-{number}"), 1) for number in range(257))
    return lambda: code_of(hand.turn(cursors=cursors))
