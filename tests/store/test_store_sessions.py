"""Sessions: the newest one of an Agent is the only one, in every partition; what it held is neither lost nor kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import CAPABILITY, a_new_item, a_new_mission
from store.world import SHORT_MS, TTL_MS, Hand, World, a_start, a_submit, differences
from treadle.shared.errors import Stale, TreadleError
from treadle.shared.model import AgentId, Capability, GroupId, ItemId
from treadle.shared.names import token
from treadle.shared.store import Accept, RenewalDoor, Turn
from treadle.shared.store.authority import capability_set

MINT_KEPT_MS = 3_600_000


@pytest.fixture
def partitions() -> int:
    return 3


def one_in_each(world: World) -> list[str]:
    """Mission names whose Groups lie in partitions 0, 1, 2."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < world.store.partitions:
        number += 1
        found.setdefault(world.store.partition_of(f"m-{number}"), f"m-{number}")
    return [found[partition] for partition in sorted(found)]


async def registry(world: World) -> dict[str, list[str]]:
    """What the partitions know of sessions, by key, of all partitions together."""
    found: dict[str, list[str]] = {}
    for key, (_, content) in (await world.dump()).items():
        name = key.partition("}:")[2]
        if name.startswith(("@sessions", "@caps", "@live", "@wake", "@lanes", "@held", "@joined", "@inbox")):
            found.setdefault(name, []).append(repr(content))
    return found


async def test_a_session_is_installed_in_every_partition_under_one_epoch(world: World) -> None:
    hand = await world.hand("worker-1", "index", "merge")
    assert (hand.session.epoch, hand.session.capabilities, hand.requeued) == (1, ("index", "merge"), [])
    chosen = capability_set([Capability("index"), Capability("merge")])
    record = {b"worker-1": f"1 {chosen} {TTL_MS} 1 index,merge".encode()}
    for partition in range(3):
        assert await world.raw.hgetall(world.key("@sessions", partition)) == record
        assert await world.raw.hgetall(world.key("@caps", partition)) == {
            b"index": chosen.encode(),
            b"merge": chosen.encode(),
        }
        assert await world.raw.hgetall(world.key("@live", partition)) == {chosen.encode(): b"1"}


async def test_opening_again_with_the_same_nonce_gives_the_same_session_and_changes_nothing(world: World) -> None:
    await world.hand(nonce="once")
    await world.pass_ms(3)
    before = await world.dump()
    assert (await world.hand(nonce="once")).session.epoch == 1
    assert await world.dump() == before


async def test_each_new_session_gets_a_higher_epoch(world: World) -> None:
    epochs = [(await world.hand(nonce=f"n{number}")).session.epoch for number in range(4)]
    assert epochs == [1, 2, 3, 4]


async def test_an_opening_that_comes_late_takes_nothing_from_a_newer_runtime(world: World) -> None:
    older = await world.hand(nonce="older")
    newer = await world.hand(nonce="newer")
    before = await world.dump()
    with pytest.raises(Stale):
        await world.hand(nonce="older")
    assert await world.dump() == before
    assert await older.authority.newest_epoch(newer.session.agent) == newer.session.epoch


async def test_a_session_that_was_closed_does_not_take_the_epochs_back(world: World) -> None:
    await (await world.hand(nonce="a")).close()
    assert (await world.hand(nonce="b")).session.epoch == 2


async def test_sessions_with_the_same_capabilities_share_one_wake_list(world: World) -> None:
    await world.hand("worker-1", "index", "merge")
    await world.hand("worker-2", "merge", "index")
    assert len(await world.raw.hgetall(world.key("@live"))) == 1
    assert list((await world.raw.hgetall(world.key("@live"))).values()) == [b"2"]


async def test_a_newer_session_takes_over_what_the_older_one_held_and_revokes_its_leases(world: World) -> None:
    """WRK-014, S8: active work goes back to queued under the new session, owned as before, and must be started anew."""
    names = one_in_each(world)
    for name in names:
        await world.mission(name, a_new_item("a", inputs=b"inputs of a" * 20), a_new_item("b"))
    old = await world.hand(nonce="old")
    grants = [grant for name in names for grant in await old.take(name, most=2, slots=1, ahead=1)]
    assert sorted(grant.lease is not None for grant in grants) == [False] * 3 + [True] * 3

    new = await world.hand(nonce="new")

    assert [(grant.group, grant.item) for grant in new.requeued] == [(g.group, g.item) for g in grants]
    assert {grant.lease for grant in new.requeued} == {None}
    assert {grant.capability for grant in new.requeued} == {"index"}
    assert {grant.ownership_epoch for grant in new.requeued} == {1}
    assert [grant.inputs for grant in new.requeued] == [grant.inputs for grant in grants]
    for name in names:
        assert (await world.kinds(GroupId(name)))[-2:] == ["work.requeued"] * 2
        assert [await world.state(GroupId(name), item) for item in ("a", "b")] == ["queued"] * 2
    with pytest.raises(Stale, match="session=1 current=2"):
        await old.do(a_submit(grants[0]), partition=grants[0].partition)
    for grant in new.requeued:
        again = await new.restarted(grant)
        assert (await new.do(a_submit(again), partition=again.partition)).code == "OK"


async def test_a_new_session_asked_for_twice_requeues_once_and_answers_alike(world: World) -> None:
    (name, *_) = one_in_each(world)
    await world.mission(name)
    await (await world.hand(nonce="old")).started(name)
    first = await world.hand(nonce="new")
    before = await world.dump()
    second = await world.hand(nonce="new")
    assert second.session == first.session
    assert second.requeued == first.requeued
    assert await world.dump() == before


async def test_more_items_than_one_call_may_requeue_come_in_several_each_once(world: World) -> None:
    (name, *_) = one_in_each(world)
    other = next(f"x-{n}" for n in range(999) if world.store.partition_of(f"x-{n}") == 0)
    await world.mission(name, *(a_new_item(f"i{number}") for number in range(256)))
    await world.mission(other, *(a_new_item(f"i{number}") for number in range(50)))
    old = await world.hand(nonce="old")
    taken = [grant for _ in range(4) for grant in await old.take(name, most=64)] + await old.take(other, most=64)
    assert len(taken) == 306

    new = await world.hand(nonce="new")

    assert len(new.requeued) == 306
    assert {(g.group, g.item) for g in new.requeued} == {(g.group, g.item) for g in taken}
    kinds = await world.kinds(GroupId(name)) + await world.kinds(GroupId(other))
    assert kinds.count("work.requeued") == 306
    assert (await new.do(a_start(new.requeued[-1]))).code == "OK"


async def test_an_item_whose_session_was_replaced_but_not_requeued_yet_is_refused(world: World) -> None:
    """Between two calls of one installation the new session owns nothing it was not given yet (WRK-014)."""
    (name, *_) = one_in_each(world)
    other = next(f"x-{n}" for n in range(999) if world.store.partition_of(f"x-{n}") == 0)
    await world.mission(name, *(a_new_item(f"i{number}") for number in range(256)))
    await world.mission(other)
    old = await world.hand(nonce="old")
    for _ in range(4):
        await old.take(name, most=64)
    late = await old.accepted(other)

    opened = await world.store.call("open_session", world.store.partition_of("worker-1"), ("worker-1", "new"))
    page = ("worker-1", int(opened[1]), TTL_MS, 1, 0, capability_set([]), "", "-")
    reply = await world.store.call("install_session", 0, page)
    assert reply[1].split()[0] == b"more"
    halfway = Hand(world, world.authority, replace(old.session, epoch=2))
    before = await world.dump()
    assert (await halfway.do(a_start(late))).code == "AUTH_STALE_SESSION"
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []


async def test_a_session_minted_before_a_newer_one_cannot_be_installed_any_more(world: World) -> None:
    """FND-016: issuing epoch 2 fences epoch 1, even where 2 has gone again when 1 comes late."""
    home = world.store.partition_of("worker-1")
    await world.store.call("open_session", home, ("worker-1", "late"))
    newer = await world.hand(nonce="newer")
    late = ("worker-1", 1, TTL_MS, 1, 0, capability_set([]), "", "-")
    with pytest.raises(Stale, match="session=1 current=2"):
        await world.store.call("install_session", home, late)
    await newer.close()
    before = await world.dump()
    with pytest.raises(Stale, match="session=1 current=2"):
        await world.store.call("install_session", home, late)
    assert await world.dump() == before


async def test_of_two_that_race_for_one_agent_the_later_epoch_wins_whatever_the_order_of_installation(
    world: World,
) -> None:
    home = world.store.partition_of("worker-1")
    for nonce in ("one", "two"):
        await world.store.call("open_session", home, ("worker-1", nonce))
    rest = (TTL_MS, 1, 0, capability_set([]), "", "-")
    elsewhere = (home + 1) % 3
    await world.store.call("install_session", elsewhere, ("worker-1", 2, *rest))
    with pytest.raises(Stale):
        await world.store.call("install_session", elsewhere, ("worker-1", 1, *rest))
    assert (await world.raw.hget(world.key("@sessions", elsewhere), "worker-1")).startswith(b"2 ")


async def test_closing_gives_back_what_is_held_and_leaves_nothing_of_the_session(world: World) -> None:
    names = one_in_each(world)
    for name in names:
        await world.mission(name, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    for name in names:
        await hand.take(name, most=2, slots=1, ahead=1)
    await hand.close()
    for name in names:
        assert (await world.kinds(GroupId(name)))[-4:] == ["work.released", "work.offer.created"] * 2
        assert [await world.state(GroupId(name), item) for item in ("a", "b")] == ["offered"] * 2
    assert await registry(world) == {}
    for partition in range(3):
        home = partition == world.store.partition_of("worker-1")
        due = await world.raw.zrange(world.key("@due", partition), 0, -1)
        assert due == ([b"y worker-1 1"] if home else []), "its epoch is known for a while, in its home partition"


async def test_closing_twice_and_closing_after_a_newer_session_change_nothing(world: World) -> None:
    hand = await world.hand(nonce="old")
    newer = await world.hand(nonce="new")
    before = await world.dump()
    await hand.close()
    assert await world.dump() == before
    await newer.close()
    before = await world.dump()
    await newer.close()
    assert await world.dump() == before


async def test_closing_with_more_items_than_one_call_may_give_back_gives_back_all(world: World) -> None:
    (name, *_) = one_in_each(world)
    await world.mission(name, *(a_new_item(f"i{number}") for number in range(256)))
    other = next(f"x-{n}" for n in range(999) if world.store.partition_of(f"x-{n}") == 0)
    await world.mission(other, *(a_new_item(f"i{number}") for number in range(50)))
    hand = await world.hand()
    for _ in range(4):
        await hand.take(name, most=64)
    await hand.take(other, most=50)
    await hand.close()
    kinds = await world.kinds(GroupId(name)) + await world.kinds(GroupId(other))
    assert kinds.count("work.released") == 306
    assert await registry(world) == {}


async def test_a_session_that_neither_renews_nor_closes_is_ended_by_a_tick(world: World) -> None:
    names = one_in_each(world)
    await world.mission(names[1])
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.accepted(names[1])
    await world.pass_ms(10 * SHORT_MS + 1)
    for partition in range(3):
        await world.authority.tick(partition)
    assert (await world.kinds(GroupId(names[1])))[-2:] == ["work.released", "work.offer.created"]
    assert await registry(world) == {}
    with pytest.raises(Stale, match="session=1 current=0"):
        await hand.turn(partition=1)


async def test_an_epoch_is_known_for_an_hour_after_its_session_and_never_given_again(world: World) -> None:
    """S8, S27: what an older runtime still asks meets it; nothing is kept of an Agent that does not come back."""
    if world.clock is None:
        pytest.skip("an hour passes on a frozen clock")
    home = world.store.partition_of("worker-1")
    for number in range(3):
        await (await world.hand(nonce=f"n{number}")).close()
        assert await world.authority.newest_epoch(AgentId("worker-1")) == number + 1
    await world.pass_ms(MINT_KEPT_MS - 1)
    await world.authority.tick(home)
    with pytest.raises(Stale, match="session=1 current=3"):
        await world.hand(nonce="n0")
    await world.pass_ms(1)
    await world.authority.tick(home)
    assert await world.raw.exists(world.key("@epochs", home), world.key("@due", home)) == 0
    assert (await world.hand(nonce="new")).session.epoch == 4


async def test_an_epoch_that_was_minted_and_never_installed_is_forgotten_and_a_live_one_is_not(world: World) -> None:
    if world.clock is None:
        pytest.skip("an hour passes on a frozen clock")
    home = world.store.partition_of("worker-1")
    await world.store.call("open_session", home, ("worker-1", "dies"))
    name = next(f"w{n}" for n in range(99) if world.store.partition_of(f"w{n}") == home)
    live = await world.hand(name, ttl_ms=MINT_KEPT_MS)
    assert live.session.epoch == 2, "one counter for all Agents of a partition"
    await world.pass_ms(2 * MINT_KEPT_MS)
    await world.authority.tick(home)
    assert await world.raw.hkeys(world.key("@epochs", home)) == [name.encode()]


async def test_a_membership_begins_at_the_first_acceptance_and_ends_with_the_session(world: World) -> None:
    """R6, R7: the Membership Epoch is the sequence of the Event that gave it, so a later one is higher."""
    (name, *_) = one_in_each(world)
    await world.mission(name, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    assert await world.raw.exists(world.key("@joined:worker-1")) == 0
    grant = await hand.accepted(name)
    assert await world.raw.hgetall(world.key("@joined:worker-1")) == {
        name.encode(): b"%d %d 0" % (grant.seq, grant.seq)
    }
    await hand.close()
    later = await (await world.hand(nonce="later")).accepted(name)
    assert await world.raw.hget(world.key("@joined:worker-1"), name) == b"%d %d 0" % (later.seq, later.seq)
    assert later.seq > grant.seq


async def test_a_newer_session_of_an_agent_goes_on_as_the_same_member(world: World) -> None:
    (name, *_) = one_in_each(world)
    await world.mission(name)
    grant = await (await world.hand(nonce="old")).started(name)
    await world.hand(nonce="new")
    record = await world.raw.hget(world.key("@joined:worker-1"), name)
    assert record == b"%d %d 0" % (grant.seq, grant.seq + 2), "it is concerned by what was requeued"


async def test_a_session_that_works_is_not_silent(world: World) -> None:
    """Each renewal puts its end off by ten lease TTLs, with or without a lease to renew."""
    hand = await world.hand(ttl_ms=100)
    with_door = RenewalDoor(world.store, hand.session)
    for _ in range(4):
        await world.pass_ms(300)
        for partition in range(3):
            with_door.renew(partition, [])
    await world.authority.tick(0)
    assert (await hand.turn()).outcomes == ()
    with_door.close()


async def test_an_agent_of_any_name_has_sessions(world: World) -> None:
    for name in ("{x}", "a:b", "}{", " ", "@due", "\n", "ü", "a b"):
        hand = await world.hand(AgentId(token(name, field="name")))
        assert hand.session.epoch >= 1
        await hand.close()


async def test_a_refused_call_of_one_partition_is_a_value_beside_the_others(world: World) -> None:
    hand = await world.hand(nonce="old")
    await world.hand(nonce="new")
    answers = await world.authority.turns(hand.session, [Turn(partition, 1, ()) for partition in range(3)])
    assert all(isinstance(answer, TreadleError) and answer.code == "AUTH_STALE_SESSION" for answer in answers)


async def test_another_number_of_slots_is_what_a_session_may_accept_and_what_receipts_say(world: World) -> None:
    one, two, *_ = one_in_each(world)

    async def accepted(name: str) -> str:
        wide = Accept(GroupId(name), ItemId("a"))
        return (await hand.do(wide, partition=world.store.partition_of(name))).code

    hand = await world.hand(slots=2)
    receipt = await world.store.create(a_new_mission(one, a_new_item("a", width=3)))
    assert receipt.unschedulable == {CAPABILITY: 2}
    assert await accepted(one) == "AUTH_FORBIDDEN"
    for _ in range(2):
        await world.authority.resize(hand.session, 3)
        for partition in range(world.store.partitions):
            record = await world.raw.hget(world.key("@sessions", partition), "worker-1")
            assert record.decode().split()[3:] == ["3", CAPABILITY]
    assert await accepted(one) == "OK"
    await world.authority.resize(hand.session, 0)
    receipt = await world.store.create(a_new_mission(two, a_new_item("a", width=3)))
    assert receipt.no_worker == (CAPABILITY,)
    assert await accepted(two) == "AUTH_FORBIDDEN"
    assert await accepted(one) == "INVALID_STATE_TRANSITION", "what it owns stays its own"
    assert (await world.item(one, "a"))["own"] == "worker-1"


async def test_another_number_of_slots_leaves_a_session_its_resources(world: World) -> None:
    session, _ = await world.authority.open_session(
        AgentId("worker-1"),
        [Capability(CAPABILITY)],
        lease_ttl_ms=TTL_MS,
        nonce="nonce",
        slots=2,
        resources=(("gpu", 1), ("scratch", 3)),
    )
    await world.authority.resize(session, 16)
    record = await world.raw.hget(world.key("@sessions"), "worker-1")
    assert record.decode().split()[3:] == ["16,gpu=1,scratch=3", CAPABILITY]
