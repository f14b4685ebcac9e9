"""A halted Group is repaired: its log is made anew from its items, whatever was done to it, and its Mission goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from builders import GROUP, a_new_item
from store.harms import DAMAGE, FOREIGN, REBORN
from store.refused_commands import COMMANDS, growing
from store.world import SHORT_MS, Hand, World, a_block, a_submit, a_take
from treadle.shared.errors import Refused
from treadle.shared.model import AgentId, EventKind, Grant, GroupId, ItemId, Priority, Urgency
from treadle.shared.store import commands, repairing, snapshots, standing, verifying
from treadle.shared.store.differences import Difference
from treadle.shared.store.replies import parse_usage
from treadle.worker.core.inbox import Inbox

GOOD, GROUP_ID = GroupId("good"), GroupId(GROUP)
LOST = {"a Mission of another type", "a Mission that is gone"}
ITEMS = {name for name in DAMAGE if name.startswith("an item") or "list of dependents" in name}
WHOLE = {"a malformed payload"}
LOGS = sorted(DAMAGE.keys() - LOST - ITEMS - WHOLE)


async def begun(world: World) -> tuple[Hand, Grant]:
    """A Group with one item that runs, one to take and one that waits; and a good one."""
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", after=("a",)))
    await world.mission(GOOD)
    hand = await world.hand()
    (grant,) = await hand.take()
    return hand, grant


async def repaired(world: World, **options: Any) -> repairing.Plan:
    await repairing.halt(world.store, GROUP)
    return await repairing.repair(world.store, GROUP, actor="ana", reason="disk", **options)


async def settle(world: World) -> None:
    """Let ticks carry out all that is due."""
    for _ in range(6):
        await world.authority.tick(0)


async def finish(world: World, hand: Hand) -> None:
    """Do what is left of the Group, however often it is offered."""
    for _ in range(4):
        await settle(world)
        for grant in await hand.take(most=8):
            assert (await hand.do(a_submit(grant))).code == "OK"


async def differences(world: World, group: GroupId = GROUP) -> Sequence[Difference]:
    return (await verifying.verify(world.store, group)).differences


@pytest.mark.parametrize("name", LOGS)
async def test_s12_a_group_is_repaired_and_its_mission_is_approved(name: str, world: World) -> None:
    hand, grant = await begun(world)
    await DAMAGE[name].harm(world)
    assert (await hand.do(a_submit(grant))).code == DAMAGE[name].writer
    await repaired(world)
    await settle(world)
    if DAMAGE[name].writer in (FOREIGN, REBORN):
        assert await world.state() == "active", "what ran runs on: its lease is what it was"
        assert (await hand.do(a_submit(grant))).code == "OK"
    await finish(world, hand)
    view = await world.store.mission(GROUP)
    assert view is not None
    assert (view.halted, view.state, view.verified, view.total) == ("", "approved", 3, 3)
    assert await differences(world) == ()
    assert await differences(world, GOOD) == ()


async def test_a_new_log_begins_behind_the_old_one_in_the_next_incarnation(world: World) -> None:
    await begun(world)
    last = len(await world.log())
    await DAMAGE["a hole in the log"].harm(world)
    await repaired(world)
    (event,) = await world.store.read_log(GROUP, after=last)
    assert (event.kind, event.seq, event.by) == (EventKind.GROUP_REPAIRED, last + 1, "ana")
    assert event.event_id == f"m-1.2.{last + 1}"
    assert (event.get("incarnation"), event.get("through"), event.get("reason")) == ("2", str(last), "disk")
    assert await world.store.read_log(GROUP) == [event], "who reads from the start is not told of a hole"


async def test_a_worker_that_knew_the_old_log_goes_on_in_the_new_one(world: World) -> None:
    hand, grant = await begun(world)
    inbox = Inbox(AgentId("worker-1"))
    known = await world.log()
    inbox.receive(GROUP, 0, 1, len(known), known)
    await DAMAGE["a deleted log"].harm(world)
    await repaired(world)
    await settle(world)
    reply = await hand.turn(a_submit(grant))
    (bell,) = reply.bells
    assert bell.incarnation == 2
    received = inbox.receive(GROUP, bell.previous, bell.first, bell.last)
    assert received.read_after is not None
    fresh = inbox.replay(GROUP, await world.store.read_log(GROUP, after=received.read_after)).fresh
    assert [event.incarnation for event in fresh] == [2] * len(fresh)
    assert inbox.cursor(GROUP) >= bell.last
    behind = Inbox(AgentId("worker-9"))
    behind.receive(GROUP, 0, 1, 1, known[:1])
    behind.receive(GROUP, 4, 5, bell.last)
    assert behind.replay(GROUP, await world.store.read_log(GROUP, after=1)).fresh[0].begins_anew


@pytest.mark.parametrize("name", sorted(ITEMS))
async def test_items_that_nobody_can_read_are_named_and_dropped_only_where_that_is_asked(
    name: str, world: World
) -> None:
    hand, grant = await begun(world)
    await DAMAGE[name].harm(world)
    await hand.do(a_submit(grant))
    await repairing.halt(world.store, GROUP)
    plan = await repairing.examine(world.store, GROUP)
    if "dependents" in name:
        assert plan.damaged == ()
        return
    assert [item for item, _ in plan.damaged] == ["a"]
    before = await world.dump()
    with pytest.raises(Refused, match=r"1 items cannot be read \(a \((damaged|gone)\)\); --drop-damaged fails them"):
        await repaired(world)
    assert await world.dump() == before
    await repaired(world, drop_damaged=True)
    await finish(world, hand)
    item = await world.store.item(GROUP, ItemId("a"), bodies=True)
    assert item is not None
    assert (item.state, b"DamagedItem" in item.failure) == ("failed", True)
    view = await world.store.mission(GROUP)
    assert view is not None
    assert (view.state, view.failed, view.verified, view.cancelled) == ("failed", 1, 1, 1)
    assert await differences(world) == ()


@pytest.mark.parametrize("name", sorted(LOST))
async def test_a_mission_whose_own_record_is_lost_is_said_to_be_beyond_repair(name: str, world: World) -> None:
    hand, grant = await begun(world)
    await DAMAGE[name].harm(world)
    await hand.do(a_submit(grant))
    with pytest.raises(Refused, match="cannot be repaired: its own record"):
        await repaired(world)


async def test_a_repair_that_was_killed_anywhere_is_ended_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand, grant = await begun(world)
    await DAMAGE["a deleted log"].harm(world)
    await hand.do(a_submit(grant))
    await world.raw.zadd(world.key("@halted"), {f"n {GROUP} b": 1})
    call, left = world.store.call, 0

    async def killed(function: str, partition: int, arguments: Any) -> list[bytes]:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        answer = await call(function, partition, arguments)
        if left == 0:
            raise KeyboardInterrupt
        return answer

    for allowed in range(1, 40):
        left = allowed
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(world.store, "call", killed)
            await repairing.repair(world.store, GROUP, actor="ana", reason="disk")
            break
    else:
        pytest.fail("it never came to its end")
    assert allowed >= 4, "it was killed at each of its calls"
    assert (await world.kinds()).count("group.repaired") == 1
    assert await world.raw.zcard(world.key("@halted")) == 0
    await settle(world)
    assert (await hand.do(a_submit(grant))).code == "OK"
    await finish(world, hand)
    assert await differences(world) == ()


async def test_more_items_than_a_call_may_list_are_listed_by_ticks_and_everybody_is_rung(world: World) -> None:
    world.audited = False
    await world.mission(GROUP, *(a_new_item(f"i{number:03}") for number in range(200)))
    hand = await world.hand()
    await DAMAGE["a deleted log"].harm(world)
    await hand.take()
    await world.raw.zadd(world.key("@take:index"), {f"{GROUP} 0:stray": 0})
    await world.raw.zadd(world.key("@held:worker-1"), {f"{GROUP} stray": 0})
    await repaired(world)
    await world.authority.tick(0)
    assert await world.raw.zcard(world.key("@take:index")) == 64
    await settle(world)
    assert await world.raw.zcard(world.key("@take:index")) == 200
    assert await world.raw.zcard(world.key("@held:worker-1")) == 0
    assert len(await hand.take(most=64)) == 64
    assert await differences(world) == ()


@pytest.mark.parametrize("end", ["cancelled", "ended"])
async def test_a_mission_that_had_ended_stays_ended_and_what_was_left_is_withdrawn(end: str, world: World) -> None:
    hand, grant = await begun(world)
    await world.store.call("cancel", 0, (GROUP, "-", "ana", "reason"))
    if end == "ended":
        await settle(world)
    await DAMAGE["a deleted log"].harm(world)
    await repaired(world)
    await settle(world)
    assert (await hand.do(a_submit(grant))).code == "INVALID_STATE_TRANSITION"
    view = await world.store.mission(GROUP)
    assert view is not None
    assert (view.state, view.cancelled, view.halted) == ("cancelled", 3, "")
    assert await differences(world) == ()


async def test_an_open_mission_goes_on_growing(world: World) -> None:
    world.audited = False
    await growing(world)
    hand = await world.hand(ttl_ms=SHORT_MS)
    await DAMAGE["a deleted log"].harm(world)
    await hand.take()
    await repaired(world)
    await world.store.call("add", 0, (GROUP, 0, "ana", "- - 0", "b", *COMMANDS["add"][4:]))
    await finish(world, hand)
    assert await world.state(item="b") == "verified"
    assert await differences(world) == ()


async def test_what_another_list_says_of_a_group_is_said_by_verify(world: World) -> None:
    await begun(world)
    assert await differences(world) == ()
    await world.raw.zrem(world.key("@take:index"), *(await world.raw.zrange(world.key("@take:index"), 0, 0)))
    await world.raw.zadd(world.key("@take:index"), {f"{GROUP} 0:stray": 0})
    await world.raw.zrem(world.key("@due"), f"l {GROUP} a")
    await world.raw.hset(world.key(f"{GROUP}:i:b"), "w", "2")
    found = {(one.where, one.what, one.expected, one.found) for one in await differences(world)}
    assert ("@due", f"l {GROUP} a", "an entry", "none") in found
    assert ("@take:index", f"{GROUP} 0:stray", "no entry", "an entry") in found
    assert ("b", "width", "1", "2") in found
    assert len(found) >= 3


@pytest.mark.parametrize("name", sorted(DAMAGE.keys() - WHOLE))
async def test_verify_finds_each_damage_of_the_table(name: str, world: World) -> None:
    await begun(world)
    await DAMAGE[name].harm(world)
    assert await differences(world) != ()
    assert await differences(world, GOOD) == ()


async def test_s13_a_new_log_begins_with_a_snapshot_that_tells_with_it_what_the_store_has(world: World) -> None:
    hand, grant = await begun(world)
    last = len(await world.log())
    await DAMAGE["a deleted log"].harm(world)
    await repaired(world)
    snapshot = await snapshots.newest(world.store, GROUP)
    assert snapshot is not None
    assert (snapshot.through, snapshot.incarnation, snapshot.items["a"].owner) == (last, 2, "worker-1")
    (event,) = await world.store.read_log(GROUP)
    assert event.get("digest") == snapshot.digest()
    await settle(world)
    await hand.do(a_submit(grant))
    told = await snapshots.fold(world.store, GROUP)
    stored = await world.store.run(standing.state_of, world.store.base(0), GROUP)
    assert told.canonical() == stored.canonical()
    assert (await snapshots.create(world.store, GROUP, keep=0)).through == told.through
    await finish(world, hand)
    assert await differences(world) == ()


async def test_a_run_whose_item_nobody_can_read_is_not_counted_for_ever(world: World) -> None:
    hand, _ = await begun(world)
    await hand.take()
    await DAMAGE["an item that is gone"].harm(world)
    await repaired(world, drop_damaged=True)
    base = world.store.base(0)
    for node in (f"g:{GROUP}", "a:standard:acme", "c:standard"):
        packed = await world.raw.hget(base + "@usage", node)
        assert parse_usage(packed.decode().split()).running == 1, node
    await world.raw.hset(base + "@usage", f"g:{GROUP}", "0 2 0 0 0 0 1 1 1")
    assert "@usage" in {one.where for one in await differences(world)}


async def test_a_group_that_is_not_halted_is_not_repaired(world: World) -> None:
    await begun(world)
    before = await world.dump()
    await repairing.repair(world.store, GROUP, actor="ana", reason="disk")
    assert await world.dump() == before


async def test_blocked_items_and_offers_to_some_are_verified_and_repaired_as_they_stand(world: World) -> None:
    world.audited = False
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", offer="named:worker-1 0"))
    hand = await world.hand()
    one, two = await hand.take(most=2)
    assert (await hand.do(a_block(one))).done
    assert await differences(world) == ()
    await DAMAGE["a deleted log"].harm(world)
    await repaired(world)
    await settle(world)
    assert await differences(world) == ()
    due = [member.decode() for member in await world.raw.zrange(world.key("@due"), 0, -1)]
    assert f"b {GROUP} a" in due
    assert (await hand.do(a_submit(two))).done
    assert await world.state() == "blocked"


async def test_a_changed_priority_is_verified_and_outlives_a_repair(world: World) -> None:
    world.audited = False
    await world.mission(GROUP, *(a_new_item(item) for item in "abc"))
    to = Priority(Urgency.CRITICAL, business_impact=3)
    await commands.prioritise(world.store, GROUP, ItemId("c"), to, actor="ana", action="1")
    assert await differences(world) == ()
    await DAMAGE["a deleted log"].harm(world)
    await repaired(world)
    await settle(world)
    assert await differences(world) == ()
    assert [grant.item for grant in await (await world.hand()).take(most=3)] == ["c", "a", "b"]


async def test_a_repaired_group_counts_once_in_its_account_and_its_class(world: World) -> None:
    """Else what is known of them stays for ever: their last Group never goes."""
    await begun(world)
    before = await world.raw.hgetall(world.key("@tally"))
    await DAMAGE["a hole in the log"].harm(world)
    await repaired(world)
    assert await world.raw.hgetall(world.key("@tally")) == before


async def test_an_item_that_was_dropped_is_in_no_list_of_what_is_blocked_or_parked(world: World) -> None:
    hand, grant = await begun(world)
    assert (await hand.do(a_block(grant))).code == "OK"
    await world.raw.zadd(world.key("@parked"), {f"{GROUP} a": 1})
    await world.raw.hset(world.key(f"{GROUP}:i:a"), "st", "of another world")
    await repaired(world, drop_damaged=True)
    await settle(world)
    for name in ("@blocked", "@parked"):
        assert await world.raw.zrange(world.key(name), 0, -1) == []


async def test_r6_who_was_kept_out_is_kept_out_of_a_group_whose_record_was_damaged(world: World) -> None:
    hand, _ = await begun(world)
    await commands.end_membership(world.store, GROUP_ID, AgentId("worker-1"), actor="ana", reason="leak")
    await world.raw.hset(world.key("@groups"), GROUP, "of another world")
    await repaired(world)
    await settle(world)
    assert (await hand.do(a_take())).code == "MEMBERSHIP_STALE"


async def test_a_list_of_who_is_kept_out_that_cannot_be_read_halts_its_group_alone(world: World) -> None:
    hand, _ = await begun(world)
    await commands.end_membership(world.store, GROUP_ID, AgentId("worker-2"), actor="ana", reason="leak")
    await world.raw.delete(world.key(f"{GROUP}:ended"))
    await world.raw.set(world.key(f"{GROUP}:ended"), "of another world")
    bad, good = (await hand.turn(a_take(), a_take(GOOD), slots=8)).outcomes
    assert (bad.code, good.code) == (FOREIGN, "OK")


async def test_a_blocked_item_without_the_end_of_its_lease_halts_its_group(world: World) -> None:
    hand, grant = await begun(world)
    assert (await hand.do(a_block(grant))).code == "OK"
    await world.raw.hdel(world.key(f"{GROUP}:i:a"), "bex")
    with pytest.raises(Refused) as refused:
        await commands.unblock(
            world.store, GROUP_ID, ItemId("a"), actor="ana", action="1", digest="d", resolution=b"yes"
        )
    assert refused.value.code == FOREIGN
