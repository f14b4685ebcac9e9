"""The table of refusals goes on: what the reservation of a wide item is refused with."""

from __future__ import annotations

from collections.abc import Callable

from builders import GROUP, a_new_item
from store.refused import HALT, LANE, Call, Case, refusal
from store.refused_operations import an_accept, outcome_of
from store.world import SHORT_MS, Hand, World
from treadle.shared.model import GroupId, ItemId
from treadle.shared.store import Hold, commands
from treadle.shared.store.controls import pause
from treadle.shared.store.lineage import new_incarnation


def a_hold(group: str = GROUP, item: str = "a", *, keep: bool = True) -> Hold:
    return Hold(GroupId(group), ItemId(item), keep)


async def _offered(world: World, offer: str = "", *, width: int = 1) -> Hand:
    await world.mission(GROUP, a_new_item(offer=offer, width=width))
    return await world.hand()


def _on(code: str, *changes: str) -> Callable[[Case], Case]:
    return refusal("hold", code, *(changes or LANE))


@_on("GROUP_NOT_FOUND")
async def held_of_a_group_that_is_not_there(world: World) -> Call:
    hand = await _offered(world)
    return lambda: outcome_of(hand, a_hold("nowhere"))


@_on("INVALID_COMMAND")
async def held_and_not_there(world: World) -> Call:
    hand = await _offered(world)
    return lambda: outcome_of(hand, a_hold(item="nothing"))


@_on("MEMBERSHIP_STALE")
async def held_by_one_that_is_kept_out(world: World) -> Call:
    hand = await _offered(world)
    await hand.take(slots=0, ahead=1)
    await commands.end_membership(world.store, GroupId(GROUP), hand.session.agent, actor="ana", reason="no")
    return lambda: outcome_of(hand, a_hold())


def _halted(code: str) -> None:
    @_on(code)
    async def held_of_a_halted_group(world: World) -> Call:
        hand = await _offered(world)
        await world.raw.hset(world.key("@groups"), GROUP, f"halted:{code} 1 acme standard 1")
        return lambda: outcome_of(hand, a_hold())


for _code in ("LOG_FOREIGN", "LOG_REBORN"):
    _halted(_code)


@_on("LOG_FOREIGN", *HALT)
async def held_and_damaged(world: World) -> Call:
    hand = await _offered(world)
    await world.raw.hdel(world.key(f"{GROUP}:i:a"), "key")
    return lambda: outcome_of(hand, a_hold())


@_on("INVALID_STATE_TRANSITION")
async def held_and_accepted_already(world: World) -> Call:
    hand = await _offered(world)
    await hand.do(an_accept())
    return lambda: outcome_of(hand, a_hold())


@_on("INVALID_STATE_TRANSITION")
async def let_go_and_accepted_already(world: World) -> Call:
    hand = await _offered(world)
    await hand.do(an_accept())
    return lambda: outcome_of(hand, a_hold(keep=False))


@_on("INVALID_STATE_TRANSITION")
async def held_of_a_mission_that_was_cancelled(world: World) -> Call:
    hand = await _offered(world)
    await world.store.call("cancel", 0, (GROUP, "-", "ana", "reason"))
    return lambda: outcome_of(hand, a_hold())


@_on("RESERVED")
async def held_by_somebody_else(world: World) -> Call:
    hand = await _offered(world)
    await (await world.hand("worker-2")).do(a_hold())
    return lambda: outcome_of(hand, a_hold())


@refusal("accept", "RESERVED", *LANE)
async def accepted_and_held_by_somebody_else(world: World) -> Call:
    hand = await _offered(world, "named:worker-1,worker-2 0")
    await (await world.hand("worker-2")).do(a_hold())
    return lambda: outcome_of(hand, an_accept())


@_on("AUTH_FORBIDDEN")
async def held_by_one_that_is_not_asked(world: World) -> Call:
    hand = await _offered(world, "named:worker-2 0")
    return lambda: outcome_of(hand, a_hold())


@_on("AUTH_FORBIDDEN")
async def held_by_one_that_is_too_narrow(world: World) -> Call:
    hand = await _offered(world, width=2)
    return lambda: outcome_of(hand, a_hold())


@_on("WORK_OFFER_EXPIRED")
async def held_and_its_offer_is_over(world: World) -> Call:
    hand = await _offered(world, f"- {SHORT_MS}")
    await world.pass_ms(SHORT_MS + 1)
    return lambda: outcome_of(hand, a_hold())


@_on("QUARANTINE")
async def held_in_quarantine(world: World) -> Call:
    hand = await _offered(world)
    await new_incarnation(world.store, actor="ana", action="1", reason="asked")
    return lambda: outcome_of(hand, a_hold())


@_on("PAUSED")
async def held_while_it_is_paused(world: World) -> Call:
    hand = await _offered(world)
    await pause(world.store, "capability:index", actor="ana")
    return lambda: outcome_of(hand, a_hold())
