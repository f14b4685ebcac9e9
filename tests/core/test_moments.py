"""`--not-before`: what people type, and what is refused with how to write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from treadle.coordinator.core.moments import moment
from treadle.shared.errors import Misuse


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("+90s", timedelta(seconds=90)),
        ("+1.5h", timedelta(minutes=90)),
        ("+15min", timedelta(minutes=15)),
        ("+15 m", timedelta(minutes=15)),
        (" +1d ", timedelta(days=1)),
        ("+0s", timedelta()),
        ("2030-01-01T09:00:00Z", datetime(2030, 1, 1, 9, tzinfo=UTC)),
        ("2030-01-01 09:00+01:00", datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_a_moment(text: str, wanted: datetime | timedelta) -> None:
    assert moment(text, field="--not-before") == wanted


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("", "is no moment; write +90s"),
        ("90s", "is no moment"),
        ("+-5s", "is no moment"),
        ("+5 weeks", 'no unit "weeks"; use s, min, h or d'),
        ("+99999d", "is more than 3660 days"),
        ("2030-01-01T09:00:00", "has no time zone; write it as 2030-01-01T09:00:00Z (UTC)"),
        ("tomorrow", "is no moment"),
        ("\u0661\u0662", "is no moment"),
    ],
)
def test_what_is_none(text: str, saying: str) -> None:
    with pytest.raises(Misuse) as refused:
        moment(text, field="--not-before")
    assert str(refused.value).startswith("--not-before: ")
    assert saying in str(refused.value)
