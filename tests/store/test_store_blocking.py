"""Blocking: a run ends at its Checkpoint, its slot is free, its ownership is kept for a bounded time (R47, C9, WRK-017)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item
from store.world import SHORT_MS, Hand, World, a_block, a_release, a_save, a_start, a_submit, a_take, a_yield
from treadle.shared import codec
from treadle.shared.answers import Block
from treadle.shared.damage import Damage
from treadle.shared.errors import Refused
from treadle.shared.model import EventKind, Grant, GroupId, ItemId, ItemState
from treadle.shared.store import commands, keys
from treadle.shared.store.pictures import why
from treadle.shared.store.stuck import blocked

ITEM = ItemId("a")
NEEDS = codec.pack({"who": "ana"}, field="needs", limit=codec.EVIDENCE_MAX)
YES = codec.pack({"approved": True, "note": "n" * 100}, field="resolution", limit=codec.RESULT_MAX)


async def unblock(world: World, *, action: str = "1", resolution: bytes = YES) -> str:
    digest = codec.digest(resolution)
    group = GroupId(GROUP)
    return await commands.unblock(
        world.store, group, ITEM, actor="ana", action=action, digest=digest, resolution=resolution
    )


async def a_blocked_item(world: World, *, ttl_ms: int = 60_000, hand: Hand | None = None) -> tuple[Hand, Grant]:
    await world.mission()
    hand = hand or await world.hand()
    grant = await hand.started()
    assert (await hand.do(a_block(grant, needs=NEEDS, ttl_ms=ttl_ms))).code == "OK"
    return hand, grant


async def view(world: World) -> tuple[ItemState, Block | None]:
    found = await world.store.item(GroupId(GROUP), ITEM)
    assert found is not None
    return found.state, found.blocked


# --- blocking ---


async def test_r47_blocking_checkpoints_says_why_and_frees_the_slot_in_one_step(world: World) -> None:
    """S18's order: whoever sees the slot free sees the Checkpoint stored."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.started()
    await world.pass_ms(7)
    before = (await world.log())[-1].seq
    reply = await hand.turn(a_block(grant, 1, b"half done", reason="which%20one", needs=NEEDS), a_take(), slots=1)
    block, take = reply.outcomes
    assert [given.item for given in take.grants] == ["b"], "the slot is taken again in the same call"
    event = next(event for event in await world.log() if event.seq == before + 1)
    assert (event.kind, event.by, event.payload) == (EventKind.BLOCKED, "worker-1@1", NEEDS)
    assert event.data == ("1", "1", codec.digest(b"half done"), "9", str(block.at_ms), "which%20one")
    item = await world.item()
    assert (item["st"], item["own"], int(item["bex"])) == ("blocked", "worker-1", block.at_ms)
    assert block.at_ms == event.at_ms + 60_000
    assert await view(world) == (
        ItemState.BLOCKED,
        Block("which one", {"who": "ana"}, event.at_ms, event.at_ms + 60_000),
    )
    usage = await world.store.run(lambda client: client.hget(keys.usage(world.store.base(0)), f"g:{GROUP}"))
    assert usage.split()[1] == b"1", "the run that was blocked is charged, and only the other one runs"


async def test_a_block_need_not_bring_a_checkpoint_that_was_saved_before(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    block = a_block(grant, 2, b"", digest=codec.digest(b"two" * 50))
    reply = await hand.turn(a_save(grant, 1, b"one"), a_save(grant, 2, b"two" * 50), block)
    assert [outcome.code for outcome in reply.outcomes] == ["OK"] * 3
    assert reply.outcomes[2].size == 150
    assert (await world.item())["ckn"] == "2"


async def test_a_block_stored_before_is_answered_as_repeated_under_another_number_of_the_lane(world: World) -> None:
    hand, grant = await a_blocked_item(world)
    before = await world.log()
    assert (await hand.do(a_block(grant, needs=NEEDS))).code == "REPEATED"
    assert await world.log() == before


async def test_nothing_of_a_blocked_item_is_taken_and_its_mission_does_not_end(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a"]))
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_block(grant))
    (other,) = await hand.take(most=9)
    assert other.item == "b"
    await hand.do(a_submit(other))
    assert await hand.take() == []
    mission = await world.store.mission(GroupId(GROUP))
    assert mission is not None
    assert mission.state == "active", "what is blocked is live"


@pytest.mark.parametrize("make", [a_save, a_yield, a_submit, a_start, a_release, a_block])
async def test_the_owner_of_a_blocked_item_can_do_nothing_with_it(
    make: Callable[[Grant], object], world: World
) -> None:
    hand, grant = await a_blocked_item(world)
    before = await world.item()
    code = (await hand.do(make(grant))).code  # type: ignore[arg-type]
    assert code in ("WORK_LEASE_EXPIRED", "INVALID_STATE_TRANSITION", "REPEATED")
    assert await world.item() == before


# --- unblocking ---


async def test_unblocked_in_time_it_is_queued_for_its_owner_who_is_rung(world: World) -> None:
    hand, grant = await a_blocked_item(world)
    assert await unblock(world) == "queued"
    wake = await world.authority.wait(hand.session, tokens=False, timeout_s=1)
    assert wake is not None
    assert wake.bell is not None
    (event,) = [event for event in await world.log() if event.kind is EventKind.UNBLOCKED]
    assert (wake.bell.first, wake.bell.last) == (event.seq, event.seq)
    assert (event.by, event.get("epoch"), event.get("digest")) == ("ana", "1", codec.digest(YES))
    assert int(event.get("start_by_ms")) == event.at_ms + 60_000 == int((await world.item())["sby"])
    assert await (await world.hand("worker-2")).take() == [], "it is nobody else's"
    again = await hand.restarted(grant)
    assert (again.ownership_epoch, again.checkpoint_number, again.has_resolution) == (1, 1, True)
    assert again.checkpoint_digest == codec.digest(b"state")
    assert await world.authority.read(0, [(grant.group, ITEM, "rv")]) == [YES]
    assert await view(world) == (ItemState.ACTIVE, None)


async def test_an_action_that_comes_again_does_nothing_a_second_time(world: World) -> None:
    hand, grant = await a_blocked_item(world)
    assert await unblock(world) == "queued"
    again = await hand.restarted(grant)
    await hand.do(a_block(again, 2, b"once more"))
    before = await world.log()
    assert await unblock(world) == "blocked", "the answer to the first question is none to the second"
    assert await world.log() == before
    assert await unblock(world, action="2") == "queued"


async def test_the_blocked_lease_lapses_by_redis_time_and_the_item_stays_blocked(world: World) -> None:
    hand, _ = await a_blocked_item(world, ttl_ms=1000)
    await world.pass_ms(1001)
    await world.authority.tick(0)
    lapsed = (await world.log())[-1]
    assert (lapsed.kind, lapsed.get("what"), lapsed.get("agent")) == (EventKind.LAPSED, "blocked", "worker-1")
    state, block = await view(world)
    assert (state, block and block.until_ms) == (ItemState.BLOCKED, 0)
    assert await unblock(world) == "offered"
    assert (await world.log())[-2].get("start_by_ms") == "0"
    (grant,) = await (await world.hand("worker-2")).take()
    assert (grant.ownership_epoch, grant.checkpoint_number, grant.has_resolution) == (2, 1, True)
    assert (await hand.do(a_start(grant))).code == "WORK_STALE_OWNERSHIP"


async def test_unblocked_late_it_is_open_even_where_no_tick_has_seen_the_lapse(world: World) -> None:
    await a_blocked_item(world, ttl_ms=1000)
    await world.pass_ms(1001)
    assert await unblock(world) == "offered"
    assert (await world.kinds())[-3:] == ["work.lease_lapsed", "work.unblocked", "work.offer.created"]


async def test_unblocked_while_its_owner_is_silent_it_waits_for_nobody(world: World) -> None:
    """BR-17: the answer is not queued for a Worker that was killed, until its session and a start-by time are over."""
    hand = await world.hand(ttl_ms=SHORT_MS)
    await a_blocked_item(world, hand=hand)
    await world.pass_ms(4 * SHORT_MS + 1)
    assert await unblock(world) == "offered"
    assert (await world.log())[-3].get("what") == "blocked"


async def _closed(hand: Hand) -> None:
    await hand.close()


async def _replaced(hand: Hand) -> None:
    again = await hand.world.hand(nonce="newer")
    assert again.requeued == [], "what is blocked is not the new session's to run"


async def _silent(hand: Hand) -> None:
    await hand.world.pass_ms(10 * SHORT_MS + 1)
    await hand.world.authority.tick(0)


@pytest.mark.parametrize("end", [_closed, _replaced, _silent], ids=["closed", "replaced", "silent"])
async def test_br_17_with_the_session_of_its_owner_the_ownership_ends_and_the_block_does_not(
    end: Callable[[Hand], Awaitable[None]], world: World
) -> None:
    """BR-17: why it is blocked is known to the store, not to a process; whoever is there goes on with it once it is lifted."""
    hand = await world.hand(ttl_ms=SHORT_MS)
    await a_blocked_item(world, hand=hand)
    await end(hand)
    assert (await world.kinds())[-1] == "work.released"
    assert await world.raw.zrange(world.key("@held:worker-1"), 0, -1) == []
    (one,) = await blocked(world.store)
    assert (one.owner, one.block.reason, one.block.needs, one.block.until_ms) == (None, "why", {"who": "ana"}, 0)
    facts = await why(world.store, GroupId(GROUP), ITEM)
    assert facts is not None
    assert facts.blocked == one.block
    assert await unblock(world) == "offered"
    assert await blocked(world.store) == []
    (grant,) = await (await world.hand("worker-2")).take()
    assert grant.ownership_epoch == 2


async def _keeps(world: World) -> None:
    await a_blocked_item(world)


async def _lost(world: World) -> None:
    hand, _ = await a_blocked_item(world)
    await hand.close()


OWNERSHIPS = pytest.mark.parametrize("owned", [_keeps, _lost], ids=["owned", "ownerless"])


@OWNERSHIPS
async def test_a_blocked_item_is_cancelled_and_nothing_of_its_block_is_left(
    owned: Callable[[World], Awaitable[None]], world: World
) -> None:
    await owned(world)
    assert await commands.cancel(world.store, GroupId(GROUP), ITEM, actor="ana", reason="no") == "cancelled"
    assert (await world.kinds())[-1] == "mission.terminated"
    with pytest.raises(Refused, match="INVALID_STATE_TRANSITION"):
        await unblock(world)


@OWNERSHIPS
async def test_a_blocked_item_fails_by_command(owned: Callable[[World], Awaitable[None]], world: World) -> None:
    await owned(world)
    await commands.fail_item(world.store, GroupId(GROUP), ITEM, actor="ana", digest="d", evidence=b"by hand")
    assert (await view(world)) == (ItemState.FAILED, None)


@OWNERSHIPS
async def test_a_blocked_item_is_cancelled_with_its_mission(
    owned: Callable[[World], Awaitable[None]], world: World
) -> None:
    await owned(world)
    await commands.cancel(world.store, GroupId(GROUP), None, actor="ana", reason="no")
    while (await world.authority.tick(0))[1]:
        pass
    assert await world.state() == "cancelled"


async def test_a_resolution_is_kept_until_the_item_has_ended_and_no_longer(world: World) -> None:
    hand, grant = await a_blocked_item(world)
    await unblock(world)
    again = await hand.restarted(grant)
    await hand.do(a_release(again))
    (third,) = await hand.take()
    assert third.has_resolution, "whoever runs it finds it"
    await hand.do(a_submit(third))
    assert await world.authority.read(0, [(grant.group, ITEM, "rv")]) == [None]
    assert "rvx" not in await world.item()


# --- two Checkpoints ---


async def test_the_newest_two_checkpoints_are_kept_with_their_digests(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    for number in range(1, 6):
        await hand.do(a_save(grant, number, b"%d" % number * 100))
    await hand.do(a_release(grant))
    (again,) = await hand.take()
    assert (again.checkpoint_number, again.checkpoint_digest) == (5, codec.digest(b"5" * 100))
    assert again.checkpoint_before == codec.digest(b"4" * 100)
    assert await world.authority.read(0, [(grant.group, ITEM, f"ck{parity}") for parity in (0, 1)]) == [
        b"4" * 100,
        b"5" * 100,
    ]


async def test_br_55_an_item_that_cannot_be_read_is_parked_and_no_run_of_it_is_counted(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    damage = Damage.found("result", b"\xc1", of="another one")
    await hand.do(replace(a_release(grant, "POISON"), found=damage.packed()))
    assert (await world.kinds())[-2:] == ["work.released", "work.parked"]
    assert await hand.take() == []
    found = await world.store.item(GroupId(GROUP), ITEM)
    assert found is not None
    assert (found.held, found.lost_runs, found.damage) == ("POISON", 0, damage)
    await commands.retry(world.store, GroupId(GROUP), ITEM, actor="ana", action="1")
    found = await world.store.item(GroupId(GROUP), ITEM)
    assert found is not None
    assert (found.held, found.damage) == ("", None), "what is done again is damaged no more until it is found to be"


async def test_an_item_given_back_for_its_checkpoints_is_parked_and_begins_anew_when_it_is_retried(
    world: World,
) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_save(grant, 1, b"one" * 50))
    await hand.do(a_release(grant, "CHECKPOINT"))
    assert (await world.kinds())[-2:] == ["work.released", "work.parked"]
    assert await hand.take() == []
    found = await world.store.item(GroupId(GROUP), ITEM)
    assert found is not None
    assert found.held == "CHECKPOINT"
    await commands.retry(world.store, GroupId(GROUP), ITEM, actor="ana", action="1")
    (again,) = await hand.take()
    assert (again.checkpoint_number, again.checkpoint_digest) == (1, ""), "the numbers go on"
    assert await world.authority.read(0, [(grant.group, ITEM, "ck1")]) == [None]
    assert (await hand.do(a_save(again, 2, b"anew"))).code == "OK"


async def test_the_answer_to_one_question_is_none_to_the_next(world: World) -> None:
    """Offered anew without an answer, the handler asks again, instead of taking the old one for it."""
    hand, grant = await a_blocked_item(world)
    await unblock(world)
    grant = await hand.restarted(grant)
    assert (await world.item())["rvx"], "it stays however often the item is run"
    assert (await hand.do(a_block(grant, 2, b"two"))).code == "OK"
    await hand.close()
    await commands.offer(world.store, GroupId(GROUP), ITEM, "- 0", actor="ana", action="2")
    assert not {"rv", "rvx"} & (await world.item()).keys()
    assert await world.raw.exists(world.key(f"{GROUP}:rv:a")) == 0
