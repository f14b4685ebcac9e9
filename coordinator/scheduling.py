"""Schedules of an account: at each tick a job of its own, whose key is the schedule's id, `@` and the tick in milliseconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import GroupId, Risk
from treadle.shared.names import token
from treadle.shared.schedules import Cron, Interval, Missed, NewSchedule, ScheduleId, ScheduleView
from treadle.shared.store import timetable
from treadle.shared.store.timetable import Scheduled

from .asking import Asking
from .core.items import plan_items
from .core.missions import plan_standing, standing_id
from .enqueuing import Asked, called

_PER_TICK = frozenset({"deadline", "not_before"})


def ticks(cron: str | None, every: timedelta | float | None, zone: str) -> Cron | Interval:
    """When a schedule ticks; Misuse where that is not said once, or never comes."""
    if (cron is None) == (every is None):
        raise Misuse('schedule: give one of cron="30 2 * * *" and every=timedelta(minutes=5)')
    if cron is not None:
        return Cron(cron, zone)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        raise Misuse(f"every: a value of type {type(every).__name__} must be a timedelta, or a number of seconds")
    return Interval(round(max(-1e12, min(1e12, seconds * 1000))))


async def schedule(
    asking: Asking, account: str, id: str, when: Cron | Interval, one: Asked, *, missed: str, replace_: bool
) -> Scheduled:
    """Make a schedule in the account's standing Mission, which is made where it is the account's first."""
    for name in sorted(_PER_TICK):
        if getattr(one.spec, name) is not None:
            raise Misuse(f"{name}: is of one job and not of a schedule; leave it out")
    if one.spec.offer_to is not None or one.spec.offer_s is not None:
        raise Misuse("offer_to: what a schedule starts is offered to everybody; leave offer_to and offer_s out")
    if one.spec.approval:
        raise Misuse("approval: a person approves one job, not all that a schedule starts; leave it out")
    if one.spec.resources:
        raise Misuse(
            "resources: a schedule's jobs have none in this version; leave it out, or enqueue the jobs yourself"
        )
    if one.spec.risk != Risk.NONE:
        raise Misuse("risk: the policy is asked about one job, not about all that a schedule starts; leave it out")
    if one.spec.after:
        raise Misuse("after: is of one job and not of a schedule; leave it out")
    if missed not in tuple(Missed):
        raise Misuse(f"missed: {str(missed)[:40]!r}, must be one of {', '.join(Missed)}")
    standing = plan_standing(account, actor=asking.actor)
    (item,) = plan_items([one.spec], now_ms=None, called=called)
    new = NewSchedule(
        schedule=ScheduleId(token(id, field="schedule: id")),
        group=standing.group,
        actor=standing.actor,
        spec=when,
        item=replace(item, digest=""),
        missed=Missed(missed),
    )
    try:
        return await asking.ask(lambda store: timetable.schedule(store, new, replace=replace_))
    except Refused as refused:
        if refused.code == "ACTION_ID_COLLISION":
            raise Refused(
                f"schedule {id[:80]!r} of account {account[:80]!r} is there with other content; give replace=True to change "
                "it, or another id",
                code=refused.code,
                details=refused.details,
            ) from None
        if refused.code != "GROUP_NOT_FOUND":
            raise
    await asking.ask(lambda store: store.create(standing))
    return await asking.ask(lambda store: timetable.schedule(store, new, replace=replace_))


async def unschedule(asking: Asking, account: str, id: str) -> bool:
    """Delete a schedule; False where there is none of that id."""
    name, actor = ScheduleId(token(id, field="schedule: id")), token(asking.actor, field="actor")
    try:
        return await asking.ask(lambda store: timetable.unschedule(store, _group(account), name, actor=actor))
    except Refused as refused:
        if refused.code != "GROUP_NOT_FOUND":
            raise
        return False


async def schedules(asking: Asking, account: str | None) -> list[ScheduleView]:
    """The schedules of one account, or all of the store."""
    group = None if account is None else _group(account)
    return await asking.ask(lambda store: timetable.schedules(store, group))


def _group(account: str) -> GroupId:
    return GroupId(token(standing_id(account), field="account"))
