"""Offers to some Workers, and offers that hold for a time (R24, R25, R26): who may accept, who wins, what comes after."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.refused_operations import a_decline, an_accept
from store.world import SHORT_MS, Hand, World, a_fail, a_release, a_start, a_submit, a_take
from treadle.shared.answers import Offer
from treadle.shared.errors import Refused
from treadle.shared.model import AgentId, DirectoryEntry, Event, EventKind, GroupId, ItemId
from treadle.shared.store import commands
from treadle.shared.store.authority import directed_to

ONE, TWO = AgentId("worker-1"), AgentId("worker-2")


async def asked(world: World, offer: str, *agents: str) -> list[Hand]:
    """A Mission whose one item is offered so, and a hand for each Agent."""
    hands = [await world.hand(agent) for agent in agents or (ONE, TWO)]
    await world.mission(GROUP, a_new_item(offer=offer))
    return hands


async def its_own(hand: Hand, most: int = 1) -> list[str]:
    """The items that a take of what was offered to this very Worker gives."""
    return [grant.item for grant in await hand.take(most=most, capability=directed_to(hand.session.agent))]


async def offer_of(world: World, item: str = "a") -> Offer | None:
    view = await world.store.item(GROUP, ItemId(item))
    assert view is not None
    return view.offer


async def listed(world: World, *places: str) -> list[DirectoryEntry]:
    """What the directory lists under these names."""
    found = await world.authority.look({0: 0}, list(places))  # type: ignore[arg-type]  # names of capabilities
    return [entry for entry in found[0].entries if entry.takeable]


async def rung(world: World, agent: str) -> list[str]:
    return [raw.decode() for raw in await world.raw.lrange(world.key(f"@inbox:{agent}"), 0, -1)]


async def last(world: World, kind: EventKind) -> Event:
    return [event for event in await world.log() if event.kind is kind][-1]


async def test_what_is_offered_by_name_is_seen_and_taken_by_those_who_are_named_and_nobody_else(world: World) -> None:
    one, two = await asked(world, "named:worker-1 0")
    assert await listed(world, "index", directed_to(TWO)) == []
    (entry,) = await listed(world, "index", directed_to(ONE))
    assert (entry.capability, entry.takeable) == (directed_to(ONE), 1)
    assert await two.take() == []
    (grant,) = await one.take(capability=directed_to(ONE))
    assert (grant.capability, grant.basis) == ("index", "named")
    assert (await last(world, EventKind.ACCEPTED)).get("basis") == "named"
    assert (await one.do(a_submit(grant))).code == "OK"


async def test_r24_who_is_asked_is_rung_and_hears_it_from_the_log(world: World) -> None:
    await asked(world, "named:worker-1,worker-2 5000")
    offered = await last(world, EventKind.OFFERED)
    assert offered.get("to") == "named:worker-1,worker-2"
    assert int(offered.get("expires_ms")) == offered.at_ms + 5000
    for agent in (ONE, TWO):
        assert await rung(world, agent) == [f"{GROUP} 0 {offered.seq} {offered.seq}"]


async def test_r24_of_those_who_are_asked_the_first_wins_and_the_others_are_told(world: World) -> None:
    one, two = await asked(world, "named:worker-1,worker-2,worker-3 0")
    (grant,) = (await one.do(an_accept())).grants
    assert grant.lease is None
    accepted = await last(world, EventKind.ACCEPTED)
    assert await rung(world, TWO) == [f"{GROUP} 0 3 3", f"{GROUP} 3 {accepted.seq} {accepted.seq}"]
    assert await rung(world, "worker-3") == [], "it has no session that could hear it"
    assert await listed(world, *(directed_to(AgentId(f"worker-{number}")) for number in (1, 2, 3))) == []
    assert (await two.do(an_accept())).code == "WORK_ALREADY_OWNED"
    assert await its_own(two) == []
    (started,) = (await one.do(a_start(grant), slots=1)).grants
    assert (await one.do(a_submit(started))).code == "OK"


async def test_an_acceptance_whose_reply_is_lost_is_answered_alike(world: World) -> None:
    one, _ = await asked(world, "named:worker-1 0")
    (first,) = (await one.turn(an_accept())).outcomes
    (again,) = (await one.again()).outcomes
    assert again == first
    assert (await world.kinds()).count("work.offer.accepted") == 1


async def test_anybody_who_does_such_work_may_accept_what_is_offered_to_all(world: World) -> None:
    one, _ = await asked(world, "")
    (grant,) = (await one.do(an_accept())).grants
    assert grant.basis == "all"
    assert await listed(world, "index") == []


async def test_an_offer_by_name_that_is_over_is_accepted_by_nobody_and_says_so(world: World) -> None:
    one, _ = await asked(world, f"named:worker-1 {SHORT_MS}")
    before = len(await world.log())
    offer = await offer_of(world)
    assert offer is not None
    assert (offer.mode, offer.asked, offer.is_over) == ("named", (ONE,), False)
    await world.pass_ms(SHORT_MS + 1)
    assert await its_own(one) == [], "by Redis' clock, before any tick"
    await world.authority.tick(0)
    assert await listed(world, directed_to(ONE)) == []
    assert len(await world.log()) == before, "an expiry appends nothing (protocol 2)"
    offer = await offer_of(world)
    assert offer is not None
    assert offer.is_over
    assert await world.state() == "offered"


async def test_an_offer_to_all_may_hold_for_a_time_too(world: World) -> None:
    one, _ = await asked(world, f"- {SHORT_MS}")
    await world.pass_ms(SHORT_MS + 1)
    assert await one.take() == []
    await world.authority.tick(0)
    assert await listed(world, "index") == []
    offer = await offer_of(world)
    assert offer is not None
    assert (offer.mode, offer.asked, offer.is_over) == ("all", (), True)


async def test_what_preferred_workers_let_pass_is_offered_to_everybody(world: World) -> None:
    _, two = await asked(world, f"preferred:worker-1 {SHORT_MS}")
    assert await two.take() == []
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    offered = await last(world, EventKind.OFFERED)
    assert (offered.get("cause"), offered.get("to"), offered.get("expires_ms")) == ("expired", "-", "0")
    assert await offer_of(world) is None
    (grant,) = await two.take()
    assert grant.basis == "all"


async def test_what_a_preferred_worker_gives_back_is_everybodys_at_once(world: World) -> None:
    one, two = await asked(world, "preferred:worker-1 60000")
    (grant,) = await one.take(capability=directed_to(ONE))
    assert grant.basis == "preferred"
    await one.do(a_release(grant))
    assert len(await two.take()) == 1


async def test_what_was_offered_by_name_is_offered_to_the_same_again_each_time_it_comes_back(world: World) -> None:
    one, two = await asked(world, "named:worker-1,worker-2 60000")
    (grant,) = await one.take(capability=directed_to(ONE))
    await world.pass_ms(50)
    await one.do(a_release(grant))
    offered = await last(world, EventKind.OFFERED)
    assert (offered.get("to"), int(offered.get("expires_ms"))) == ("named:worker-1,worker-2", offered.at_ms + 60_000)
    (grant,) = await two.take(capability=directed_to(TWO))
    assert grant.ownership_epoch == 2


async def test_r25_who_declines_says_why_and_is_not_asked_any_more(world: World) -> None:
    one, two = await asked(world, "named:worker-1,worker-2 0")
    assert (await one.do(a_decline(reason="deadline"))).code == "OK"
    declined = await last(world, EventKind.OFFER_DECLINED)
    assert (declined.by, declined.data) == ("worker-1@1", ("worker-1", "deadline"))
    assert await listed(world, directed_to(ONE)) == []
    assert await its_own(one) == []
    assert await its_own(two) == ["a"]


async def test_when_all_who_were_preferred_decline_it_is_everybodys(world: World) -> None:
    one, two = await asked(world, "preferred:worker-1,worker-2 60000")
    await one.do(a_decline())
    assert await listed(world, "index") == []
    await two.do(a_decline())
    assert (await last(world, EventKind.OFFERED)).get("cause") == "declined"
    assert len(await one.take()) == 1


async def test_when_all_who_were_named_decline_it_waits_for_a_person(world: World) -> None:
    one, _ = await asked(world, "named:worker-1 60000")
    await one.do(a_decline())
    offer = await offer_of(world)
    assert offer is not None
    assert (offer.asked, offer.is_over) == ((), True)
    await commands.offer(world.store, GROUP, ItemId("a"), "- 0", actor="ana", action="1")
    assert len(await one.take()) == 1


async def test_a_declining_whose_reply_is_lost_is_answered_alike(world: World) -> None:
    one, _ = await asked(world, "preferred:worker-1 60000")
    (first,) = (await one.turn(a_decline())).outcomes
    assert (await one.again()).outcomes == (first,)
    assert (await world.kinds()).count("work.offer.declined") == 1


async def test_a_directed_item_that_a_worker_cannot_do_is_passed_over(world: World) -> None:
    await world.mission(
        GROUP,
        a_new_item("a", capability="other", offer="named:worker-1 0"),
        a_new_item("b", width=2, offer="named:worker-1 0"),
        a_new_item("c", offer="named:worker-1 0"),
    )
    one = await world.hand()
    assert await its_own(one, 3) == ["c"]
    assert [await world.state(item=item) for item in "ab"] == ["offered", "offered"]


async def test_a_candidate_that_has_no_session_yet_finds_what_was_offered_to_it(world: World) -> None:
    """R24: offers are durable, to offline Workers too."""
    await world.mission(GROUP, a_new_item(offer="named:worker-9 0"))
    assert await its_own(await world.hand("worker-9")) == ["a"]


async def test_what_becomes_ready_in_a_load_is_rung_when_it_is_sealed(world: World) -> None:
    items = [a_new_item(f"n{number}", inputs=b"x") for number in range(256)]
    large = a_new_mission("large", *items, a_new_item("last", offer="named:worker-1 0"))
    one = await world.hand()
    await world.store.create(large)
    (entry,) = await rung(world, ONE)
    assert entry.startswith("large 0 ")
    (grant,) = await one.take("large", capability=directed_to(ONE))
    assert grant.item == "last"


async def test_what_was_offered_by_name_leaves_with_its_mission(world: World) -> None:
    await asked(world, "named:worker-1,worker-2 60000")
    await commands.cancel(world.store, GROUP, None, actor="ana", reason="no-more")
    await world.authority.tick(0)
    assert await world.state() == "cancelled"
    assert await listed(world, directed_to(ONE), directed_to(TWO)) == []


async def test_a_failure_that_is_tried_again_is_offered_to_those_who_were_named(world: World) -> None:
    await world.mission(GROUP, a_new_item(offer="named:worker-1 0", retry="3 1 1"))
    one = await world.hand()
    (grant,) = await one.take(capability=directed_to(ONE))
    failed = a_fail(grant)
    await one.do(type(failed)(failed.group, failed.item, failed.epoch, failed.lease, failed.digest, b"e", True))
    await world.pass_ms(2)
    await world.authority.tick(0)
    assert await its_own(one) == ["a"]


# --- the command ---


async def offered(world: World, to: str = "- 0", action: str = "1") -> None:
    await commands.offer(world.store, GROUP, ItemId("a"), to, actor="ana", action=action)


async def test_a_person_offers_it_to_others_and_once_however_often_the_reply_is_lost(world: World) -> None:
    one, two = await asked(world, "named:worker-1 0")
    for _ in range(2):
        await offered(world, "named:worker-2 0")
    assert (await world.kinds()).count("work.offer.created") == 2
    assert (await last(world, EventKind.OFFERED)).by == "ana"
    assert await its_own(one) == []
    assert await its_own(two) == ["a"]


async def test_a_failed_and_a_parked_item_is_offered_again_with_its_attempts_before_it(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    await commands.fail_item(world.store, GROUP, ItemId("a"), actor="ana", digest="d", evidence=b"e")
    await offered(world, "named:worker-1 0")
    assert await its_own(await world.hand()) == ["a"]


async def test_a_live_owner_keeps_its_item_and_one_whose_lease_is_over_is_fenced_first(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    grant = await hand.started()
    with pytest.raises(Refused) as refused:
        await offered(world)
    assert refused.value.code == "WORK_ALREADY_OWNED"
    assert refused.value.details["owner"] == "worker-1"
    await world.pass_ms(SHORT_MS + 1)
    await offered(world, "preferred:worker-2 60000")
    assert (await world.kinds())[-2:] == ["work.lease_lapsed", "work.offer.created"]
    assert (await hand.do(a_submit(grant))).code == "WORK_STALE_OWNERSHIP"
    assert await its_own(await world.hand("worker-2")) == ["a"]


async def test_one_who_let_its_start_by_deadline_pass_is_fenced_too(world: World) -> None:
    await world.mission(GROUP, a_new_item(start_by_s=1))
    hand = await world.hand()
    grant = await hand.accepted()
    await world.pass_ms(1001)
    await offered(world)
    assert (await hand.do(a_start(grant), slots=1)).code == "WORK_STALE_OWNERSHIP"
    assert (await hand.take())[0].ownership_epoch == 2


async def test_an_item_that_waits_for_its_time_is_offered_at_once_by_a_person(world: World) -> None:
    await world.mission(GROUP, a_new_item(not_before="+60000"))
    await offered(world)
    assert len(await (await world.hand()).take()) == 1


async def test_an_offer_to_everybody_costs_no_field_of_its_own(world: World) -> None:
    await world.mission()
    assert not {"to", "ox", "om"} & (await world.item()).keys()
    hand = await world.hand()
    await hand.turn(a_take(), slots=1)
    assert not {"to", "ox", "om", "basis"} & (await world.item()).keys()


async def test_what_all_who_were_asked_declined_is_tried_again_only_once_somebody_is_asked(world: World) -> None:
    one = await world.hand(ONE)
    await world.mission(GROUP, a_new_item("a", offer="named:worker-1 0"), a_new_item("b"))
    await one.do(a_decline())
    group, item = GroupId(GROUP), ItemId("a")
    await commands.fail_item(world.store, group, item, actor="ana", digest="d", evidence=b"e")
    with pytest.raises(Refused) as refused:
        await commands.retry(world.store, group, item, actor="ana", action="1")
    assert (refused.value.code, refused.value.details["asked"]) == ("INVALID_STATE_TRANSITION", "0")
    await commands.offer(world.store, group, item, "named:worker-1 0", actor="ana", action="2")
    assert await its_own(one) == ["a"]
    assert (await last(world, EventKind.OFFERED)).get("to") == "named:worker-1", "every Event can be read"
