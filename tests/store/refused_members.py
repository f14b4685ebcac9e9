"""The table of refusals, continued: Memberships, and the log as a member reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from builders import GROUP
from store.refused import HALT, LANE, Call, code_of, plain, refusal
from store.refused_operations import outcome_of
from store.world import Hand, World, a_take
from treadle.shared.model import AgentId, GroupId
from treadle.shared.store import commands, snapshots

AGENT = AgentId("worker-1")
ARGUMENTS = {"end_membership": ("ana", "no"), "admit": ("ana",)}


def command(world: World, name: str, *, group: str = GROUP) -> Call:
    return plain(world, name, world.store.replid, group, AGENT, *ARGUMENTS[name])


async def _kept_out(world: World) -> None:
    await commands.end_membership(world.store, GroupId(GROUP), AGENT, actor="ana", reason="no")


async def _ready(world: World, name: str) -> None:
    """Whatever the command, it changes something."""
    await world.mission()
    if name == "admit":
        await _kept_out(world)


def _each(name: str) -> None:
    @refusal(name, "GROUP_NOT_FOUND")
    async def an_unknown_group(world: World) -> Call:
        return command(world, name, group="nowhere")

    @refusal(name, "LOG_FOREIGN", *HALT)
    async def a_foreign_log(world: World) -> Call:
        await _ready(world, name)
        await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id="99-0")
        return command(world, name)

    @refusal(name, "LOG_REBORN", *HALT)
    async def a_reborn_log(world: World) -> Call:
        await _ready(world, name)
        await world.raw.delete(world.key(f"{GROUP}:log"))
        return command(world, name)

    @refusal(name, "INVALID_STATE_TRANSITION")
    async def an_ended_mission(world: World) -> Call:
        await _ready(world, name)
        await commands.cancel(world.store, GroupId(GROUP), None, actor="ana", reason="no")
        return command(world, name)


for _name in ARGUMENTS:
    _each(_name)


@refusal("admit", "INVALID_STATE_TRANSITION")
async def what_it_held_is_not_given_back_yet(world: World) -> Call:
    await _ready(world, "admit")
    await world.raw.zadd(world.key("@due"), {f"m {GROUP} {AGENT}": 1})
    world.audited = False
    return command(world, "admit")


@refusal("end_membership", "BACKPRESSURE")
async def too_many_are_kept_out(world: World) -> Call:
    await world.mission()
    await commands.end_membership(world.store, GroupId(GROUP), AgentId("first"), actor="ana", reason="no")
    await world.raw.hset(world.key(f"{GROUP}:ended"), mapping={f"a{number}": 1 for number in range(1_023)})
    return command(world, "end_membership")


@refusal("take", "MEMBERSHIP_STALE", *LANE)
async def taken_by_one_that_is_kept_out(world: World) -> Call:
    await _ready(world, "admit")
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take())


# --- reading ---


def _read(world: World, hand: Hand, group: str = GROUP, after: int = 0) -> Call:
    return lambda: code_of(world.authority.tail(hand.session, GroupId(group), after=after))


def reads(code: str) -> Callable[[Callable[[World], Awaitable[Call]]], Callable[[World], Awaitable[Call]]]:
    return refusal("tail", code)


@reads("AUTH_STALE_SESSION")
async def read_under_an_older_session(world: World) -> Call:
    await world.mission()
    old = await world.hand(nonce="old")
    await old.started()
    await world.hand(nonce="new")
    return _read(world, old)


@reads("GROUP_NOT_FOUND")
async def read_of_no_group(world: World) -> Call:
    return _read(world, await world.hand(), "nowhere")


@reads("MEMBERSHIP_REQUIRED")
async def read_by_one_that_never_accepted_anything(world: World) -> Call:
    await world.mission()
    return _read(world, await world.hand())


@reads("MEMBERSHIP_STALE")
async def read_by_one_that_is_kept_out(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await hand.started()
    await _kept_out(world)
    return _read(world, hand)


@reads("CURSOR_TOO_OLD")
async def read_from_where_the_log_was_trimmed(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await snapshots.create(world.store, GroupId(GROUP), keep=0)
    world.audited = False
    return _read(world, hand, after=grant.seq)


@reads("LOG_FOREIGN")
async def read_of_what_is_no_log(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await hand.started()
    await world.raw.delete(world.key(f"{GROUP}:log"))
    await world.raw.set(world.key(f"{GROUP}:log"), "no stream")
    world.audited = False
    return _read(world, hand)
