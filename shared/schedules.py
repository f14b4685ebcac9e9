"""When a schedule ticks: cron expressions and intervals, in time zones. Pure: the same answer on every machine.

**Cron** is five fields: minute, hour, day of month, month, day of week; `*`, `1-5`, `*/15`, `1,15`, `MON`, `JAN`, `L` (last day
of the month), `LW` (its last weekday), `FRI#2` (second Friday), `5L` (last Friday). Where both day fields are restricted,
either will do, as everywhere.

**Change of clocks.** A tick at a stated time happens once on each day. Where that time does not exist (02:30 on the day
the clocks go forward) it is the moment at which the gap ends (03:00); where it exists twice (02:30 on the day they go back)
it is the first of the two. Two ticks that fall on one moment are one. Where the minute or the hour field begins with `*`
("every 15 minutes", "each hour at :30") ticks follow the time that really passes: none is left out, none is doubled, and an
hour that does not exist or exists twice has no or twice its ticks.

**Intervals** tick at their anchor and then at each multiple of their length after it, whatever clocks do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import NewType, assert_never
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from .errors import Corrupt, Misuse
from .model import Capability, Event, EventKind, GroupId, NewItem

ScheduleId = NewType("ScheduleId", str)
"""The token of a schedule, unique inside its Mission."""

EXPRESSION_CHARS_MAX = 128
EVERY_MS_MIN, EVERY_MS_MAX = 1_000, 366 * 86_400_000
LATE_MS = 60_000
"""A firing that comes later than this is marked late."""
COUNT_MAX = 1_000
"""Ticks that were missed are counted up to here."""
ID_BYTES_MAX = 240
"""An item's id is its schedule's, `@` and the time of the tick, within what a name may have."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_DUPLICATES_MAX = 4_000
"""Ticks of one naive day that may lie before the moment asked about: more than its minutes."""
_OF_THE_HOST = frozenset({"localtime", "posixrules", "Factory"})
_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday) or SUN to SAT, with L or #1 to #5",
}


class Missed(StrEnum):
    """What becomes of ticks whose time passed while nothing carried them out."""

    ONE = "one"
    """The first of them fires, late; the next is the first one that is still to come."""
    ALL = "all"
    """Each of them fires, in order."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Ticks of a cron expression in a time zone; Misuse where it is none, naming what is wrong with which field."""

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", " ".join(self.expression.split()).upper())
        _check_expression(self.expression)
        zone_of(self.zone)


@dataclass(frozen=True, slots=True)
class Interval:
    """Ticks at `anchor_ms + k * every_ms`, k being 0, 1, 2, ...; Misuse where the length is out of its bounds."""

    every_ms: int
    anchor_ms: int = 0
    """0: from the moment at which the schedule is made, so that it ticks first one interval later."""

    def __post_init__(self) -> None:
        if not EVERY_MS_MIN <= self.every_ms <= EVERY_MS_MAX:
            raise Misuse(f"every: {self.every_ms / 1000:g} s, must be 1 s to 366 days")
        if not 0 <= self.anchor_ms < 10**14:
            raise Misuse(f"start: {self.anchor_ms} ms since 1970, must be 0 to 1e14")


Spec = Cron | Interval


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be made. Each tick adds one item like `item` to the Mission, as `<schedule>@<tick in ms>`.

    Of `item`, its own id, `after`, `deadline_ms`, `not_before` and `digest` say nothing and stay empty.
    """

    schedule: ScheduleId
    group: GroupId
    actor: str
    spec: Spec
    item: NewItem
    missed: Missed = Missed.ONE


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as the store has it now."""

    schedule: ScheduleId
    group: GroupId
    spec: Spec
    missed: Missed
    capability: Capability
    actor: str
    """Who made it, or changed it last."""
    created_ms: int
    next_ms: int
    fired: int
    """How often it has fired."""
    last_ms: int
    """The tick that fired last, 0 for none."""
    skipped: int
    """Ticks that were missed and not made up for."""


@dataclass(frozen=True, slots=True)
class Firing:
    """Which tick an item comes from, as its `work.authorized` Event says."""

    schedule: str
    due_ms: int
    is_late: bool
    skipped: int
    """Ticks after this one that were missed and do not fire."""


_NOTE = re.compile(r"schedule=(\S+) due_ms=([0-9]+) late=([01]) skipped=([0-9]+)")


def firing_of(event: Event) -> Firing | None:
    """What an Event tells of the tick that its item comes from; None where it comes from none."""
    found = _NOTE.fullmatch(event.payload.decode(errors="replace")) if event.kind is EventKind.AUTHORIZED else None
    if found is None:
        return None
    return Firing(found[1], int(found[2]), found[3] == "1", int(found[4]))


# --- when it ticks ---


def next_due(spec: Spec, after_ms: int) -> int:
    """The first tick later than `after_ms`, in milliseconds; Misuse where there is none within 50 years."""
    match spec:
        case Interval(every_ms, anchor_ms):
            return anchor_ms + max(0, (after_ms - anchor_ms) // every_ms + 1) * every_ms
        case Cron():
            for tick_ms in _ticks(spec, after_ms):
                return tick_ms
            raise Misuse(f"cron: {spec.expression!r} never fires: no day within 50 years is one of its days")
        case _:
            assert_never(spec)


def ticks_between(spec: Spec, after_ms: int, until_ms: int, *, most: int = COUNT_MAX) -> int:
    """How many ticks are later than the one and not later than the other, `most` at most."""
    if isinstance(spec, Interval):
        first_ms = next_due(spec, after_ms)
        return 0 if first_ms > until_ms else min(most, (until_ms - first_ms) // spec.every_ms + 1)
    count = 0
    for tick_ms in _ticks(spec, after_ms):
        if tick_ms > until_ms or count == most:
            break
        count += 1
    return count


def what_follows(spec: Spec, missed: Missed, due_ms: int, now_ms: int) -> tuple[int, int]:
    """After a firing of the tick `due_ms` at `now_ms`: when the next is due, and how many between them never fire."""
    next_ms = next_due(spec, due_ms)
    if missed is Missed.ALL or next_ms > now_ms:
        return next_ms, 0
    return next_due(spec, now_ms), ticks_between(spec, due_ms, now_ms)


def _ticks(spec: Cron, after_ms: int) -> Iterator[int]:
    """Its ticks later than `after_ms`, each once, in order."""
    last_ms, stale = after_ms, 0
    for moment in CronSim(spec.expression, (_EPOCH + after_ms * _MS).astimezone(zone_of(spec.zone))):
        tick_ms = (moment - _EPOCH) // _MS
        if tick_ms > last_ms:
            last_ms, stale = tick_ms, 0
            yield tick_ms
        else:
            # A stated time that exists twice is the first of the two, and after it is over it is not to come.
            stale += 1
            if stale > _DUPLICATES_MAX:
                raise Corrupt(f"cron: {spec.expression!r} in {spec.zone} does not get on from {last_ms} ms")


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The time zone of that IANA name; Misuse where there is none, or where it is another one on every host."""
    if name == "UTC":
        return UTC
    try:
        if name in _OF_THE_HOST or len(name) > 64:
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = difflib.get_close_matches(name[:64], available_timezones(), n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ", as 'Europe/Berlin'"
        raise Misuse(f"zone: {name[:64]!a} is no time zone of the IANA list{hint}") from None


def _check_expression(expression: str) -> None:
    words = expression.split()
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise Misuse(f"cron: {len(expression)} characters, at most {EXPRESSION_CHARS_MAX}")
    if len(words) != len(_FIELDS):
        raise Misuse(
            f"cron: {expression!a} has {len(words)} fields, must have 5: minute, hour, day of month, month, day of week"
        )
    for (name, bounds), number in zip(_FIELDS.items(), range(5), strict=True):
        alone = ["*"] * 5
        alone[number] = words[number]
        if not _is_valid(" ".join(alone)):
            raise Misuse(f"cron: {name} {words[number]!a} of {expression!a} is not valid; it takes {bounds}")
    if not _is_valid(expression):
        raise Misuse(
            f"cron: {expression!a} never fires: no month it names ({words[3]}) has a day {words[2]}; "
            "use another day, or L for the last of the month"
        )


def _is_valid(expression: str) -> bool:
    try:
        CronSim(expression, _EPOCH)
    except (CronSimError, AssertionError, ValueError, TypeError):
        return False
    return True


# --- as the store keeps it ---


def spec_text(spec: Spec) -> str:
    """A spec as one line; `parse_spec` reads it."""
    match spec:
        case Cron(expression, zone):
            return f"cron {zone} {expression}"
        case Interval(every_ms, anchor_ms):
            return f"every {every_ms} {anchor_ms}"
        case _:
            assert_never(spec)


def parse_spec(text: str) -> Spec:
    """The spec of a line that `spec_text` made; Corrupt for any other, Misuse where this host does not know its zone."""
    kind, _, rest = text.partition(" ")
    first, _, second = rest.partition(" ")
    if kind == "cron" and second:
        return Cron(second, first)
    if kind == "every" and first.isdecimal() and second.isdecimal():
        return Interval(int(first), int(second))
    raise Corrupt(f"{text[:80]!r} is no schedule's spec")


@dataclass(frozen=True, slots=True)
class Due:
    """A tick whose time has come, as the store's clock says: whoever fires it first does."""

    group: GroupId
    schedule: ScheduleId
    due_ms: int
    missed: Missed
    spec: str = field(repr=False)
    """As it is stored: who fires it reads it."""
