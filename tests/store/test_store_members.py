"""Who may work in a Group, from when on it sees its log, and how it is kept out (R6, R7, R8)."""

from __future__ import annotations

from collections.abc import Callable

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
    held,
)
from treadle.shared.answers import Ended
from treadle.shared.errors import Refused, Stale
from treadle.shared.model import AgentId, Grant, GroupId
from treadle.shared.store import Operation, commands

M = GroupId(GROUP)
AGENT = AgentId("worker-1")
LATE: dict[str, Callable[[Grant], Operation]] = {
    "checkpoint": a_save,
    "progress": lambda grant: a_save(grant, 1, b"a note"),
    "result": a_submit,
    "failure": a_fail,
    "yield": a_yield,
    "release": a_release,
}


async def out(world: World, agent: str = AGENT) -> Ended:
    return await commands.end_membership(world.store, M, AgentId(agent), actor="ana", reason="no")


async def let_in(world: World, agent: str = AGENT) -> bool:
    return await commands.admit(world.store, M, AgentId(agent), actor="ana")


async def test_r06_a_revoked_member_loses_all_it_holds_at_once_and_others_get_it(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name) for name in "abc"))
    await world.mission("elsewhere")
    hand = await world.hand()
    started, kept, queued = await hand.take(most=3, slots=2, ahead=1)
    elsewhere = await hand.started("elsewhere")
    seen = (await world.log())[-1].seq

    assert await out(world) == Ended(was_member=True, items=3, repeated=False)

    released = ["work.released", "work.offer.created"]
    assert await world.kinds(after=seen) == ["membership.ended", *released * 3]
    (ended, *_) = [event for event in await world.log() if event.seq > seen]
    assert (ended.by, ended.data) == ("ana", (AGENT, str(started.seq), "no"))
    assert (await hand.do(a_submit(elsewhere))).code == "OK", "elsewhere it works on"
    other = await world.hand("worker-2")
    assert [grant.ownership_epoch for grant in await other.take(most=9)] == [2, 2, 2]
    before = await world.dump()
    for operation in (a_submit(started), a_save(kept), a_start(queued), a_release(queued), a_take()):
        assert (await hand.do(operation, slots=1)).code == "MEMBERSHIP_STALE"
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []
    assert await hand.renew(started) == ["MEMBERSHIP_STALE"]
    with pytest.raises(Stale, match="MEMBERSHIP_STALE"):
        await world.authority.tail(hand.session, M, after=0)


async def test_a_revocation_rings_who_it_is_about(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    seen = (await world.log())[-1].seq
    await out(world)
    wake = await world.authority.wait(hand.session, tokens=False, timeout_s=1)
    assert wake is not None
    assert wake.bell is not None
    assert (wake.bell.group, wake.bell.previous, wake.bell.first) == (M, grant.seq + 1, seen + 1)


async def test_ended_twice_and_let_in_twice_change_nothing(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.started()
    await out(world)
    before = await world.dump()
    assert await out(world) == Ended(was_member=False, items=0, repeated=True)
    assert await world.dump() == before
    assert await let_in(world)
    before = await world.dump()
    assert not await let_in(world)
    assert await world.dump() == before


async def test_r06_who_is_let_in_again_has_a_higher_epoch_and_sees_nothing_from_before(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    first = await hand.started()
    await out(world)
    assert await let_in(world)
    changed = (await world.log())[-1]
    assert (changed.kind.value, changed.data) == ("membership.changed", (AGENT, str(changed.seq)))
    assert changed.seq > first.seq
    assert await world.raw.exists(world.key(f"{GROUP}:ended")) == 0
    assert not (await world.raw.hget(world.key("@groups"), GROUP)).endswith(b"bars"), "it pays nothing any more"
    tail = await world.authority.tail(hand.session, M, after=0)
    assert (tail.start, tail.events) == (changed.seq, (changed,))
    assert (await hand.do(a_submit(first))).code == "WORK_STALE_OWNERSHIP"
    again = await hand.started()
    assert (await hand.do(a_submit(again))).code == "OK"


async def test_who_has_no_session_or_never_worked_there_is_kept_out_too(world: World) -> None:
    await world.mission()
    assert await out(world) == Ended(was_member=False, items=0, repeated=False)
    hand = await world.hand()
    assert (await hand.do(a_take(), slots=1)).code == "MEMBERSHIP_STALE"
    assert await world.raw.exists(world.key(f"@joined:{AGENT}"), world.key(f"@inbox:{AGENT}")) == 0
    assert await let_in(world)
    assert (await hand.do(a_take(), slots=1)).code == "OK"
    tail = await world.authority.tail(hand.session, M, after=0)
    assert [event.kind.value for event in tail.events][:1] == ["membership.changed"], "it was there and is told"


async def test_one_let_in_while_away_is_a_member_as_ever_with_its_next_acceptance(world: World) -> None:
    await world.mission()
    await out(world)
    assert await let_in(world)
    assert await world.raw.keys(world.key("@joined:*")) == []
    hand = await world.hand()
    grant = await hand.started()
    assert (await world.authority.tail(hand.session, M, after=0)).start == grant.seq


async def test_more_than_64_items_of_a_revoked_member_go_by_ticks_and_none_of_them_is_its_own_any_more(
    world: World,
) -> None:
    await world.mission(GROUP, *(a_new_item(f"i{number:03}") for number in range(150)))
    hand = await world.hand()
    grants = [grant for _ in range(3) for grant in await hand.take(most=50, slots=50)]
    assert (await out(world)).items == 64
    assert [(await hand.do(a_submit(grant))).code for grant in grants[::40]] == ["MEMBERSHIP_STALE"] * 4
    with pytest.raises(Refused, match="state=expelling") as caught:
        await let_in(world)
    assert caught.value.code == "INVALID_STATE_TRANSITION"
    for _ in range(2):
        await world.authority.tick(0)
    assert (await world.kinds()).count("work.released") == 150
    assert await world.raw.exists(world.key(f"@held:{AGENT}"), world.key(f"@joined:{AGENT}")) == 0
    assert await let_in(world)


async def test_a_new_session_of_a_revoked_agent_gets_nothing_back(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(f"i{number:03}") for number in range(100)))
    hand = await world.hand(nonce="old")
    for _ in range(2):
        await hand.take(most=50, slots=50)
    await out(world)
    assert (await world.hand(nonce="new")).requeued == []
    for _ in range(3):
        await world.authority.tick(0)
    assert (await world.kinds()).count("work.released") == 100
    assert (await world.kinds()).count("work.requeued") == 0


async def test_r08_a_late_joiner_sees_the_log_from_its_own_acceptance_on(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name) for name in "abc"))
    first = await world.hand("worker-2")
    await first.do(a_submit(await first.started()))
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_save(grant))
    for after in (0, 3, grant.seq - 1):
        tail = await world.authority.tail(hand.session, M, after=after)
        assert tail.start == grant.seq
        assert [event.seq for event in tail.events] == [grant.seq, grant.seq + 1, grant.seq + 2]
    tail = await world.authority.tail(hand.session, M, after=grant.seq)
    assert [event.kind.value for event in tail.events] == ["work.started", "work.progress_saved"]
    last = (await world.log())[-1].seq
    assert (await world.authority.tail(hand.session, M, after=last)).events == ()
    assert (await world.authority.tail(hand.session, M, after=0, most=1)).events[0].seq == grant.seq
    assert (await world.log())[0].seq == 1, "viewers read all of it"


async def test_br05_a_zombie_writes_nothing_into_what_is_another_workers_now(world: World) -> None:
    """S4: A stalls, its lease lapses, B goes on from a Checkpoint of its own; then A tries everything it has."""
    await world.mission()
    zombie = await world.hand(ttl_ms=SHORT_MS)
    late = await zombie.started()
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    owner = await world.hand("worker-2", ttl_ms=60_000)
    grant = await owner.started()
    assert grant.ownership_epoch == late.ownership_epoch + 1
    await owner.do(a_save(grant, 1, b"C2"))
    before, log = await world.dump(), await world.log()
    for name, make in LATE.items():
        assert (await zombie.do(make(late))).code == "WORK_STALE_OWNERSHIP", name
        assert differences(before, await world.dump(), but_for=["@lanes"]) == [], name
    assert await zombie.renew(late) == ["WORK_STALE_OWNERSHIP"]
    assert differences(before, await world.dump(), but_for=["@lanes", "@due", "@meta"]) == []
    assert await world.log() == log
    assert (await owner.do(a_submit(grant, b"of the owner"))).code == "OK"
    assert await owner.renew(grant) != ["OK"]
    assert held(late).epoch == 1
