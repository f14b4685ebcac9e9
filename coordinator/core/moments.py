"""Moments as people type them: `+90s`, `+2h`, or a date and time in ISO 8601 with its zone. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from treadle.shared.errors import Misuse

from .wording import quoted

UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400}
SPAN_DAYS_MAX = 3_660
EXAMPLE = "write +90s, +15min, +2h, +1d, or 2030-01-01T09:00:00+01:00"
_SPAN = re.compile(r"\+([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([a-z]+)")


def moment(text: str, *, field: str) -> datetime | timedelta:
    """From now (the store's), or at a moment; Misuse for anything else, a time without a zone among it."""
    given = text.strip()
    if found := _SPAN.fullmatch(given):
        number, unit = found.groups()
        if unit not in UNITS_S:
            raise Misuse(f"{field}: {quoted(text)}: no unit {quoted(unit)}; use s, min, h or d")
        span = timedelta(seconds=float(number) * UNITS_S[unit])
        if span > timedelta(days=SPAN_DAYS_MAX):
            raise Misuse(f"{field}: {quoted(text)} is more than {SPAN_DAYS_MAX} days")
        return span
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise Misuse(f"{field}: {quoted(text)} is no moment; {EXAMPLE}") from None
    if at.tzinfo is None:
        raise Misuse(f"{field}: {quoted(text)} has no time zone; write it as {given}Z (UTC) or {given}+01:00")
    return at
