"""Reservations of wide items: one Worker an item, over by Redis' time, seen by all in the directory (scheduler.md, rule 8)."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from store.refused_holds import a_hold
from store.test_store_directory import emptied, look, tokens
from store.world import SHORT_MS, Hand, World, a_release, a_submit, a_take
from treadle.shared.model import AgentId, GroupId, ItemId
from treadle.shared.store import commands, verifying
from treadle.shared.store.replies import parse_usage


async def holder(world: World) -> AgentId:
    (entry,) = (await look(world)).entries
    return entry.head_holder


async def wide(world: World, *others: str) -> tuple[Hand, Hand]:
    """A Mission with a wide item before narrow ones, and two hands with slots for it."""
    await world.mission(GROUP, a_new_item("a", width=3, business_impact=9), *(a_new_item(name) for name in others))
    return await world.hand(slots=4), await world.hand("worker-2", slots=4)


async def test_of_two_workers_the_first_holds_an_item_and_the_other_goes_on_behind_it(world: World) -> None:
    first, second = await wide(world, "b")
    assert (await first.do(a_hold())).code == "OK"
    assert (await second.do(a_hold())).code == "RESERVED"
    assert await holder(world) == "worker-1"
    assert [grant.item for grant in await second.take(most=2, slots=4)] == ["b"], (
        "it has the slots for a, and leaves it"
    )
    (grant,) = await first.take(slots=3)
    assert (grant.item, grant.width) == ("a", 3)
    assert "rsv" not in await world.item()


async def test_a_hold_is_renewed_by_its_holder_and_over_by_the_stores_time(world: World) -> None:
    first, second = await wide(world)
    early = (await first.do(a_hold())).at_ms
    await world.pass_ms(3)
    late = (await first.do(a_hold())).at_ms
    assert early < late <= await world.store.now_ms() + first.session.lease_ttl_ms
    brief = await world.hand("worker-3", ttl_ms=SHORT_MS, slots=4)
    await first.do(a_hold(keep=False))
    assert (await brief.do(a_hold())).code == "OK"
    await world.pass_ms(SHORT_MS + 1)
    assert await holder(world) == "", "though no tick has come"
    (grant,) = await second.take(slots=4)
    assert grant.item == "a"


async def test_who_sleeps_is_told_when_a_hold_is_over_or_let_go(world: World) -> None:
    first, second = await wide(world)
    brief = await world.hand("worker-3", ttl_ms=SHORT_MS, slots=4)
    await brief.do(a_hold())
    known = await look(world)
    await world.pass_ms(SHORT_MS + 1)
    await emptied(world, second)
    await world.authority.tick(0)
    assert await tokens(world, second) == [f"index {GROUP} 0"]
    (entry,) = (await look(world, known.version)).entries
    assert entry.head_holder == ""
    await first.do(a_hold())
    await emptied(world, second)
    assert (await first.do(a_hold(keep=False))).code == "OK"
    assert await tokens(world, second) == [f"index {GROUP} 0"]
    assert await holder(world) == ""


async def test_a_hold_that_was_renewed_outlives_the_time_it_had_at_first(world: World) -> None:
    await world.mission(GROUP, a_new_item(width=3))
    brief = await world.hand(ttl_ms=SHORT_MS, slots=4)
    await brief.do(a_hold())
    longer = await world.hand(ttl_ms=60_000, slots=4, nonce="again")
    await longer.do(a_hold())
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await holder(world) == "worker-1"


async def test_who_does_not_hold_an_item_lets_nothing_go(world: World) -> None:
    first, second = await wide(world)
    await first.do(a_hold())
    assert (await second.do(a_hold(keep=False))).code == "OK"
    assert await holder(world) == "worker-1"


@pytest.mark.parametrize("offer", ["", "named:worker-1,worker-2 0"])
async def test_an_item_that_is_offered_no_more_is_held_no_more(offer: str, world: World) -> None:
    await world.mission(GROUP, a_new_item("a", width=3, offer=offer), a_new_item("b"))
    hand = await world.hand(slots=4)
    await hand.do(a_hold())
    assert (await world.item())["rsv"].startswith("worker-1 ")
    await commands.cancel(world.store, GroupId(GROUP), ItemId("a"), actor="ana", reason="no-more")
    assert "rsv" not in await world.item()
    assert await world.raw.zscore(world.key("@due"), f"h {GROUP} a") is None


async def test_what_was_held_and_taken_comes_back_as_nobodys(world: World) -> None:
    first, second = await wide(world)
    await first.do(a_hold())
    (grant,) = await first.take(slots=4)
    await first.do(a_release(grant))
    assert await holder(world) == ""
    assert (await second.do(a_hold())).code == "OK"


async def test_a_narrow_head_costs_the_directory_no_look_at_its_item(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_hold())
    (entry,) = (await look(world)).entries
    assert (entry.head_item, entry.head_holder) == ("a", ""), "only wide ones are worth telling"
    other = await world.hand("worker-2")
    assert await other.take() == [], "though it is held all the same"


async def test_verify_misses_the_due_entry_of_a_hold(world: World) -> None:
    world.audited = False
    first, _ = await wide(world)
    await first.do(a_hold())
    assert (await verifying.verify(world.store, GroupId(GROUP))).differences == ()
    await world.raw.zrem(world.key("@due"), f"h {GROUP} a")
    (found,) = (await verifying.verify(world.store, GroupId(GROUP))).differences
    assert (found.where, found.what) == ("@due", f"h {GROUP} a")


async def test_a_take_of_what_others_hold_gives_nothing_and_says_that_something_is_there(world: World) -> None:
    first, second = await wide(world)
    await first.do(a_hold())
    reply = await second.turn(a_take(), slots=4)
    assert (reply.outcomes[0].code, reply.outcomes[0].grants) == ("PASSED", ())
    (entry,) = reply.entries
    assert (entry.takeable, entry.head_holder) == (1, "worker-1")


async def test_a_wide_run_is_charged_for_each_of_its_slots_to_its_group_its_account_and_its_class(world: World) -> None:
    """BR-66: width times time, as exactly as the store's clock tells it."""
    hand, _ = await wide(world)
    (grant,) = await hand.take(slots=4)
    assert grant.lease is not None
    await world.pass_ms(250)
    reply = await hand.turn(a_submit(grant))
    packed = await world.raw.hgetall(world.key("@usage"))
    charged = {parse_usage(value.decode().split()).used_ms for value in packed.values()}
    assert len(packed) == 3
    (used_ms,) = charged
    assert used_ms == 3 * (used_ms // 3)
    assert 3 * 250 <= used_ms <= 3 * (reply.envelope.now_ms - grant.lease.expires_ms + hand.session.lease_ttl_ms)
