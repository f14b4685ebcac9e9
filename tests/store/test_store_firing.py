"""Ticks of schedules: each fires exactly once, not before its time, late where it is late (design.md 5, BR-53)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from builders import a_new_item
from servers import LEGS
from store.scheduled import DAY_MS, HOUR_MS, JOBS, a_schedule, fired_items, handed, notes, standing, until_due, view
from store.test_store_directory import emptied, tokens
from store.world import PREFIX, World, a_submit
from treadle.shared.errors import Refused, ReplyLost
from treadle.shared.model import Event, EventKind, SortKey
from treadle.shared.names import name_of
from treadle.shared.schedules import Cron, Due, Firing, Interval, Missed, firing_of
from treadle.shared.store import Authority, Store, keys, policies
from treadle.shared.store.timetable import fire, schedule
from treadle.shared.testing.faults import Fault, Trip

# --- firing ---


async def test_a_tick_adds_one_item_that_may_be_taken_at_once(world: World) -> None:
    await standing(world)
    hand = await world.hand()
    said: dict[str, Any] = {"business_impact": 7, "start_by_s": 9, "retry": "5 100 1000", "timeout_ms": 1500}
    item = a_new_item(inputs=b"i" * 100, contract=b"c", width=2, **said)
    await schedule(world.store, a_schedule(item=item, spec=Interval(1000)))
    due_ms = await until_due(world)
    await emptied(world, hand)
    envelope, number = await world.authority.tick(0)
    assert number == 1
    assert envelope.due_ms == due_ms + 1000, "the next tick"
    assert await tokens(world, hand) == [f"index {JOBS} 0"]
    (grant,) = await hand.take(JOBS)
    assert name_of(grant.item) == f"nightly@{due_ms}"
    assert (grant.inputs, grant.contract, grant.width) == (b"i" * 100, b"c", 2)
    stored = await world.item(JOBS, grant.item)
    assert (stored["imp"], stored["rt"]) == ("7", "5 100 1000")
    assert SortKey.parse(stored["key"]) == SortKey(grant.item, 2, 1500)
    authorized: list[Event] = [event for event in await world.log(JOBS) if event.item == grant.item]
    assert [event.kind for event in authorized][:2] == [EventKind.AUTHORIZED, EventKind.OFFERED]
    assert authorized[0].by == "ana"
    assert firing_of(authorized[0]) == Firing("nightly", due_ms, False, 0)
    assert (await hand.do(a_submit(grant))).code == "OK"
    mission = await world.store.mission(JOBS)
    assert mission is not None
    assert (mission.total, mission.verified, mission.state) == (1, 1, "active")
    found = await view(world)
    assert (found.fired, found.last_ms, found.next_ms) == (1, due_ms, due_ms + 1000)


async def test_before_its_time_nothing_fires_whoever_asks(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    before = await world.dump()
    assert (await world.authority.tick(0))[1] == 0
    found = await view(world)
    assert isinstance(found.spec, Interval)
    due = Due(JOBS, found.schedule, found.next_ms, Missed.ONE, f"every {HOUR_MS} {found.spec.anchor_ms}")
    with pytest.raises(Refused) as caught:
        await fire(world.store, due, now_ms=found.next_ms + DAY_MS)
    assert caught.value.code == "INVALID_STATE_TRANSITION"
    assert await world.dump() == before
    # An entry that comes too early is put right.
    await world.raw.zadd(world.key("@due"), {f"f {JOBS} nightly": 1})
    assert await handed(world) == []
    assert await world.raw.zscore(world.key("@due"), f"f {JOBS} nightly") == found.next_ms
    assert await fired_items(world) == []


@pytest.mark.slow
@pytest.mark.parametrize("leg", LEGS)
@pytest.mark.parametrize("off_s", [-120, 120])
async def test_a_client_whose_clock_is_two_minutes_off_makes_and_fires_at_the_stores_time(
    off_s: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr("time.time", lambda: right() + off_s)
    await standing(world)
    before_ms = await world.store.now_ms()
    made = await schedule(world.store, a_schedule(spec=Interval(1000)))
    assert 1000 <= made.next_ms - before_ms < 2000
    assert (await world.authority.tick(0))[1] == 0
    await until_due(world)
    await world.authority.tick(0)
    (note,) = await notes(world)
    assert (note.due_ms, note.is_late, note.skipped) == (made.next_ms, False, 0)


async def test_a_caller_that_dies_between_being_told_and_firing_is_replaced_after_two_seconds(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    due_ms = await world.raw.zscore(world.key("@due"), f"f {JOBS} nightly")
    await world.raw.hset(world.key("@sched"), f"{JOBS} nightly", await _due_now(world))
    await world.raw.zadd(world.key("@due"), {f"f {JOBS} nightly": 1})
    (dead,) = await handed(world)
    assert await handed(world) == [], "nobody else is told meanwhile"
    await world.pass_ms(1900)
    assert await handed(world) == []
    await world.pass_ms(101)
    envelope, number = await world.authority.tick(0)
    assert (number, envelope.due_ms) == (1, due_ms)
    assert await fired_items(world) == [f"nightly@{dead.due_ms}"]
    again = await fire(world.store, dead, now_ms=envelope.now_ms)
    assert again.repeated, "the dead one comes back and is too late"
    assert len(await fired_items(world)) == 1


async def _due_now(world: World) -> bytes:
    """The record of the schedule with its tick in the past: a second ago."""
    packed: bytes = await world.raw.hget(world.key("@sched"), f"{JOBS} nightly")
    _, rest = packed.split(b" ", 1)
    return b"%d " % (await world.store.now_ms() - 1000) + rest


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.UNSENT])
@pytest.mark.parametrize("function", ["schedule", "tick", "fire"])
async def test_a_call_whose_reply_is_lost_is_repeated_and_fires_nothing_twice(
    function: str, fault: Fault, world: World
) -> None:
    await standing(world)
    lost: list[Trip] = []

    def once(trip: Trip) -> Fault:
        if function in trip.functions and not lost:
            lost.append(trip)
            return fault
        return Fault.NONE

    world.endpoint.fault = once
    new = a_schedule(spec=Interval(1000))
    with suppress(ReplyLost):
        await schedule(world.store, new)
    await schedule(world.store, new)
    due_ms = await until_due(world)
    for _ in range(2):
        with suppress(ReplyLost):
            await world.authority.tick(0)
        await world.pass_ms(2001)
    assert lost, "it was lost once"
    await world.authority.tick(0)
    found = [note.due_ms for note in await notes(world)]
    assert found[0] == due_ms
    assert len(set(found)) == len(found)
    assert await fired_items(world) == [f"nightly@{at_ms}" for at_ms in found]
    skipped = sum(note.skipped for note in await notes(world))
    assert found[-1] + 1000 * (skipped + 1) - due_ms >= 1000 * len(found), "each tick fired or was counted as skipped"
    assert (await view(world)).skipped == skipped


async def test_firing_the_same_tick_again_is_answered_alike_and_changes_nothing(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await until_due(world)
    (due,) = await handed(world)
    now_ms = await world.store.now_ms()
    first = await fire(world.store, due, now_ms=now_ms)
    before = await world.dump()
    for _ in range(2):
        again = await fire(world.store, due, now_ms=now_ms)
        assert (again.item, again.next_ms, again.repeated) == (first.item, first.next_ms, True)
    assert not first.repeated
    assert await world.dump() == before
    with pytest.raises(Refused) as caught:
        await fire(world.store, replace(due, due_ms=due.due_ms - 1), now_ms=now_ms)
    assert (caught.value.code, caught.value.details["due"]) == ("REVISION_CONFLICT", str(first.next_ms))


async def test_an_item_that_somebody_put_in_a_ticks_place_is_left_and_the_schedule_goes_on(world: World) -> None:
    """By hand, under the very name of a tick to come: then that tick adds nothing."""
    made = await world.store.now_ms() + 1000
    await standing(world, a_new_item(f"nightly@{made}"))
    await schedule(world.store, a_schedule(spec=Interval(1000, made)))
    assert await until_due(world) == made
    await world.authority.tick(0)
    assert await notes(world) == []
    assert (await view(world)).next_ms == made + 1000


# --- exactly once, over any number of processes ---


@asynccontextmanager
async def callers(world: World, number: int) -> AsyncIterator[list[Authority]]:
    """As many processes, each with a connection of its own."""
    found: list[Authority] = []
    try:
        for _ in range(number):
            found.append(Authority(await Store.connect(world.endpoint, prefix=PREFIX)))
        yield found
    finally:
        for authority in found:
            await authority.aclose()
            await authority.store.aclose()


@pytest.mark.parametrize("missed", Missed)
async def test_however_many_tick_each_tick_fires_once(missed: Missed, world: World) -> None:
    await standing(world)
    for name in ("one", "two", "three"):
        await schedule(world.store, a_schedule(name, spec=Interval(1000), missed=missed))
    start_ms = (await view(world, "one")).next_ms
    calls = 0

    async def keep_ticking(authority: Authority, chance: int) -> None:
        nonlocal calls
        for number in range(12):
            with suppress(ReplyLost):
                if (number + chance) % 4 == 0:  # told, and dead before it fires
                    await authority.store.call("tick", 0, (256,))
                else:
                    await authority.tick(0)
                calls += 1
            await anyio.sleep(0.002 * (chance % 3))
            if world.clock is not None and chance == 0:
                world.clock.now_ms += 700
            elif world.clock is None:
                await anyio.sleep(0.3)

    def sometimes(trip: Trip) -> Fault:
        return Fault.REPLY_LOST if trip.functions and trip.number % 17 == 0 else Fault.NONE

    async with callers(world, 12) as authorities:
        world.endpoint.fault = sometimes
        async with anyio.create_task_group() as tasks:
            for chance, authority in enumerate(authorities):
                tasks.start_soon(keep_ticking, authority, chance)
        world.endpoint.fault = lambda _: Fault.NONE
    await world.pass_ms(2001)
    await world.authority.tick(0)
    assert calls > 100
    now_ms = await world.store.now_ms()
    for name in ("one", "two", "three"):
        mine = [note for note in await notes(world) if note.schedule == name]
        due = [note.due_ms for note in mine]
        assert len(due) == len(set(due)), "no tick twice"
        assert due == sorted(due)
        found = await view(world, name)
        # On a real clock the few ticks there are may each be told to a caller that dies, and be moved on.
        assert found.fired == len(due) >= (2 if world.clock else 1)
        every = range((await view(world, name)).created_ms, now_ms + 1)
        passed = [at_ms for at_ms in range(due[0], every.stop, 1000)]
        assert len(due) + sum(note.skipped for note in mine) == len(passed), "each tick that passed fired or is counted"
        if missed is Missed.ALL:
            assert due == passed
    assert start_ms == min(note.due_ms for note in await notes(world) if note.schedule == "one")
    assert len(await fired_items(world)) == len(await notes(world))


# --- what is missed ---


async def test_of_missed_ticks_the_first_fires_late_once_and_the_next_is_to_come(world: World) -> None:
    await standing(world)
    first_ms = await _an_hourly_schedule_that_was_missed(world, Missed.ONE, hours=5)
    envelope, _ = await world.authority.tick(0)
    assert await notes(world) == [Firing("nightly", first_ms, True, 5)]
    found = await view(world)
    assert (found.next_ms, found.skipped, found.fired) == (first_ms + 6 * HOUR_MS, 5, 1)
    assert envelope.due_ms is not None
    assert envelope.due_ms > envelope.now_ms
    assert (await world.authority.tick(0))[1] == 0


async def test_all_missed_ticks_fire_in_order_and_are_marked_late(world: World) -> None:
    await standing(world)
    first_ms = await _an_hourly_schedule_that_was_missed(world, Missed.ALL, hours=5)
    await world.authority.tick(0)
    assert await notes(world) == [Firing("nightly", first_ms + n * HOUR_MS, n < 5, 0) for n in range(6)]
    assert (await view(world)).next_ms == first_ms + 6 * HOUR_MS
    assert await fired_items(world) == [f"nightly@{first_ms + n * HOUR_MS}" for n in range(6)]


async def test_more_missed_ticks_than_one_caller_takes_are_fired_by_several(world: World) -> None:
    await standing(world)
    first_ms = await _an_hourly_schedule_that_was_missed(world, Missed.ALL, hours=599)
    counts = []
    for _ in range(4):
        await world.authority.tick(0)
        counts.append(len(await notes(world)))
    assert counts == [256, 512, 600, 600]
    assert [note.due_ms for note in await notes(world)] == [first_ms + n * HOUR_MS for n in range(600)]


async def _an_hourly_schedule_that_was_missed(world: World, missed: Missed, *, hours: int) -> int:
    """Its first tick was so many hours and some seconds ago, and nobody looked. That tick."""
    first_ms = await world.store.now_ms() - hours * HOUR_MS - 30_000
    await schedule(world.store, a_schedule(spec=Interval(HOUR_MS, first_ms), missed=missed))
    packed: bytes = await world.raw.hget(world.key("@sched"), f"{JOBS} nightly")
    await world.raw.hset(world.key("@sched"), f"{JOBS} nightly", b"%d " % first_ms + packed.split(b" ", 1)[1])
    await world.raw.zadd(world.key("@due"), {f"f {JOBS} nightly": first_ms})
    return first_ms


@pytest.mark.parametrize(("late_ms", "is_late"), [(0, False), (60_000, False), (60_001, True)])
@pytest.mark.parametrize("leg", ["fakeredis"])
async def test_late_is_more_than_a_minute_after_the_tick(late_ms: int, is_late: bool, world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    await until_due(world, and_ms=late_ms)
    await world.authority.tick(0)
    assert [note.is_late for note in await notes(world)] == [is_late]


@pytest.mark.parametrize("leg", ["fakeredis"])
@pytest.mark.parametrize(
    ("day", "expected"), [("2027-03-27", "01:30 01:00 00:30"), ("2027-10-30", "00:30 00:30 01:30")]
)
async def test_br_53_half_past_two_fires_once_on_each_day_the_clocks_change(
    day: str, expected: str, world: World
) -> None:
    """BR-53 through the store, told in UTC: Berlin is at +1 in winter and at +2 in summer."""
    assert world.clock is not None
    world.clock.now_ms = round(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() * 1000)
    await standing(world)
    await schedule(world.store, a_schedule(spec=Cron("30 2 * * *", "Europe/Berlin"), missed=Missed.ALL))
    for _ in range(3 * 24 * 4):
        await world.authority.tick(0)
        world.clock.now_ms += 15 * 60_000
    await world.authority.tick(0)
    shown = [
        datetime.fromtimestamp(note.due_ms / 1000, UTC).isoformat(timespec="minutes") for note in await notes(world)
    ]
    assert [text[11:16] for text in shown] == expected.split()
    assert len({text[:10] for text in shown}) == 3


async def test_a_tick_that_would_be_more_than_the_policy_grants_waits_and_fires_late_once_there_is_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await policies.apply(world.store, "[[accounts]]\nmatch = 'acme'\nqueued = 1\n", actor="ana")
    await standing(world, a_new_item("before"))
    await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    if world.clock is None:
        return  # an hour is long
    due_ms = await until_due(world)
    for _ in range(61):
        await world.authority.tick(0)
        assert (await view(world)).next_ms == due_ms, "it is not lost"
        await world.pass_ms(2_000)
    assert await fired_items(world) == []
    said = [record.getMessage() for record in caplog.records if "does not fire now" in record.getMessage()]
    assert len(said) == 3, "once a minute"
    assert "account=acme unfinished=1 coming=1 bound=1" in said[0]
    hand = await world.hand()
    await hand.do(a_submit(await hand.started(JOBS)))
    await world.authority.tick(0)
    assert await fired_items(world) == [f"nightly@{due_ms}"]
    (note,) = await notes(world)
    assert note.is_late
    assert (await view(world)).next_ms == due_ms + HOUR_MS


async def test_a_policy_that_cannot_be_read_here_holds_no_tick_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await policies.apply(world.store, "[[accounts]]\nmatch = 'acme'\nqueued = 0\n", actor="ana")
    await world.raw.hset(keys.policy(PREFIX), "text", "[federation]\n")
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    due_ms = await until_due(world)
    await world.authority.tick(0)
    assert await fired_items(world) == [f"nightly@{due_ms}"]
    assert "which cannot be read" in caplog.text
