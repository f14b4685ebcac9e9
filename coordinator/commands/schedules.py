"""`treadle schedules`, `unschedule`: what the store starts by itself, and when."""

from __future__ import annotations

from typing import Annotated

import typer
from treadle.shared.errors import Refused
from treadle.shared.names import name_of, token
from treadle.shared.schedules import Interval, ScheduleId, ScheduleView
from treadle.shared.store import Store, timetable

from ..core.addresses import readings
from ..core.readable import safe, span
from ..core.wording import quoted
from .opening import default_actor, persist, with_store
from .options import AsJson, Prefix, Url
from .output import Column, document, note, say, table


def schedules(
    mission: Annotated[str | None, typer.Option(help="Only those of this Mission.", metavar="ID")] = None,
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """List schedules: when each fires next, how often it has, what it missed.

    --json: {"now_ms", "schedules": [{"mission", "schedule", "when", "missed", "capability", "actor", "created_ms",
    "next_ms", "last_ms", "fired", "skipped"}]}; last_ms is null where it has not fired yet
    """

    async def read(store: Store) -> tuple[int, list[ScheduleView]]:
        return await store.now_ms(), await timetable.schedules(store)

    now_ms, everything = with_store(url, prefix, read)
    found = [one for one in everything if mission in (None, name_of(one.group))]
    if as_json:
        rows = [
            {
                "mission": name_of(one.group),
                "schedule": name_of(one.schedule),
                "when": when(one),
                "missed": one.missed.value,
                "capability": one.capability,
                "actor": name_of(one.actor),
                "created_ms": one.created_ms,
                "next_ms": one.next_ms,
                "last_ms": one.last_ms or None,
                "fired": one.fired,
                "skipped": one.skipped,
            }
            for one in found
        ]
        document({"now_ms": now_ms, "schedules": rows})
        return
    if not found:
        note("no schedule")
        return
    columns = [
        *(Column("MISSION"), Column("SCHEDULE"), Column("WHEN"), Column("CAPABILITY")),
        *(Column("NEXT", right=True), Column("LAST", right=True, is_extra=True)),
        *(Column("FIRED", right=True, is_extra=True), Column("SKIPPED", right=True, is_extra=True)),
    ]
    table(columns, [_row(one, now_ms) for one in found])


def _row(one: ScheduleView, now_ms: int) -> tuple[object, ...]:
    due = f"in {span(one.next_ms - now_ms)}" if one.next_ms > now_ms else "due"
    last = f"{span(now_ms - one.last_ms)} ago" if one.last_ms else "-"
    return (name_of(one.group), name_of(one.schedule), when(one), one.capability, due, last, one.fired, one.skipped)


def when(one: ScheduleView) -> str:
    """When it fires, for people and programs alike."""
    if isinstance(one.spec, Interval):
        return f"every {span(one.spec.every_ms)}"
    return f"{one.spec.expression} ({one.spec.zone})"


def unschedule(
    schedule: Annotated[str, typer.Argument(metavar="MISSION/SCHEDULE", help="The schedule.", show_default=False)],
    url: Url = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule; what it has started goes on.

    --json: {"mission", "schedule"}
    """

    async def work(store: Store) -> tuple[str, str]:
        actor = token(default_actor(), field="actor")
        for group, name in readings(schedule):
            id_ = ScheduleId(name)
            if await persist(store, lambda: timetable.unschedule(store, group, id_, actor=actor)):  # noqa: B023 - at once
                return name_of(group), name_of(name)
        raise Refused(f"{quoted(schedule)} is no schedule of this store; `treadle schedules` lists them")

    mission, name = with_store(url, prefix, work)
    if as_json:
        document({"mission": mission, "schedule": name})
    else:
        say(f"{safe(mission)}/{safe(name)}: deleted")
