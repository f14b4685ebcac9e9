"""Execution Approval: what a person has to approve is started by nobody before, and what follows it waits as well."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from store.world import World, a_submit
from treadle.shared.errors import Refused
from treadle.shared.model import EventKind, GroupId, ItemId, Risk
from treadle.shared.store import commands, pictures, repairing, stuck
from treadle.shared.store.verifying import verify

M = GroupId(GROUP)


async def approve(world: World, item: str = "a") -> bool:
    return await commands.approve(world.store, M, ItemId(item), actor="ana", reason="seen")


async def test_nobody_starts_what_nobody_approved_and_then_it_goes_its_way(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval"), a_new_item("b", after=["a"]))
    hand = await world.hand()
    assert await hand.take(most=9) == []
    assert [one.held for one in await stuck.parked(world.store)] == ["APPROVAL"]
    assert await approve(world)
    (grant,) = await hand.take(most=9)
    assert grant.item == "a"
    assert await stuck.parked(world.store) == []
    event = next(event for event in await world.log() if event.kind is EventKind.EXECUTION_APPROVED)
    assert (event.item, event.by, event.get("reason")) == ("a", "ana", "seen")
    await hand.do(a_submit(grant))
    assert [one.item for one in await hand.take(most=9)] == ["b"]


async def test_it_may_be_approved_before_what_it_waits_for(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", after=["a"], gates="approval"))
    hand = await world.hand()
    assert await approve(world, "b")
    (grant,) = await hand.take(most=9)
    await hand.do(a_submit(grant))
    assert [one.item for one in await hand.take(most=9)] == ["b"], "nobody is asked again"
    assert EventKind.PARKED not in [event.kind for event in await world.log()]


async def test_its_time_comes_first_and_then_its_approval(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval", not_before="+50"))
    hand = await world.hand()
    assert await stuck.parked(world.store) == []
    await world.pass_ms(51)
    await world.authority.tick(0)
    assert await hand.take() == []
    assert [one.held for one in await stuck.parked(world.store)] == ["APPROVAL"]
    await approve(world)
    assert len(await hand.take()) == 1


async def test_an_approval_that_comes_again_changes_nothing(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval"))
    assert await approve(world)
    before = await world.dump()
    assert not await approve(world)
    assert await world.dump() == before


async def test_what_needs_none_is_not_approved(world: World) -> None:
    await world.mission()
    with pytest.raises(Refused) as refused:
        await approve(world)
    assert (refused.value.code, refused.value.details["approval"]) == ("INVALID_STATE_TRANSITION", "none")


async def test_to_deny_it_is_to_cancel_it(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval"), a_new_item("b"))
    await commands.cancel(world.store, M, ItemId("a"), actor="ana", reason="no")
    with pytest.raises(Refused):
        await approve(world)
    assert await stuck.parked(world.store) == []
    assert await world.state() == "cancelled"


async def test_the_store_says_that_it_waits_for_approval(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", after=["a"], gates="approval"))
    facts = await pictures.why(world.store, M, ItemId("b"))
    assert facts is not None
    assert (facts.needs_approval, facts.held) == (True, "")
    await approve(world, "b")
    facts = await pictures.why(world.store, M, ItemId("b"))
    assert facts is not None
    assert not facts.needs_approval


async def test_who_approves_is_told_the_risk(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval", risk=Risk.HIGH), a_new_item("b", risk=Risk.LOW))
    facts = [await pictures.why(world.store, M, ItemId(item)) for item in "ab"]
    assert [(one.needs_approval, one.risk) for one in facts if one] == [(True, Risk.HIGH), (False, Risk.LOW)]
    assert [one.item for one in await (await world.hand()).take(most=9)] == ["b"], "risk alone holds nothing"


async def test_a_group_with_unapproved_items_verifies_in_every_state(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", gates="approval"), a_new_item("b", after=["a"], gates="approval"))
    assert not (await verify(world.store, M)).differences
    await approve(world)
    assert not (await verify(world.store, M)).differences
    hand = await world.hand()
    await hand.do(a_submit((await hand.take())[0]))
    assert not (await verify(world.store, M)).differences


async def test_a_repair_does_not_park_it_again(world: World) -> None:
    world.audited = False
    await world.mission(GROUP, a_new_item("a", gates="approval", not_before="+50"))
    await world.pass_ms(51)
    await world.authority.tick(0)
    await repairing.halt(world.store, M)
    await repairing.repair(world.store, M, actor="ana", reason="disk")
    for _ in range(6):
        await world.authority.tick(0)
    assert EventKind.PARKED not in [event.kind for event in await world.log()]
    assert [one.held for one in await stuck.parked(world.store)] == ["APPROVAL"]
    assert await approve(world)
    assert len(await (await world.hand()).take()) == 1
