"""When schedules tick: fields, bounds, time zones, the days on which clocks change (BR-53), and what is missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from builders import an_event
from hypothesis import given, settings
from hypothesis import strategies as st
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.model import Event, EventKind, GroupId, ItemId
from treadle.shared.schedules import (
    COUNT_MAX,
    EVERY_MS_MAX,
    Cron,
    Firing,
    Interval,
    Missed,
    Spec,
    firing_of,
    next_due,
    parse_spec,
    spec_text,
    ticks_between,
    what_follows,
    zone_of,
)

DAY_MS = 86_400_000


def ms(text: str, zone: str = "UTC") -> int:
    """The moment of a local time; `+02:00` at its end says which of two."""
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).timestamp() * 1000)


def shown(tick_ms: int, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(tick_ms / 1000, UTC).astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")


def ticks(spec: Spec, after_ms: int, until_ms: int) -> list[int]:
    """Every tick of a span, each found from the one before it."""
    found: list[int] = []
    while (tick_ms := next_due(spec, found[-1] if found else after_ms)) <= until_ms:
        found.append(tick_ms)
    return found


def days(spec: Cron, first: str, last: str) -> list[str]:
    """The ticks of some days, as clocks there show them."""
    found = ticks(spec, ms(f"{first}T00:00", spec.zone) - 1, ms(f"{last}T23:59", spec.zone))
    return [shown(tick_ms, spec.zone) for tick_ms in found]


# --- cron ---


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00", "2026-01-01T00:01"),
        ("*/15 * * * *", "2026-01-01T00:00:01", "2026-01-01T00:15"),
        ("0 0 * * *", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("30 2 * * *", "2026-01-01T02:29:59", "2026-01-01T02:30"),
        ("0 9-17 * * mon-fri", "2026-01-02T17:00", "2026-01-05T09:00"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 l * *", "2026-02-01T00:00", "2026-02-28T00:00"),
        ("0 0 LW * *", "2026-02-01T00:00", "2026-02-27T00:00"),
        ("0 12 * * FRI#2", "2026-01-01T00:00", "2026-01-09T12:00"),
        ("0 12 * * 5L", "2026-01-01T00:00", "2026-01-30T12:00"),
        ("0 0 13 * FRI", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("0 0 1 jan *", "2026-01-01T00:00", "2027-01-01T00:00"),
        ("  0   0 * *  0 ", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 30 2 MON", "2026-01-01T00:00", "2026-02-02T00:00"),
    ],
)
def test_the_next_tick_is_the_first_later_one(expression: str, after: str, expected: str) -> None:
    assert next_due(Cron(expression), ms(after)) == ms(expected)


def test_br_53_a_stated_time_fires_once_on_each_day_the_clocks_change() -> None:
    """02:30 does not exist on the first day: it is the end of the gap. It exists twice on the second: it is the first."""
    daily = Cron("30 2 * * *", "Europe/Berlin")
    assert days(daily, "2026-03-28", "2026-03-30") == [
        "2026-03-28T02:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert days(daily, "2026-10-24", "2026-10-26") == [
        "2026-10-24T02:30+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-10-25T02:29+02:00", "2026-10-25T02:30+02:00"),
        ("2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"),
        ("2026-10-25T02:45+02:00", "2026-10-26T02:30+01:00"),
        ("2026-10-25T02:00+01:00", "2026-10-26T02:30+01:00"),
        ("2026-10-25T02:29+01:00", "2026-10-26T02:30+01:00"),
        ("2026-03-29T01:59+01:00", "2026-03-29T03:00+02:00"),
        ("2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"),
    ],
)
def test_br_53_whenever_it_is_asked_in_the_hour_that_comes_twice_the_tick_is_never_in_the_past(
    after: str, expected: str
) -> None:
    assert shown(next_due(Cron("30 2 * * *", "Europe/Berlin"), ms(after)), "Europe/Berlin") == expected


def test_two_stated_times_in_the_gap_are_one_tick() -> None:
    assert days(Cron("0,30 2,3 * * *", "Europe/Berlin"), "2026-03-29", "2026-03-29") == [
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:30+02:00",
    ]


@pytest.mark.parametrize(
    ("expression", "day", "number"),
    [
        ("*/30 * * * *", "2026-03-29", 46),
        ("*/30 * * * *", "2026-10-25", 50),
        ("30 * * * *", "2026-03-29", 23),
        ("30 * * * *", "2026-10-25", 25),
        ("*/30 2 * * *", "2026-03-29", 0),
        ("*/30 2 * * *", "2026-10-25", 4),
        ("0-59 2 * * *", "2026-10-25", 60),
        ("0-59 2 * * *", "2026-03-29", 1),
    ],
)
def test_what_begins_with_a_star_follows_the_time_that_passes(expression: str, day: str, number: int) -> None:
    found = days(Cron(expression, "Europe/Berlin"), day, day)
    assert len(found) == number
    assert len(set(found)) == number


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        ("America/New_York", "2026-03-07", "2026-03-09"),
        ("America/New_York", "2026-10-31", "2026-11-02"),
        ("Australia/Lord_Howe", "2026-04-04", "2026-04-06"),
        ("Australia/Lord_Howe", "2026-10-03", "2026-10-05"),
        ("Africa/Cairo", "2026-04-23", "2026-04-25"),
        ("America/Santiago", "2026-09-05", "2026-09-07"),
        ("Asia/Kathmandu", "2026-01-01", "2026-01-03"),
    ],
)
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 0 * * *", "15 0 * * *", "45 1 * * *"])
def test_once_a_day_is_once_a_day_in_every_zone(expression: str, zone: str, first: str, last: str) -> None:
    found = days(Cron(expression, zone), first, last)
    assert [text[:10] for text in found] == [
        str(datetime.fromisoformat(first).date() + timedelta(days=number)) for number in range(3)
    ]


EXPRESSIONS = st.sampled_from(
    [
        "30 2 * * *",
        "0,30 1-3 * * *",
        "*/7 * * * *",
        "30 * * * *",
        "*/20 2 * * *",
        "0 0 * * *",
        "15 0 1 * MON",
        "5 */3 * * *",
    ]
)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata"]
)


@given(EXPRESSIONS, ZONES, st.integers(ms("2025-01-01T00:00"), ms("2028-01-01T00:00")))
def test_ticks_rise_and_none_lies_between_a_moment_and_the_one_after_it(expression: str, zone: str, at_ms: int) -> None:
    """From any moment up to its next tick, the next tick is the same one."""
    spec = Cron(expression, zone)
    tick_ms = next_due(spec, at_ms)
    assert at_ms < tick_ms
    assert tick_ms % 60_000 == 0
    for share in (0.25, 0.5, 0.99):
        assert next_due(spec, at_ms + int((tick_ms - at_ms - 1) * share)) == tick_ms
    assert next_due(spec, tick_ms) > tick_ms


@given(
    ZONES,
    st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 23), min_size=1, max_size=3, unique=True),
    st.sampled_from(["2026-03-08", "2026-03-29", "2026-04-05", "2026-04-24", "2026-10-04", "2026-10-25", "2026-11-01"]),
)
def test_stated_times_are_what_the_rule_says_on_days_that_change(
    zone: str, minutes: list[int], hours: list[int], day: str
) -> None:
    """The rule as a plain computation: each stated time is its first moment, or the end of the gap it lies in."""
    spec = Cron(f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *", zone)
    expected = set()
    for hour in hours:
        for minute in minutes:
            wall = datetime.fromisoformat(day).replace(hour=hour, minute=minute, tzinfo=zone_of(zone))
            while wall.astimezone(UTC).astimezone(wall.tzinfo).replace(fold=0) != wall:
                wall += timedelta(minutes=1)
            expected.add(round(wall.timestamp() * 1000))
    begin_ms = min(expected) - 1
    assert ticks(spec, begin_ms, max(expected)) == sorted(expected)


@pytest.mark.parametrize(
    ("expression", "zone", "message"),
    [
        ("", "UTC", "has 0 fields, must have 5"),
        ("* * * *", "UTC", "has 4 fields"),
        ("0 * * * * *", "UTC", "has 6 fields"),
        ("@daily", "UTC", "has 1 fields"),
        ("60 * * * *", "UTC", "minute '60' of '60 \\* \\* \\* \\*' is not valid; it takes 0 to 59"),
        ("0 24 * * *", "UTC", "hour '24'.*0 to 23"),
        ("0 0 32 * *", "UTC", "day-of-month '32'"),
        ("0 0 1 13 *", "UTC", "month '13'.*JAN to DEC"),
        ("0 0 * * MOND", "UTC", "day-of-week 'MOND'"),
        ("5-1 * * * *", "UTC", "minute '5-1'"),
        ("*/0 * * * *", "UTC", "minute '\\*/0'"),
        ("0 0 30 2 *", "UTC", r"'0 0 30 2 \*' never fires: no month it names \(2\) has a day 30"),
        ("0 0 31 2,4,6 *", "UTC", "never fires: no month it names"),
        ("0 0 30 feb *", "Europe/Berlin", "never fires"),
        ("0 0 ١ * *", "UTC", "day-of-month"),
        ("0 0 1,,2 * *", "UTC", "day-of-month"),
        ("0 " * 80, "UTC", "characters, at most 128"),
        ("0 0 * * *", "", "zone: '' is no time zone"),
        ("0 0 * * *", "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("0 0 * * *", "../etc/passwd", "is no time zone"),
        ("0 0 * * *", "/etc/localtime", "is no time zone"),
        ("0 0 * * *", "localtime", "is no time zone"),
        ("0 0 * * *", "Europe", "is no time zone"),
        ("0 0 * * *", "x" * 5000, "is no time zone"),
        ("0 0 * * *", "Europe/Berlin\x00", "is no time zone"),
        ("0 0 * * *", "\ud800", "is no time zone"),
    ],
)
def test_what_cannot_be_or_never_fires_is_refused_with_what_is_wrong(expression: str, zone: str, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        Cron(expression, zone)


def test_an_expression_whose_days_never_come_together_is_refused_when_it_is_first_asked() -> None:
    with pytest.raises(Misuse, match="never fires"):
        next_due(Cron("0 0 */16 * MON#5"), ms("2026-01-01T00:00"))


@given(st.text(max_size=30))
def test_any_text_is_an_expression_or_misuse(text: str) -> None:
    try:
        spec = Cron(text)
    except Misuse:
        return
    assert parse_spec(spec_text(spec)) == spec


# --- intervals ---


def test_an_interval_ticks_at_its_anchor_and_at_each_multiple_after_it() -> None:
    spec = Interval(90_000, 1_000_000)
    assert next_due(spec, 0) == 1_000_000
    assert next_due(spec, 999_999) == 1_000_000
    assert next_due(spec, 1_000_000) == 1_090_000
    assert next_due(spec, 1_089_999) == 1_090_000
    assert ticks(spec, 0, 1_300_000) == [1_000_000, 1_090_000, 1_180_000, 1_270_000]


@pytest.mark.parametrize("every_ms", [999, 0, -1, EVERY_MS_MAX + 1])
def test_an_interval_has_bounds(every_ms: int) -> None:
    with pytest.raises(Misuse, match="must be 1 s to 366 days"):
        Interval(every_ms)


@pytest.mark.parametrize("anchor_ms", [-1, 10**14])
def test_an_anchor_has_bounds(anchor_ms: int) -> None:
    with pytest.raises(Misuse, match="start"):
        Interval(1000, anchor_ms)


@given(st.integers(1000, EVERY_MS_MAX), st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 10**7))
def test_intervals_are_counted_as_they_tick(every_ms: int, anchor_ms: int, after_ms: int, span_ms: int) -> None:
    spec = Interval(every_ms, anchor_ms)
    number = ticks_between(spec, after_ms, after_ms + span_ms, most=50)
    assert number == min(
        50, len(ticks(spec, after_ms, min(after_ms + span_ms, max(after_ms, anchor_ms) + 60 * every_ms)))
    )


# --- what is missed ---

HOURLY: Spec = Cron("0 * * * *")


@pytest.mark.parametrize(
    ("missed", "now", "expected", "skipped"),
    [
        (Missed.ONE, "2026-01-01T10:00:00", "2026-01-01T11:00", 0),
        (Missed.ONE, "2026-01-01T10:59:59", "2026-01-01T11:00", 0),
        (Missed.ONE, "2026-01-01T11:00:00", "2026-01-01T12:00", 1),
        (Missed.ONE, "2026-01-01T14:30:00", "2026-01-01T15:00", 4),
        (Missed.ALL, "2026-01-01T10:00:00", "2026-01-01T11:00", 0),
        (Missed.ALL, "2026-01-01T14:30:00", "2026-01-01T11:00", 0),
    ],
)
def test_what_follows_a_firing(missed: Missed, now: str, expected: str, skipped: int) -> None:
    assert what_follows(HOURLY, missed, ms("2026-01-01T10:00"), ms(now)) == (ms(expected), skipped)


def test_what_was_missed_in_years_is_counted_no_further_than_its_bound() -> None:
    due_ms, now_ms = ms("2020-01-01T00:00"), ms("2026-01-01T00:00")
    for spec in (Cron("* * * * *", "Europe/Berlin"), Interval(1000)):
        next_ms, skipped = what_follows(spec, Missed.ONE, due_ms, now_ms)
        assert skipped == COUNT_MAX
        assert 0 < next_ms - now_ms <= 60_000


@settings(deadline=None)  # it reckons the tick of days, and the machine may be busy
@given(EXPRESSIONS, ZONES, st.integers(ms("2026-01-01T00:00"), ms("2027-01-01T00:00")), st.integers(0, 3 * DAY_MS))
def test_no_tick_is_forgotten(expression: str, zone: str, at_ms: int, late_ms: int) -> None:
    """The tick that fires, those that are counted as skipped, and the next one are all there are."""
    spec = Cron(expression, zone)
    due_ms = next_due(spec, at_ms)
    now_ms = due_ms + late_ms
    next_ms, skipped = what_follows(spec, Missed.ONE, due_ms, now_ms)
    assert next_ms > now_ms
    assert skipped == len(ticks(spec, due_ms, now_ms))
    assert next_ms == next_due(spec, now_ms)


# --- as it is kept ---


@pytest.mark.parametrize(
    "spec", [Cron("*/5 1-3 * * MON#1", "America/Argentina/Buenos_Aires"), Interval(5000, 7), HOURLY]
)
def test_a_spec_is_kept_as_one_line(spec: Spec) -> None:
    text = spec_text(spec)
    assert "\n" not in text
    assert parse_spec(text) == spec


@pytest.mark.parametrize(
    "text", ["", "cron", "cron UTC", "every 5000", "every x 0", "every 5000 -1", "at noon", "every 5000 7 8"]
)
def test_what_is_no_spec_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        parse_spec(text)


def test_an_event_says_which_tick_its_item_comes_from() -> None:
    note = b"schedule=nightly due_ms=1764450000000 late=1 skipped=3"
    event = Event(GroupId("g"), 1, 1, EventKind.AUTHORIZED, 0, ItemId("i"), "timer", ("x", "1", "0"), note)
    assert firing_of(event) == Firing("nightly", 1764450000000, True, 3)
    assert firing_of(an_event(EventKind.AUTHORIZED)) is None
    assert firing_of(an_event(EventKind.OFFERED)) is None
