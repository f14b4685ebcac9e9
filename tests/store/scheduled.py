"""Schedules for tests: the Mission they add to, complete values, and what came of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import a_new_item, a_new_mission
from store.world import World
from treadle.shared.model import GroupId, NewItem
from treadle.shared.names import name_of
from treadle.shared.schedules import Cron, Due, Firing, NewSchedule, ScheduleId, ScheduleView, firing_of
from treadle.shared.store.timetable import parse_due, schedules

JOBS = GroupId("jobs%3Aacme")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def standing(world: World, *items: NewItem, mission: str = "jobs:acme", **fields: Any) -> GroupId:
    """An open Mission."""
    new = dataclasses.replace(a_new_mission(mission, **fields), items=items, open=True)
    return (await world.store.create(new)).group


def a_schedule(schedule: str = "nightly", *, group: str = JOBS, **fields: Any) -> NewSchedule:
    """A schedule to be made: each night at three, where nothing else is said."""
    fields = {"actor": "ana", "spec": Cron("0 3 * * *"), "item": a_new_item(), **fields}
    return NewSchedule(ScheduleId(schedule), GroupId(group), **fields)


async def view(world: World, name: str = "nightly", group: str = JOBS) -> ScheduleView:
    """The schedule as it is now."""
    (found,) = [one for one in await schedules(world.store, GroupId(group)) if one.schedule == name]
    return found


async def fired_items(world: World, group: str = JOBS) -> list[str]:
    """The names of the items that schedules added, in their order."""
    return [name_of(one.item) for one in await world.store.items(GroupId(group)) if "%40" in one.item]


async def until_due(world: World, name: str = "nightly", *, and_ms: int = 0) -> int:
    """Let the time of a schedule's next tick come; that tick."""
    due_ms = (await view(world, name)).next_ms
    now_ms = await world.store.now_ms()
    await world.pass_ms(max(0, due_ms - now_ms) + and_ms)
    return due_ms


async def notes(world: World, group: str = JOBS) -> list[Firing]:
    """What the log tells of each firing, in order."""
    return [note for event in await world.log(group) if (note := firing_of(event))]


async def handed(world: World) -> list[Due]:
    """What a tick hands to a caller that then does nothing with it."""
    return parse_due((await world.store.call("tick", 0, (256,)))[2])
