"""The table of refusals goes on: what the making and the firing of schedules is refused with."""

from __future__ import annotations

from typing import Any

from store.refused import Call, plain, refusal
from store.scheduled import a_schedule, standing
from store.world import World
from treadle.shared.schedules import Interval
from treadle.shared.store.timetable import schedule

JOBS = "jobs%3Aacme"
_MADE = (
    "create",
    JOBS,
    "nightly",
    "ana",
    "digest",
    1,
    "one",
    "every%2060000%201",
    "index",
    1,
    "normal",
    0,
    60,
    "-",
    "",
    "",
    0,
)


def _make(world: World, **changes: Any) -> Call:
    """A call of `schedule`, with some of its arguments changed, by their place."""
    arguments = list(_MADE)
    for place, value in changes.items():
        arguments[int(place.removeprefix("a"))] = value
    return plain(world, "schedule", world.store.replid, *arguments)


@refusal("schedule", "GROUP_NOT_FOUND")
async def a_schedule_of_a_mission_that_is_not_there(world: World) -> Call:
    return _make(world)


@refusal("schedule", "ACTION_ID_COLLISION")
async def a_schedule_with_other_content(world: World) -> Call:
    await standing(world)
    await schedule(world.store, a_schedule())
    return _make(world)


def _halted(function: str, code: str) -> None:
    async def a_halted_mission(world: World) -> Call:
        await standing(world)
        await schedule(world.store, a_schedule())
        await world.raw.hset(world.key("@groups"), JOBS, f"halted:{code} 1 acme standard 1")
        return _make(world, a2="another") if function == "schedule" else _fire(world, 1)

    refusal(function, code)(a_halted_mission)


def _fire(
    world: World, due_ms: Any, next_ms: Any = 10**13, skipped: Any = 0, name: str = "nightly", queued: str = "- - 0"
) -> Call:
    return plain(world, "fire", world.store.replid, JOBS, name, due_ms, next_ms, skipped, queued)


for _function in ("schedule", "fire"):
    for _code in ("LOG_FOREIGN", "LOG_REBORN"):
        _halted(_function, _code)


@refusal("schedule", "INVALID_STATE_TRANSITION")
async def a_schedule_of_a_mission_that_has_ended(world: World) -> Call:
    await standing(world)
    await _end(world)
    return _make(world)


async def _end(world: World) -> None:
    world.audited = False
    record: bytes = await world.raw.hget(world.key("@groups"), JOBS)
    await world.raw.hset(world.key("@groups"), JOBS, record.replace(b"active", b"ended", 1))


@refusal("schedule", "BACKPRESSURE")
async def a_10001st_schedule(world: World) -> Call:
    await standing(world)
    await world.raw.hset(world.key("@sched"), mapping={f"m s{number}": "-" for number in range(10_000)})
    return _make(world)


def _malformed(name: str, **changes: Any) -> None:
    async def case(world: World) -> Call:
        await standing(world)
        return _make(world, **changes)

    case.__name__ = name
    refusal("schedule", "SCHEMA_VALIDATION_FAILED")(case)


_malformed("a_verb_nobody_knows", a0="alter")
_malformed("a_tick_that_is_no_time", a5="soon")
_malformed("a_tick_beyond_all_times", a5=10**15)
_malformed("another_rule_for_what_is_missed", a6="some")
_malformed("a_spec_that_is_no_token", a7="every 60000 1")
_malformed("no_capability", a8="")
_malformed("a_time_out_that_is_no_time", a16="long")
_malformed("inputs_nobody_could_read_again", a14="x" * ((1 << 20) + 1))


@refusal("schedule", "SCHEMA_VALIDATION_FAILED")
async def a_schedule_cut_short(world: World) -> Call:
    await standing(world)
    return plain(world, "schedule", world.store.replid, *_MADE[:-1])


async def _due(world: World) -> int:
    """A schedule whose tick is due; that tick."""
    await standing(world)
    made = await schedule(world.store, a_schedule(spec=Interval(1000)))
    await world.pass_ms(1000)
    return made.next_ms


@refusal("fire", "GROUP_NOT_FOUND")
async def fired_in_a_mission_that_is_not_there(world: World) -> Call:
    return _fire(world, 1)


@refusal("fire", "INVALID_COMMAND")
async def a_schedule_that_is_not_there_fires(world: World) -> Call:
    return _fire(world, await _due(world), name="weekly")


@refusal("fire", "REVISION_CONFLICT")
async def another_tick_is_the_next(world: World) -> Call:
    return _fire(world, await _due(world) - 1)


@refusal("fire", "INVALID_STATE_TRANSITION")
async def before_its_time(world: World) -> Call:
    await standing(world)
    made = await schedule(world.store, a_schedule(spec=Interval(60_000)))
    return _fire(world, made.next_ms)


@refusal("fire", "INVALID_STATE_TRANSITION")
async def fired_in_a_mission_that_has_ended(world: World) -> Call:
    due_ms = await _due(world)
    await _end(world)
    return _fire(world, due_ms)


@refusal("fire", "SCHEMA_VALIDATION_FAILED")
async def a_next_tick_that_is_no_later(world: World) -> Call:
    due_ms = await _due(world)
    return _fire(world, due_ms, due_ms)


@refusal("fire", "SCHEMA_VALIDATION_FAILED")
async def a_next_tick_that_is_no_time(world: World) -> Call:
    return _fire(world, await _due(world), "later")


@refusal("fire", "SCHEMA_VALIDATION_FAILED")
async def skipped_ticks_that_are_no_number(world: World) -> Call:
    return _fire(world, await _due(world), skipped="-1")


@refusal("fire", "QUOTA_EXCEEDED")
async def a_tick_beyond_what_its_account_may_have(world: World) -> Call:
    return _fire(world, await _due(world), queued="0 - 0")


@refusal("fire", "SCHEMA_VALIDATION_FAILED")
async def bounds_of_a_tick_that_are_none(world: World) -> Call:
    return _fire(world, await _due(world), queued="many")


@refusal("fire", "LOG_FOREIGN", "@groups", "@dir:.*", "@tomb:.*", "@meta")
async def fired_where_a_foreign_entry_stands(world: World) -> Call:
    due_ms = await _due(world)
    await world.raw.xadd(world.key(f"{JOBS}:log"), {"k": "v"}, id="100-0")
    return _fire(world, due_ms)


@refusal("fire", "LOG_REBORN", "@groups", "@dir:.*", "@tomb:.*", "@meta")
async def fired_where_the_log_is_gone(world: World) -> Call:
    due_ms = await _due(world)
    await world.raw.delete(world.key(f"{JOBS}:log"))
    return _fire(world, due_ms)
