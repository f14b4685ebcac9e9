"""Schedules for tests: the Mission they add to, complete values, and what came of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import a_new_item, a_new_mission
from store.world import World
from treadle.shared.model import GroupId, NewItem
from treadle.shared.names import name_of
from treadle.shared.schedules import Cron, NewSchedule, ScheduleId, ScheduleView
from treadle.shared.store.timetable import schedules

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def standing(world: World, *items: NewItem, mission: str = "jobs:acme", **fields: Any) -> GroupId:
    """An open Mission."""
    new = dataclasses.replace(a_new_mission(mission, **fields), items=items, open=True)
    return (await world.store.create(new)).group


def a_schedule(schedule: str = "nightly", *, group: str = "jobs%3Aacme", **fields: Any) -> NewSchedule:
    """A schedule to be made: each night at three, where nothing else is said."""
    fields = {"actor": "ana", "spec": Cron("0 3 * * *"), "item": a_new_item(), **fields}
    return NewSchedule(ScheduleId(schedule), GroupId(group), **fields)


async def view(world: World, name: str = "nightly", group: str = "jobs%3Aacme") -> ScheduleView:
    """The schedule as it is now."""
    (found,) = [one for one in await schedules(world.store, GroupId(group)) if one.schedule == name]
    return found


async def fired_items(world: World, group: str = "jobs%3Aacme") -> list[str]:
    """The names of the items that schedules added, in their order."""
    return [name_of(one.item) for one in await world.store.items(GroupId(group)) if "%40" in one.item]
