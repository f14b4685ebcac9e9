"""A run that is asked for its slot, and the slots that Groups wait for: each of the five steps, and each way it may end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item
from store.world import (
    SHORT_MS,
    TTL_MS,
    Hand,
    World,
    a_block,
    a_fail,
    a_release,
    a_reservation,
    a_save,
    a_submit,
    a_yield,
    an_ask,
    lease_of,
)
from treadle.shared.model import EventKind, Grant, GroupId, LeaseId
from treadle.shared.store import FreeSlot, commands, events_of
from treadle.shared.store.repairing import repair
from treadle.shared.store.verifying import verify

REQUESTED = EventKind.PREEMPTION_REQUESTED.value
OVERDUE = EventKind.PREEMPTION_OVERDUE.value


async def due(world: World, item: str = "a") -> float | None:
    """When the run of an item is overdue; None for never."""
    score: float | None = await world.raw.zscore(world.key("@due"), f"v {GROUP} {item}")
    return score


async def slots_of(world: World, group: str = GROUP) -> list[str]:
    """The leases whose slots a Group waits for, as they are written down."""
    stored = await world.raw.hget(world.key(f"{group}:mission"), "slots")
    return [pair.partition("=")[0] for pair in (stored or b"").decode().split()]


async def running(world: World) -> int:
    """The widths that run for the Group, as the store counts them."""
    packed = await world.raw.hget(world.key("@usage"), f"g:{GROUP}")
    return int(packed.split()[1])


# --- the request ---


async def test_a_request_stands_in_the_item_and_in_its_log_and_the_run_goes_on(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    outcome = await hand.do(an_ask(grant, overdue_ms=5_000))
    item = await world.item()
    assert (item["st"], item["ya"], item["lid"]) == ("active", str(outcome.at_ms), lease_of(grant))
    assert await due(world) == outcome.at_ms
    event = (await world.log())[-1]
    assert (event.kind.value, event.data) == (REQUESTED, ("1", lease_of(grant), "fair_share"))
    assert (await hand.do(a_save(grant))).code == "OK"
    assert await hand.renew(grant) == ["OK"]
    assert (await world.item())["ya"] == item["ya"], "saving and renewing leave it asked"


async def test_what_a_turn_says_of_a_request_is_what_the_log_has(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    reply = await hand.turn(an_ask(grant))
    assert hand.last is not None
    assert events_of(hand.last, hand.session, reply)[grant.group] == (await world.log())[-1:]


async def test_a_run_is_asked_once_however_often_it_is_asked(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    assert (await hand.do(an_ask(grant))).code == "OK"
    before = await world.item()
    assert (await hand.do(an_ask(grant, overdue_ms=1, reason="another"))).code == "REPEATED"
    assert await world.item() == before
    assert (await world.kinds()).count(REQUESTED) == 1


async def test_the_next_run_of_the_same_item_may_be_asked_anew(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(an_ask(grant))
    await hand.do(a_yield(grant, keep=False))
    again = await hand.started()
    assert (await hand.do(an_ask(again))).code == "OK"
    assert [event.get("lease") for event in await world.log() if event.kind == REQUESTED] == [
        lease_of(grant),
        lease_of(again),
    ]


# --- what becomes of it (BR-73) ---

End = Callable[[World, Hand, Grant], Awaitable[object]]


async def _lapses(world: World, _hand: Hand, _grant: Grant) -> None:
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)


async def _is_cancelled(world: World, _hand: Hand, grant: Grant) -> None:
    await commands.cancel(world.store, grant.group, grant.item, actor="ana", reason="r")


async def _is_failed_by_command(world: World, _hand: Hand, grant: Grant) -> None:
    await commands.fail_item(world.store, grant.group, grant.item, actor="ana", digest="d", evidence=b"e")


async def _is_expelled(world: World, hand: Hand, grant: Grant) -> None:
    await commands.end_membership(world.store, grant.group, hand.session.agent, actor="ana", reason="no")


async def _closes(_world: World, hand: Hand, _grant: Grant) -> None:
    await hand.close()


async def _is_replaced(world: World, hand: Hand, _grant: Grant) -> None:
    await world.hand(hand.session.agent, nonce="newer")


ENDS: dict[str, tuple[End, str, int]] = {
    "yields": (lambda _, hand, grant: hand.do(a_yield(grant, keep=False)), "offered", 1),
    "yields and keeps": (lambda _, hand, grant: hand.do(a_yield(grant)), "queued", 1),
    "saves twice, then yields": (
        lambda _, hand, grant: hand.turn(a_save(grant), a_save(grant), a_yield(grant, keep=False)),
        "offered",
        1,
    ),
    "finishes": (lambda _, hand, grant: hand.do(a_submit(grant)), "verified", 0),
    "fails": (lambda _, hand, grant: hand.do(a_fail(grant)), "failed", 0),
    "fails for now": (lambda _, hand, grant: hand.do(replace(a_fail(grant), retryable=True)), "failed", 0),
    "blocks": (lambda _, hand, grant: hand.do(a_block(grant)), "blocked", 1),
    "is given back": (lambda _, hand, grant: hand.do(a_release(grant)), "offered", 0),
    "is parked": (lambda _, hand, grant: hand.do(a_release(grant, "CHECKPOINT")), "open", 0),
    "loses its lease": (_lapses, "offered", 0),
    "is cancelled": (_is_cancelled, "cancelled", 0),
    "is failed by a command": (_is_failed_by_command, "failed", 0),
    "loses its Membership": (_is_expelled, "offered", 0),
    "closes its session": (_closes, "offered", 0),
    "is replaced": (_is_replaced, "offered", 0),
}


@pytest.mark.parametrize("how", ENDS)
async def test_br_73_however_its_run_ends_a_request_ends_with_it(how: str, world: World) -> None:
    """The slot is counted free once, the item stands where that end leaves it, and nothing is overdue any more."""
    end, state, checkpoint = ENDS[how]
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand(ttl_ms=SHORT_MS if how == "loses its lease" else TTL_MS)
    grant = await hand.started()
    await hand.do(an_ask(grant, overdue_ms=60_000))
    await end(world, hand, grant)
    item = await world.item()
    assert item["st"] == state
    assert "ya" not in item
    assert await due(world) is None
    assert await running(world) == 0
    assert int(item.get("ckn", "0")) == checkpoint, "the Checkpoint grows by one at most"
    assert (await world.kinds()).count(REQUESTED) == 1
    assert OVERDUE not in await world.kinds()


async def test_s18_a_slot_is_free_only_after_the_checkpoint_of_its_run_is_durable(world: World) -> None:
    """Request, Checkpoint, release, offer: in this order, the last three in one call."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    last = (await world.log())[-1].seq
    await hand.do(an_ask(grant))
    assert await running(world) == 1
    await hand.do(a_yield(grant, keep=False))
    assert await world.kinds(after=last) == [
        REQUESTED,
        "work.checkpointed",
        "work.released",
        "work.offer.created",
    ]
    assert await running(world) == 0


async def test_a_restart_after_a_request_gives_the_item_to_everybody_and_asks_nobody_again(world: World) -> None:
    """L7, BR-71: the run is gone with its process; what was asked of it is done, once."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_save(grant, 1, b"half"))
    await hand.do(an_ask(grant))
    last = (await world.log())[-1].seq
    newer = await world.hand(nonce="newer")
    assert newer.requeued == []
    assert await world.kinds(after=last) == ["work.requeued", "work.released", "work.offer.created"]
    again = await newer.started()
    assert (again.ownership_epoch, again.checkpoint_number) == (2, 1), "it goes on from what was saved"
    assert await newer.do(an_ask(again)), "and its next run may be asked in its turn"


async def test_a_restart_after_the_yield_finds_nothing_left_to_do(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(an_ask(grant))
    await hand.do(a_yield(grant, keep=False))
    before = await world.log()
    newer = await world.hand(nonce="newer")
    assert newer.requeued == []
    assert await world.log() == before


async def test_a_run_that_was_lost_when_it_was_asked_still_counts_as_lost(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(an_ask(await hand.started()))
    newer = await world.hand(nonce="newer")
    assert (await world.item())["lp"] == "1"
    await newer.do(an_ask(await newer.started()))
    await world.hand(nonce="newest")
    assert (await world.log())[-1].data == ("2", "lost"), "a second time it waits, as any run that is lost"


# --- overdue ---


async def test_l7_a_run_that_reaches_no_safe_point_in_time_is_said_to_be_overdue_once(world: World) -> None:
    """Nothing is cut: it may still finish, and its Worker is told."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(an_ask(grant, overdue_ms=100))
    await world.authority.tick(0)
    assert OVERDUE not in await world.kinds()
    await world.pass_ms(101)
    for _ in range(3):
        await world.authority.tick(0)
    events = [event for event in await world.log() if event.kind == OVERDUE]
    assert [(event.by, event.data) for event in events] == [("timer", ("1", lease_of(grant)))]
    assert (await world.item())["ya"] == "0"
    bell = await world.authority.wait(hand.session, tokens=False, timeout_s=1.0)
    assert bell is not None
    assert bell.bell is not None
    assert (bell.bell.group, bell.bell.last) == (GROUP, events[0].seq)
    assert (await hand.do(an_ask(grant))).code == "REPEATED"
    assert (await hand.do(a_submit(grant))).code == "OK"


async def test_a_run_whose_lease_is_over_is_not_overdue_besides(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.do(an_ask(await hand.started(), overdue_ms=1))
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert OVERDUE not in await world.kinds()
    assert await world.state() == "offered"


async def test_a_repaired_group_knows_what_was_asked_and_what_was_said_to_be_overdue(world: World) -> None:
    world.audited = False  # its log was made anew
    group = await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand(ttl_ms=60_000)
    one, two = await hand.take(most=2)
    await hand.do(an_ask(one, overdue_ms=50))
    await hand.do(an_ask(two, overdue_ms=50_000))
    await world.pass_ms(51)
    await world.authority.tick(0)
    assert (await verify(world.store, group)).differences == ()
    await world.raw.zrem(world.key("@due"), f"v {GROUP} b")
    assert [one.what for one in (await verify(world.store, group)).differences] == [f"v {GROUP} b"]
    await world.store.call("halt", 0, (GROUP,))
    await repair(world.store, group, actor="ana", reason="asked")
    for _ in range(4):
        await world.authority.tick(0)
    assert (await due(world, "a"), await due(world, "b")) == (None, int((await world.item(item="b"))["ya"]))


# --- the slots that Groups wait for ---


async def test_a_group_waits_for_no_more_slots_than_it_has_items_and_may_have(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    codes = [
        (await hand.do(a_reservation(lease=lease, most=most))).code
        for lease, most in (("l1", 1), ("l1", 1), ("l2", 1), ("l2", 2), ("l3", 64))
    ]
    assert codes == ["OK", "REPEATED", "RESERVED", "OK", "EMPTY"]
    assert await slots_of(world) == ["l1", "l2"]


async def test_reservations_of_one_turn_count_among_each_other(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item) for item in "abc"))
    hand = await world.hand()
    reply = await hand.turn(
        a_reservation(lease="l1", most=2),
        a_reservation(lease="l2", most=2),
        a_reservation(lease="l3", most=2),
        FreeSlot(GroupId(GROUP), LeaseId("l1")),
        a_reservation(lease="l4", most=2),
    )
    assert [outcome.code for outcome in reply.outcomes] == ["OK", "OK", "RESERVED", "OK", "OK"]
    assert await slots_of(world) == ["l2", "l4"]


async def test_a_slot_that_was_freed_is_waited_for_no_more(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_reservation(lease="l1"))
    free = FreeSlot(GroupId(GROUP), LeaseId("l1"))
    assert [(await hand.do(free)).code for _ in range(2)] == ["OK", "REPEATED"]
    assert await world.raw.hexists(world.key(f"{GROUP}:mission"), "slots") == 0
    assert (await hand.do(a_reservation(lease="l2"))).code == "OK"


async def test_a_reservation_nobody_frees_is_over_by_the_stores_time(world: World) -> None:
    """A Worker that died between reserving and asking leaves nothing that stays."""
    await world.mission()
    hand = await world.hand()
    await hand.do(a_reservation(lease="l1", ttl_ms=100))
    assert (await hand.do(a_reservation(lease="l2"))).code == "EMPTY"
    await world.pass_ms(101)
    assert (await hand.do(a_reservation(lease="l2"))).code == "OK"
    assert await slots_of(world) == ["l2"]
    assert (await hand.do(FreeSlot(GroupId(GROUP), LeaseId("l1")))).code == "REPEATED"


async def test_a_reservation_appends_nothing_and_moves_nothing_that_others_see(world: World) -> None:
    """Nobody's log says that another Group gave something up for it."""
    await world.mission()
    hand = await world.hand()
    log, version = await world.log(), await world.raw.hget(world.key("@meta"), "version")
    await hand.do(a_reservation())
    assert await world.log() == log
    assert await world.raw.hget(world.key("@meta"), "version") == version
    assert (await verify(world.store, GroupId(GROUP))).differences == ()


async def test_what_a_group_waited_for_goes_with_it(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), keep_results_s=1)
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_reservation(lease="l1"))
    await hand.do(a_submit(grant))
    await hand.do(a_submit(await hand.started()))
    await world.pass_ms(1001)
    for _ in range(4):
        await world.authority.tick(0)
    assert await world.raw.hget(world.key(f"{GROUP}:mission"), "expired") == b"1"
    assert await slots_of(world) == []
    assert (await hand.do(FreeSlot(GroupId(GROUP), LeaseId("l1")))).code == "GROUP_NOT_FOUND"
