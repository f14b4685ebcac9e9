"""Incarnations and quarantine (design.md 3.11): what may go on, what waits, how it ends, and who may end it."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from store.world import (
    TTL_MS,
    Hand,
    World,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
    differences,
)
from treadle.shared.errors import Refused
from treadle.shared.facts import NEVER_MS
from treadle.shared.model import DirectoryEntry
from treadle.shared.settings import Settings
from treadle.shared.store import lineage
from treadle.shared.store.library import lua_files

SHORT_TTL_MS = 400
"""Of leases here: a quarantine lasts as long, and has to be waited out on a real server."""


async def new_incarnation(world: World, action: str = "1") -> int:
    return await lineage.new_incarnation(world.store, actor="ana", action=action, reason="a backup")


async def quarantine_ends_ms(world: World) -> int:
    return (await lineage.read(world.store)).quarantine_ms


async def entry(hand: Hand) -> DirectoryEntry:
    (found,) = (await hand.authority.look({0: 0}, hand.session.capabilities))[0].entries
    return found


async def test_a_new_store_is_in_no_quarantine(world: World) -> None:
    await world.mission()
    assert await quarantine_ends_ms(world) <= await world.store.now_ms()
    assert (await (await world.hand()).started()).lease is not None


async def test_a_backup_that_knows_of_no_lease_waits_for_one_of_the_default_ttl(world: World) -> None:
    """What was granted after it was made nobody can know."""
    await world.mission()
    await new_incarnation(world)
    assert (
        0
        < await quarantine_ends_ms(world) - await world.store.now_ms()
        <= 1_000 * Settings.model_fields["lease_ttl_s"].default
    )


async def test_a_quarantine_lasts_as_long_as_the_longest_lease_that_was_granted(world: World) -> None:
    await (await world.hand("worker-2", ttl_ms=3 * TTL_MS)).close()
    await world.hand(ttl_ms=TTL_MS)
    before_ms = await world.store.now_ms()
    await new_incarnation(world)
    assert before_ms + 3 * TTL_MS <= await quarantine_ends_ms(world) <= await world.store.now_ms() + 3 * TTL_MS


async def test_after_a_quarantine_only_sessions_that_live_make_the_next_one_long(world: World) -> None:
    await (await world.hand("worker-2", ttl_ms=2 * SHORT_TTL_MS)).close()
    await world.hand(ttl_ms=SHORT_TTL_MS)
    await new_incarnation(world)
    await world.pass_ms(2 * SHORT_TTL_MS)
    await world.authority.tick(0)
    before_ms = await world.store.now_ms()
    await new_incarnation(world, "2")
    assert await quarantine_ends_ms(world) - before_ms < 2 * SHORT_TTL_MS


async def test_in_quarantine_nothing_is_accepted_or_started_and_the_directory_says_so(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    accepted = await hand.accepted()
    await new_incarnation(world)
    ends_ms = await quarantine_ends_ms(world)
    before = await world.dump()
    reply = await hand.turn(a_take(), a_start(accepted), slots=2)
    assert [(outcome.code, outcome.at_ms) for outcome in reply.outcomes] == [("QUARANTINE", ends_ms)] * 2
    assert {(one.takeable, one.code) for one in reply.entries} == {(0, "QUARANTINE")}
    assert (await entry(hand)).code == "QUARANTINE"
    assert all("@lanes" in line for line in differences(before, await world.dump()))


async def test_in_quarantine_nobody_is_woken_and_no_token_is_handed_on(world: World) -> None:
    hand = await world.hand()
    await new_incarnation(world)
    await world.mission()
    await hand.turn(a_take(), slots=1, token="index m-1 0")
    tokens = [key for key in await world.raw.keys("*@wake*") for key in await world.raw.lrange(key, 0, -1)]
    assert all(token.startswith(b"- ") for token in tokens), "timers' are for everybody"


async def test_in_quarantine_a_lease_whose_token_is_in_the_item_goes_on(world: World) -> None:
    names = ("saved", "yielded", "submitted", "failed", "given back", "renewed")
    await world.mission(GROUP, *(a_new_item(name) for name in names))
    hand = await world.hand()
    grants = {grant.item: grant for grant in await hand.take(most=6)}
    await new_incarnation(world)
    one, two, three, four, five, six = (grants[item] for item in sorted(grants))
    reply = await hand.turn(a_save(one), a_yield(two), a_submit(three), a_fail(four), a_release(five))
    assert [outcome.code for outcome in reply.outcomes] == ["OK"] * 5
    assert await hand.renew(six) == ["OK"]


async def test_in_quarantine_nothing_lapses_and_all_of_it_does_after_it(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", start_by_s=1))
    gone = await world.hand("worker-2", ttl_ms=SHORT_TTL_MS)
    await gone.started()
    await gone.accepted()
    await new_incarnation(world)
    ends_ms = await quarantine_ends_ms(world)
    if world.clock is not None:
        world.clock.now_ms = ends_ms - 1
        await world.authority.tick(0)
        assert "work.lease_lapsed" not in await world.kinds()
        assert (await world.state(item="a"), await world.state(item="b")) == ("active", "queued")
    await world.pass_ms(SHORT_TTL_MS)
    await world.authority.tick(0)
    assert await world.state(item="a") == "offered"
    assert await world.state(item="b") == "queued", "its start-by is given again in full"
    await world.pass_ms(1000)
    await world.authority.tick(0)
    assert await world.state(item="b") == "offered"


async def test_a_start_by_that_fell_into_a_quarantine_can_be_met_after_it(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", start_by_s=1))
    hand = await world.hand(ttl_ms=1200)
    grant = await hand.accepted()
    await new_incarnation(world)
    await world.pass_ms(1200)
    assert (await hand.restarted(grant)).lease is not None


async def test_the_end_of_a_quarantine_rings_every_capability_and_shows_the_whole_directory(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", capability="audit"))
    hand, other = await world.hand(ttl_ms=SHORT_TTL_MS), await world.hand("worker-2", "audit", ttl_ms=SHORT_TTL_MS)
    await new_incarnation(world)
    look = (await world.authority.look({0: 0}, hand.session.capabilities))[0]
    for session in (hand.session, other.session):  # what creation rang
        while await world.authority.wait(session, tokens=True, timeout_s=0.01):
            pass
    await world.pass_ms(SHORT_TTL_MS)
    await world.authority.tick(0)
    for session in (hand.session, other.session):
        wake = await world.authority.wait(session, tokens=True, timeout_s=0.1)
        assert wake is not None
        assert wake.token == f"{session.capabilities[0]} {GROUP} 0"
    again = (await world.authority.look({0: look.version}, hand.session.capabilities))[0]
    assert again.full
    assert [(one.takeable, one.code) for one in again.entries] == [(1, "")]
    assert (await world.raw.zscore(world.key("@due"), "q - 0")) is None
    assert (await hand.started()).lease is not None


async def test_s02_a_new_incarnation_makes_tokens_and_session_epochs_that_were_never_there(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_TTL_MS)
    before = await hand.started()
    assert before.lease is not None
    number = await new_incarnation(world)
    assert number > before.lease.incarnation
    assert await lineage.newest_minted(world.store, hand.session.agent) >= before.lease.incarnation
    await hand.do(a_yield(before))
    await world.pass_ms(SHORT_TTL_MS)
    newer = await world.hand(nonce="newer", ttl_ms=SHORT_TTL_MS)
    assert newer.session.epoch > before.lease.incarnation
    (requeued,) = newer.requeued
    assert requeued.ownership_epoch == before.ownership_epoch
    heir = await world.hand(nonce="newest", ttl_ms=SHORT_TTL_MS)
    after = await heir.restarted(heir.requeued[0])
    assert after.lease is not None
    assert after.lease.token > before.lease.token


async def test_a_new_incarnation_is_begun_once_however_often_its_action_comes(world: World) -> None:
    first = await new_incarnation(world)
    before = await world.dump()
    assert await new_incarnation(world) == first
    assert differences(before, await world.dump()) == []
    assert await new_incarnation(world, "2") > first


async def test_the_newest_incarnations_that_people_began_are_listed_with_who_and_why(world: World) -> None:
    numbers = [await new_incarnation(world, str(action)) for action in range(18)]
    begun = (await lineage.read(world.store)).begun
    assert [one.number for one in begun] == numbers[:1:-1], "the newest 16"
    assert {(one.actor, one.reason) for one in begun} == {("ana", "a backup")}


# --- doubt ---


async def doubted(world: World) -> Hand:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_TTL_MS)
    await lineage.distrust(world.store, hand.session.agent, session=7, minted=3)
    return hand


async def test_s24_a_store_in_doubt_is_in_quarantine_until_a_person_says_so(world: World) -> None:
    hand = await doubted(world)
    found = await lineage.read(world.store)
    assert (found.quarantine_ms, found.doubt) == (NEVER_MS, "worker-1")
    (outcome,) = (await hand.turn(a_take(), slots=1)).outcomes
    assert (outcome.code, outcome.at_ms) == ("QUARANTINE", NEVER_MS)
    await world.pass_ms(SHORT_TTL_MS)
    await world.authority.tick(0)
    assert (await hand.do(a_take(), slots=1)).code == "QUARANTINE"
    await new_incarnation(world)
    assert (await lineage.read(world.store)).doubt == ""
    assert (await hand.do(a_take(), slots=1)).code == "QUARANTINE", "as after every change"
    await world.pass_ms(SHORT_TTL_MS)
    assert len(await hand.take()) == 1


async def test_what_came_due_in_a_doubt_is_carried_out_soon_after_it(world: World) -> None:
    world.audited = False  # an entry that was put off is later than its item says
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_TTL_MS)
    await hand.started()
    await lineage.distrust(world.store, hand.session.agent, session=7, minted=3)
    await world.pass_ms(SHORT_TTL_MS)
    await world.authority.tick(0)
    assert await world.state() == "active"
    put_off_ms = await world.raw.zscore(world.key("@due"), f"l {GROUP} a")
    assert put_off_ms - await world.store.now_ms() <= 10_000


async def test_the_first_doubt_stands(world: World) -> None:
    hand = await doubted(world)
    before = await world.dump()
    await lineage.distrust(world.store, hand.session.agent, session=9, minted=2)
    assert differences(before, await world.dump()) == []


async def test_a_doubt_that_comes_late_does_not_end_what_a_person_began(world: World) -> None:
    hand = await doubted(world)
    seen = int(await world.raw.hget(world.key("@meta"), "incarnation"))
    await new_incarnation(world)
    with pytest.raises(Refused, match="REVISION_CONFLICT"):
        await world.store.call("distrust", 0, ("worker-1", 7, 3, seen))
    assert (await lineage.read(world.store)).doubt == ""
    assert hand.session.epoch == 1


def test_python_and_lua_agree_when_only_a_person_ends_a_quarantine() -> None:
    assert f"{NEVER_MS}" in lua_files()["_quarantine.lua"]
