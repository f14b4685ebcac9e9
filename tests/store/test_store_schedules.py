"""Schedules at the store: made, replaced, deleted, and how they fare in bad company (design.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import a_new_item
from store.scheduled import HOUR_MS, JOBS, a_schedule, fired_items, handed, notes, standing, until_due, view
from store.test_store_directory import emptied, tokens
from store.world import World, differences
from treadle.shared.errors import Backpressure, Misuse, Refused, Unavailable
from treadle.shared.model import GroupId
from treadle.shared.names import name_of, token
from treadle.shared.schedules import Cron, Interval, Missed, ScheduleId, next_due
from treadle.shared.store import Envelope, commands
from treadle.shared.store.controls import pause
from treadle.shared.store.timetable import fire_due, schedule, schedules, unschedule
from treadle.shared.testing.faults import Fault

# --- made, listed, deleted ---


async def test_a_schedule_is_listed_with_its_next_tick(world: World) -> None:
    await standing(world)
    before_ms = await world.store.now_ms()
    made = await schedule(world.store, a_schedule(spec=Cron("0 3 * * *", "Europe/Berlin")))
    assert made.next_ms == next_due(Cron("0 3 * * *", "Europe/Berlin"), before_ms)
    assert not made.repeated
    (found,) = await schedules(world.store)
    assert (found.schedule, found.group, found.actor) == ("nightly", JOBS, "ana")
    assert (found.spec, found.missed) == (Cron("0 3 * * *", "Europe/Berlin"), Missed.ONE)
    assert (found.capability, found.next_ms, found.fired, found.last_ms) == ("index", made.next_ms, 0, 0)
    assert 0 <= found.created_ms - before_ms < 60_000
    assert await world.raw.zscore(world.key("@due"), f"f {JOBS} nightly") == made.next_ms


async def test_an_interval_ticks_first_one_interval_after_it_was_made(world: World) -> None:
    await standing(world)
    before_ms = await world.store.now_ms()
    made = await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    spec = (await view(world)).spec
    assert isinstance(spec, Interval)
    assert 0 <= spec.anchor_ms - before_ms < 60_000
    assert made.next_ms == spec.anchor_ms + HOUR_MS
    anchored = await schedule(world.store, a_schedule("other", spec=Interval(HOUR_MS, 1)))
    assert anchored.next_ms % HOUR_MS == 1


async def test_the_same_schedule_again_changes_nothing_and_another_one_must_say_that_it_replaces(world: World) -> None:
    await standing(world)
    made = await schedule(world.store, a_schedule(spec=Interval(HOUR_MS)))
    before = await world.dump()
    await world.pass_ms(5)
    for replacing in (False, True):
        again = await schedule(world.store, a_schedule(spec=Interval(HOUR_MS), actor="ben"), replace=replacing)
        assert (again.next_ms, again.repeated) == (made.next_ms, True)
    assert await world.dump() == before
    others = [
        a_schedule(spec=Interval(2 * HOUR_MS)),
        a_schedule(spec=Interval(HOUR_MS), missed=Missed.ALL),
        a_schedule(spec=Interval(HOUR_MS), item=a_new_item(inputs=b"other")),
        a_schedule(spec=Interval(HOUR_MS), item=a_new_item(contract=b"other")),
        a_schedule(spec=Interval(HOUR_MS), item=a_new_item(width=2)),
        a_schedule(spec=Interval(HOUR_MS), item=a_new_item(retry="5 100 1000")),
    ]
    for other in others:
        with pytest.raises(Refused) as caught:
            await schedule(world.store, other)
        assert caught.value.code == "ACTION_ID_COLLISION"
    assert await world.dump() == before
    assert not (await schedule(world.store, others[0], replace=True)).repeated
    found = await view(world)
    assert isinstance(found.spec, Interval)
    assert found.spec.every_ms == 2 * HOUR_MS


async def test_a_replaced_schedule_fires_as_it_is_now_and_keeps_its_count(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await until_due(world)
    await world.authority.tick(0)
    new = a_schedule(spec=Interval(1500), item=a_new_item(inputs=b"new" * 50, capability="audit"))
    await schedule(world.store, new, replace=True)
    due_ms = await until_due(world)
    await world.authority.tick(0)
    assert (await view(world)).fired == 2
    hand = await world.hand("auditor", "audit")
    (grant,) = await hand.take(JOBS, capability="audit")
    assert (grant.inputs, grant.item) == (b"new" * 50, f"nightly%40{due_ms}")


async def test_a_deleted_schedule_leaves_nothing_and_its_items_stay(world: World) -> None:
    await standing(world)
    before = await world.dump()
    await schedule(world.store, a_schedule())
    assert await unschedule(world.store, JOBS, ScheduleId("nightly"), actor="ana") is True
    assert differences(before, await world.dump(), but_for=["@meta"]) == []
    assert await unschedule(world.store, JOBS, ScheduleId("nightly"), actor="ana") is False
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await until_due(world)
    await world.authority.tick(0)
    await unschedule(world.store, JOBS, ScheduleId("nightly"), actor="ana")
    await world.pass_ms(1100)
    assert (await world.authority.tick(0))[1] == 0
    assert len(await fired_items(world)) == 1


# --- in bad company ---


async def test_a_paused_account_gets_its_items_and_nobody_takes_them(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await pause(world.store, "account:acme", actor="ana")
    await until_due(world)
    hand = await world.hand()
    await emptied(world, hand)
    await world.authority.tick(0)
    assert len(await fired_items(world)) == 1
    assert await hand.take(JOBS) == []
    assert [token_ for token_ in await tokens(world, hand) if token_.startswith("index")] == []


@pytest.mark.parametrize("end", ["cancel", "seal"])
async def test_a_mission_that_takes_no_more_items_ends_its_schedules(end: str, world: World) -> None:
    await standing(world, a_new_item("left"))
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    if end == "cancel":
        await commands.cancel(world.store, JOBS, None, actor="ana", reason="closed")
    else:
        await commands.seal(world.store, JOBS, actor="ana")
    await world.pass_ms(1001)
    await world.authority.tick(0)
    await world.authority.tick(0)
    assert await notes(world) == []
    assert await schedules(world.store) == []
    assert [key for key in await world.dump() if "@sched" in key or ":sc:" in key] == []
    assert await world.raw.zscore(world.key("@due"), f"f {JOBS} nightly") is None
    with pytest.raises(Refused) as caught:
        await schedule(world.store, a_schedule("another"))
    assert caught.value.code == "INVALID_STATE_TRANSITION"
    assert not await unschedule(world.store, JOBS, ScheduleId("nightly"), actor="ana")


async def test_a_halted_group_takes_its_schedules_out_of_the_way_of_others(world: World) -> None:
    await standing(world)
    other = await standing(world, mission="jobs:beta", account="beta")
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await schedule(world.store, a_schedule(spec=Interval(1000), group=other))
    await until_due(world)
    await world.pass_ms(5)
    await world.raw.xadd(world.key(f"{JOBS}:log"), {"k": "v"}, id="100-0")
    world.audited = False
    await world.authority.tick(0)
    assert len(await notes(world, other)) == 1
    assert (await world.raw.hget(world.key("@groups"), JOBS)).startswith(b"halted:LOG_FOREIGN")
    await world.pass_ms(2001)
    await world.authority.tick(0)
    assert await world.raw.zscore(world.key("@halted"), f"f {JOBS} nightly") is not None
    await world.pass_ms(1001)
    await world.authority.tick(0)
    assert len(await notes(world, other)) >= 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"garbage", b"x y z\n", b"1 d 1 ana one 0 0 0 s c 1 normal 0 60\nc", b"\xff\n\xff", b"1 " * 15 + b"\n"],
)
async def test_a_damaged_record_stops_nobody_else(damage: bytes, world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule("broken", spec=Interval(1000)))
    await schedule(world.store, a_schedule("whole", spec=Interval(1000)))
    await until_due(world, "whole")
    await world.raw.hset(world.key("@sched"), f"{JOBS} broken", damage)
    world.audited = False
    await world.authority.tick(0)
    assert [note.schedule for note in await notes(world)] == ["whole"]


async def test_what_this_host_cannot_reckon_is_left_to_another(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A zone that only newer time zone data has: its ticks wait for a host that has them, and others fire."""
    await standing(world)
    for name in ("far", "near"):
        await schedule(world.store, a_schedule(name, spec=Interval(1000)))
    await until_due(world, "near")
    due = await handed(world)
    strange = [replace(one, spec="cron Mars/Olympus 0 0 * * *") if one.schedule == "far" else one for one in due]
    now_ms = await world.store.now_ms()
    answer = await world.store.call("look", 0, (0, 0))
    await fire_due(world.store, strange, replace(Envelope.parse(answer[0]), now_ms=now_ms))
    assert [note.schedule for note in await notes(world)] == ["near"]
    assert "far" in caplog.text
    assert "Mars/Olympus" in caplog.text


async def test_a_full_store_fires_later_and_the_caller_goes_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    due_ms = await until_due(world)
    full = Backpressure("store is full for new work")
    original = world.store.call_each

    async def refusing(calls: Sequence[Any]) -> list[Any]:
        return [full] * len(calls)

    world.store.call_each = refusing  # type: ignore[method-assign]
    await world.authority.tick(0)
    world.store.call_each = original  # type: ignore[method-assign]
    assert "is full" in caplog.text
    assert await fired_items(world) == []
    await world.pass_ms(2001)
    await world.authority.tick(0)
    assert next(note.due_ms for note in await notes(world)) == due_ms


async def test_a_store_that_cannot_be_reached_is_said_to_the_caller(world: World) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(spec=Interval(1000)))
    await until_due(world)
    world.endpoint.fault = lambda trip: Fault.UNSENT if "fire" in trip.functions else Fault.NONE
    with pytest.raises(Unavailable):
        await world.authority.tick(0)


async def test_schedules_of_missions_with_hostile_names_are_their_own(world: World) -> None:
    names = ("{x}:y", "a b", "✨", "%", "@sched", "f m a")
    for name in names:
        group = await standing(world, mission=f"jobs:{name}", account=token(name, field="account"))
        for other in ("nightly", name):
            new = a_schedule(
                token(other, field="schedule"), group=group, spec=Interval(1000), actor=token(name, field="a")
            )
            await schedule(world.store, new)
    found = await schedules(world.store)
    assert len(found) == 12
    assert {one.actor for one in found} == set(names)
    await world.pass_ms(1001)
    await world.authority.tick(0)
    for name in names:
        group = GroupId(token(f"jobs:{name}", field="mission"))
        told = {name_of(note.schedule) for note in await notes(world, group)}
        assert told == {"nightly", name}
        items = {item.rpartition("@")[0] for item in await fired_items(world, group)}
        assert items == {"nightly", name}
        assert len(await schedules(world.store, group)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda new: replace(new, schedule=ScheduleId("x" * 241)), "schedule: 241 bytes, must be 1 to 240"),
        (lambda new: replace(new, schedule=ScheduleId("")), "schedule: 0 bytes"),
        (lambda new: replace(new, item=a_new_item(after=["b"])), "item: after, deadline and not_before"),
        (lambda new: replace(new, item=a_new_item(not_before="+5")), "item: after, deadline and not_before"),
        (lambda new: replace(new, item=a_new_item(deadline_ms=5)), "item: after, deadline and not_before"),
        (lambda new: replace(new, item=a_new_item(inputs=b"x" * (1 << 20) + b"x")), "inputs: 1,048,577 bytes"),
        (lambda new: replace(new, spec=Cron("0 0 */16 * MON#5")), "never fires"),
    ],
)
async def test_what_cannot_be_scheduled_is_said_before_anything_is_written(
    change: Callable[[Any], Any], message: str, world: World
) -> None:
    await standing(world)
    before = await world.dump()
    with pytest.raises(Misuse, match=message):
        await schedule(world.store, change(a_schedule()))
    assert await world.dump() == before
