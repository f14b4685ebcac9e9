"""The fences: what was current once changes nothing any more, and its holder is told why (S4, S7, S8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item
from store.world import (
    SHORT_MS,
    World,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
    differences,
    lease_of,
)
from treadle.shared.errors import Stale
from treadle.shared.model import Grant, ItemId
from treadle.shared.store import Operation

Make = Callable[[Grant], Operation]
WITH_LEASE: dict[str, Make] = {"save": a_save, "yield": a_yield, "submit": a_submit, "fail": a_fail}


async def test_after_a_newer_session_nothing_of_the_older_one_is_accepted(world: World) -> None:
    """FND-016, S8: not even what asks for nothing."""
    await world.mission()
    old = await world.hand(nonce="old")
    grant = await old.started()
    await world.hand(nonce="new")
    before = await world.dump()
    for operations in ([], [a_take()], [a_submit(grant)], [a_save(grant)], [a_release(grant)]):
        with pytest.raises(Stale) as caught:
            await old.turn(*operations, slots=1)
        assert caught.value.code == "AUTH_STALE_SESSION"
    with pytest.raises(Stale):
        await old.renew(grant)
    await old.close()
    assert await world.dump() == before


@pytest.mark.parametrize("name", WITH_LEASE)
async def test_a_lapsed_lease_is_refused_even_where_no_tick_has_seen_it(name: str, world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    grant = await hand.started()
    await world.pass_ms(SHORT_MS)
    before = await world.dump()
    assert (await hand.do(WITH_LEASE[name](grant))).code == "WORK_LEASE_EXPIRED"
    assert await hand.renew(grant) == ["WORK_LEASE_EXPIRED"]
    assert differences(before, await world.dump(), but_for=["@lanes", "@due", "@meta"]) == []


@pytest.mark.parametrize("name", WITH_LEASE)
async def test_after_a_lapse_the_zombie_is_refused_and_the_next_owner_is_not_disturbed(name: str, world: World) -> None:
    await world.mission()
    zombie, other = await world.hand(ttl_ms=SHORT_MS), await world.hand("worker-2")
    stale = await zombie.started()
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    grant = await other.started()
    before = await world.dump()
    assert (await zombie.do(WITH_LEASE[name](stale))).code == "WORK_STALE_OWNERSHIP"
    assert (await zombie.do(a_release(stale))).code == "WORK_STALE_OWNERSHIP"
    assert await zombie.renew(stale) == ["WORK_STALE_OWNERSHIP"]
    assert differences(before, await world.dump(), but_for=["@lanes", "@due", "@meta"]) == []
    assert (await other.do(a_submit(grant))).code == "OK"


@pytest.mark.parametrize("name", WITH_LEASE)
async def test_a_lease_of_another_item_opens_nothing(name: str, world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    one, two = await hand.take(most=2)
    assert (await hand.do(WITH_LEASE[name](replace(one, lease=two.lease)))).code == "WORK_LEASE_EXPIRED"


@pytest.mark.parametrize("name", WITH_LEASE)
async def test_an_earlier_lease_is_refused_even_with_an_unchanged_ownership_epoch(name: str, world: World) -> None:
    """WRK-013, R40."""
    await world.mission()
    hand = await world.hand()
    first = await hand.started()
    await hand.do(a_yield(first, 1, b"half"))
    second = await hand.restarted(first)
    assert second.ownership_epoch == first.ownership_epoch
    before = await world.dump()
    assert (await hand.do(WITH_LEASE[name](first))).code == "WORK_LEASE_EXPIRED"
    assert await hand.renew(first, second) == ["WORK_LEASE_EXPIRED", "OK"]
    assert differences(before, await world.dump(), but_for=["@lanes", "@due", "@meta", f"{GROUP}:i:a"]) == []
    assert (await hand.do(a_submit(second))).code == "OK"


@pytest.mark.parametrize("name", WITH_LEASE)
async def test_acceptance_alone_starts_and_ends_nothing(name: str, world: World) -> None:
    """S7: an accepted item needs an Execution Lease as well."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.accepted()
    assert (await hand.do(WITH_LEASE[name](grant))).code == "INVALID_STATE_TRANSITION"
    assert await hand.renew(grant) == ["INVALID_STATE_TRANSITION"]


async def test_a_lease_alone_starts_nothing(world: World) -> None:
    """S7: nobody starts what another owns, or what nobody accepted."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand, other = await world.hand(), await world.hand("worker-2")
    grant = await hand.accepted()
    assert (await other.do(a_start(grant))).code == "WORK_STALE_OWNERSHIP"
    offered = replace(grant, item=ItemId("b"), ownership_epoch=0)
    assert (await hand.do(a_start(offered))).code == "WORK_STALE_OWNERSHIP"


async def test_the_same_operation_under_two_sessions_of_two_agents_ends_the_item_once(world: World) -> None:
    await world.mission()
    first, second = await world.hand(), await world.hand("worker-2")
    grant = await first.started()
    assert (await second.do(a_submit(grant))).code == "WORK_STALE_OWNERSHIP"
    assert (await first.do(a_submit(grant))).code == "OK"
    assert (await world.kinds()).count("work.submitted") == 1


async def test_each_lease_has_an_id_of_its_own_and_a_higher_token(world: World) -> None:
    """S2: (incarnation, Ownership Epoch, lease number, replid) only rises."""
    await world.mission()
    tokens, ids = [], []
    for agent, nonce in (("worker-1", "a"), ("worker-2", "a"), ("worker-1", "b"), ("worker-1", "c")):
        hand = await world.hand(agent, nonce=nonce)
        grant = await hand.started()
        for keep in (True, False):
            assert grant.lease is not None
            tokens.append(grant.lease.token)
            ids.append(lease_of(grant))
            await hand.do(a_yield(grant, grant.checkpoint_number + 1, b"x", keep=keep))
            if keep:
                grant = await hand.restarted(grant)
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == len(set(ids)) == 8


async def test_a_renewal_only_ever_makes_a_lease_longer(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=60_000)
    grant = await hand.started()
    assert grant.lease is not None
    hasty = replace(hand, session=replace(hand.session, lease_ttl_ms=1_000))
    world.renewed[lease_of(grant)] = grant.lease.expires_ms
    door_code = (await hasty.renew(grant))[0]
    world.renewed[lease_of(grant)] = grant.lease.expires_ms
    assert door_code == "OK"
    assert int((await world.item())["lex"]) == grant.lease.expires_ms
    await world.pass_ms(5)
    await hand.renew(grant)
    assert int((await world.item())["lex"]) >= grant.lease.expires_ms + 5
