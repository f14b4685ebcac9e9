"""What time brings: leases and start-by deadlines lapse, pumps go on, and a tick touches nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest
from builders import GROUP, a_new_item
from store.world import (
    SHORT_MS,
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
from treadle.shared.model import EventKind, Grant
from treadle.shared.store import Operation

BOTH_ORDERS = list(permutations(("retry", "sweep")))


async def tick(world: World) -> int:
    """One tick of partition 0; how many entries were due."""
    return (await world.authority.tick(0))[1]


async def test_a_tick_with_nothing_due_writes_nothing(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.started()
    before = await world.dump()
    assert await tick(world) == 0
    assert await world.dump() == before


async def test_a_lapsed_lease_offers_the_item_to_everybody_at_its_last_checkpoint(world: World) -> None:
    await world.mission()
    hand, other = await world.hand(ttl_ms=SHORT_MS), await world.hand("worker-2")
    grant = await hand.started()
    await hand.do(a_save(grant, 1, b"half"))
    assert grant.lease is not None
    assert await tick(world) == 0, "not before it has lapsed"
    await world.pass_ms(SHORT_MS)
    assert await tick(world) == 1
    lapsed, offered = (await world.log())[-2:]
    assert (lapsed.kind, lapsed.by) == (EventKind.LAPSED, "timer")
    assert lapsed.data == ("1", "worker-1", "lease", str(grant.lease.expires_ms))
    assert offered.data == ("index", "lapsed", "-", "0")
    again = await other.started()
    assert (again.ownership_epoch, again.checkpoint_number) == (2, 1)
    assert again.lease is not None
    assert again.lease.number == 2


async def test_the_owner_of_a_lapsed_lease_is_rung(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.started()
    last = (await world.log())[-1].seq
    await world.pass_ms(SHORT_MS)
    await tick(world)
    assert await world.raw.lrange(world.key("@inbox:worker-1"), 0, -1) == [
        f"{GROUP} {last} {last + 1} {last + 2}".encode()
    ]


async def test_a_lapse_is_charged_up_to_the_expiry_however_late_the_tick_comes(world: World) -> None:
    await world.mission(GROUP, a_new_item(width=3))
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.started()
    await world.pass_ms(3 * SHORT_MS)
    await tick(world)
    used, running, starts, estimate, typical, *_ = (await world.raw.hget(world.key("@usage"), f"g:{GROUP}")).split()
    assert (used, running, starts, estimate, typical) == (b"%d" % (3 * SHORT_MS), b"0", b"0", b"0", b"%d" % SHORT_MS)


@pytest.mark.parametrize("how", ["release", "close", "new session"])
async def test_what_ends_a_lapsed_run_before_any_tick_charges_up_to_the_expiry_too(how: str, world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS, nonce="old")
    grant = await hand.started()
    await world.pass_ms(3 * SHORT_MS)
    if how == "release":
        await hand.do(a_release(grant))
    elif how == "close":
        await hand.close()
    else:
        await world.hand(nonce="new")
    assert (await world.raw.hget(world.key("@usage"), f"g:{GROUP}")).split()[0] == b"%d" % SHORT_MS


async def test_a_renewed_lease_lapses_at_its_new_expiry(world: World) -> None:
    """BR-01 at the store: an item that outlives its first lease stays with its owner as long as it renews."""
    await world.mission()
    hand, other = await world.hand(ttl_ms=400), await world.hand("worker-2")
    grant = await hand.started()
    for _ in range(6):
        await world.pass_ms(150)
        assert await hand.renew(grant) == ["OK"]
        assert await tick(world) == 0
        assert await other.take() == []
    assert (await world.item())["oe"] == "1"
    assert (await hand.do(a_submit(grant))).code == "OK"
    assert "work.lease_lapsed" not in await world.kinds()


async def test_an_item_that_is_not_started_in_time_is_offered_to_everybody(world: World) -> None:
    await world.mission(GROUP, a_new_item(start_by_s=1))
    hand, other = await world.hand(), await world.hand("worker-2")
    grant = await hand.accepted()
    assert await tick(world) == 0
    await world.pass_ms(1000)
    assert await tick(world) == 1
    assert (await world.log())[-2].data == ("1", "worker-1", "start_by", str(grant.start_by_ms))
    assert (await hand.do(a_start(grant))).code == "WORK_STALE_OWNERSHIP"
    assert (await other.started()).ownership_epoch == 2


async def test_an_item_that_was_yielded_has_a_new_start_by_deadline(world: World) -> None:
    await world.mission(GROUP, a_new_item(start_by_s=1))
    hand = await world.hand()
    first = await hand.accepted()
    await world.pass_ms(500)
    started = await hand.restarted(first)
    await world.pass_ms(400)
    await hand.do(a_yield(started))
    await world.pass_ms(600)
    assert await tick(world) == 0, "1 s from the yield, not from the acceptance"
    await world.pass_ms(400)
    assert await tick(world) == 1


@pytest.mark.parametrize(("kind", "started"), [("l", True), ("s", False)])
async def test_a_due_entry_that_comes_before_the_items_own_time_ends_nothing(
    kind: str, started: bool, world: World
) -> None:
    """What the item says decides: a renewal may leave an entry that is too early behind."""
    await world.mission()
    hand = await world.hand()
    await (hand.started() if started else hand.accepted())
    item = await world.item()
    await world.raw.zadd(world.key("@due"), {f"{kind} {GROUP} a": 1})
    assert await tick(world) == 1
    assert await world.item() == item
    assert await world.raw.zscore(world.key("@due"), f"{kind} {GROUP} a") == int(item["lex" if started else "sby"])
    assert await tick(world) == 0


async def test_a_tick_carries_out_no_more_than_it_is_asked_for(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item) for item in "abcde"))
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.take(most=5)
    await world.pass_ms(SHORT_MS)
    assert [(await world.authority.tick(0, most=2))[1] for _ in range(4)] == [2, 2, 1, 0]


async def test_more_dependents_than_one_call_may_release_are_released_by_ticks(world: World) -> None:
    names = [f"d{number:03}" for number in range(150)]
    await world.mission(GROUP, a_new_item("a"), *(a_new_item(name, after=["a"]) for name in names))
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))

    async def offered() -> int:
        return int(await world.raw.zcard(world.key("@take:index")))

    assert await offered() == 64
    assert await tick(world) == 1
    assert await offered() == 128
    assert await tick(world) == 1
    assert await offered() == 150
    assert await tick(world) == 0
    # The Mission does not end while a pump still releases.
    while grants := await hand.take(most=64):
        await hand.turn(*(a_submit(grant) for grant in grants))
    assert (await world.kinds())[-1] == "mission.approved"


async def test_a_mission_does_not_end_while_dependents_are_still_to_be_released(world: World) -> None:
    names = [f"d{number:03}" for number in range(70)]
    await world.mission(GROUP, a_new_item("a"), *(a_new_item(name, after=["a"]) for name in names))
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    while grants := await hand.take(most=64):
        await hand.turn(*(a_submit(grant) for grant in grants))
    assert (await world.kinds())[-1] == "work.result.accepted", "64 are done, 6 were not offered yet"
    await tick(world)
    await hand.turn(*(a_submit(grant) for grant in await hand.take(most=64)))
    assert (await world.kinds())[-1] == "mission.approved"


async def test_what_waits_for_a_failed_item_is_cancelled_a_chunk_a_tick(world: World) -> None:
    names = [f"d{number:03}" for number in range(150)]
    await world.mission(GROUP, a_new_item("a"), *(a_new_item(name, after=["a"]) for name in names))
    hand = await world.hand()
    await hand.do(a_fail(await hand.started()))
    cancelled = []
    for _ in range(5):
        await tick(world)
        cancelled.append((await world.kinds()).count("work.cancelled"))
    assert cancelled == [63, 127, 150, 150, 150]
    assert await tick(world) == 0
    (view,) = await world.store.missions()
    assert (view.failed, view.cancelled, view.total) == (1, 150, 151)


async def test_the_earliest_due_time_comes_with_every_reply_and_a_sooner_one_wakes_somebody(world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=1000)
    envelope, _ = await world.authority.tick(0)
    session_ends_ms = envelope.due_ms
    assert session_ends_ms is not None
    reply = await hand.turn(a_take(), slots=1)
    lease = reply.outcomes[0].grants[0].lease
    assert lease is not None
    assert reply.envelope.due_ms == lease.expires_ms < session_ends_ms
    (wake,) = await world.raw.keys("*@wake:*")
    assert await world.raw.lrange(wake, 0, -1) == [b"- - 0"]


# --- BR-09, BR-13 ---


@pytest.mark.parametrize("order", BOTH_ORDERS, ids="-".join)
@pytest.mark.parametrize("retry", ["release", "yield away", "fail", "submit"])
async def test_br_09_retry_and_redelivery_at_the_same_instant_come_to_one_owner(
    order: tuple[str, ...], retry: str, world: World
) -> None:
    """BR-09: at t = TTL the Worker's own time-out and the sweep meet. One owner, the epoch grows by one, the second of
    them changes nothing and is told why."""
    await world.mission()
    hand, other = await world.hand(ttl_ms=SHORT_MS), await world.hand("worker-2")
    grant = await hand.started()
    await world.pass_ms(SHORT_MS)
    operations: dict[str, Operation] = {
        "release": a_release(grant),
        "yield away": a_yield(grant, keep=False),
        "fail": a_fail(grant),
        "submit": a_submit(grant),
    }
    for step in order:
        if step == "sweep":
            await tick(world)
        else:
            code = (await hand.do(operations[retry])).code
    expected = "WORK_STALE_OWNERSHIP" if order[0] == "sweep" else "OK" if retry == "release" else "WORK_LEASE_EXPIRED"
    assert code == expected
    assert await world.state() == "offered"
    assert (await world.kinds()).count("work.offer.created") == 2, "offered once more, and not twice"
    again = await other.started()
    assert again.ownership_epoch == 2
    assert await hand.take() == []
    assert await tick(world) == 0


@pytest.mark.parametrize("when", ["before", "between", "after"])
async def test_br_09_a_rival_that_takes_in_the_middle_of_the_race_is_not_disturbed(when: str, world: World) -> None:
    await world.mission()
    hand, other = await world.hand(ttl_ms=SHORT_MS), await world.hand("worker-2")
    grant = await hand.started()
    await world.pass_ms(SHORT_MS)
    taken: list[Grant] = []
    for step in ("before", "sweep", "between", "retry", "after"):
        if step == "sweep":
            await tick(world)
        elif step == "retry":
            assert (await hand.do(a_release(grant))).code == "WORK_STALE_OWNERSHIP"
        elif step == when:
            taken += await other.take()
    taken += await other.take()
    assert [(one.ownership_epoch, one.lease is not None) for one in taken] == [(2, True)]
    assert (await other.do(a_submit(taken[0]))).code == "OK"


async def test_br_13_a_sweep_between_any_two_steps_of_a_start_touches_nothing(world: World) -> None:
    """BR-13: accept, start, save, yield, start again, submit, each followed by a sweep that finds nothing to do."""
    await world.mission(GROUP, a_new_item(start_by_s=1), a_new_item("b", after=["a"]))
    hand = await world.hand(ttl_ms=5_000)

    async def swept() -> None:
        before = await world.dump()
        assert await tick(world) == 0
        assert differences(before, await world.dump()) == []

    await swept()
    grant = await hand.accepted()
    await swept()
    await world.pass_ms(100)
    await swept()
    grant = await hand.restarted(grant)
    await swept()
    await hand.do(a_save(grant, 1))
    await swept()
    await hand.do(a_yield(grant, 2, b"more"))
    await swept()
    grant = await hand.restarted(grant)
    await swept()
    await hand.renew(grant)
    await swept()
    await hand.do(a_submit(grant))
    await swept()
    await hand.do(a_submit(await hand.started()))
    await swept()
    kinds = await world.kinds()
    assert "work.lease_lapsed" not in kinds
    assert kinds[-1] == "mission.approved"


@pytest.mark.parametrize("steps", list(permutations(("tick", "renew", "submit"))), ids="-".join)
async def test_at_the_instant_of_expiry_every_order_of_tick_renewal_and_ending_comes_to_the_same(
    steps: tuple[str, ...], world: World
) -> None:
    """A lease ends at its expiry, to the millisecond, whoever looks first."""
    await world.mission()
    hand: Hand = await world.hand(ttl_ms=SHORT_MS)
    grant = await hand.started()
    await world.pass_ms(SHORT_MS)
    for step in steps:
        match step:
            case "tick":
                await tick(world)
            case "renew":
                assert (await hand.renew(grant))[0] in ("WORK_LEASE_EXPIRED", "WORK_STALE_OWNERSHIP")
            case _:
                assert (await hand.do(a_submit(grant))).code in ("WORK_LEASE_EXPIRED", "WORK_STALE_OWNERSHIP")
    assert (await world.kinds())[-2:] == ["work.lease_lapsed", "work.offer.created"]
