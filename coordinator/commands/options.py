"""Options that several commands have, and parsers whose messages name the value and the bound, as typer's do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="The store. TREADLE_URL, else redis://127.0.0.1:6379/0.", metavar="URL")
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", help="First part of every key. TREADLE_PREFIX, else treadle.", metavar="TEXT")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="JSON objects on standard output, one a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def whole(least: int, most: int) -> Callable[[object], int]:
    """A parser for whole numbers within bounds."""

    def parse(given: object) -> int:
        try:
            value = int(str(given))
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(given)[:40]!r}, must be a whole number from {least} to {most}")
        return value

    return parse


def seconds(least: float, most: float) -> Callable[[object], float]:
    """A parser for seconds within bounds."""

    def parse(given: object) -> float:
        try:
            value = float(str(given))
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise typer.BadParameter(f"{str(given)[:40]!r}, must be a number of seconds from {least:g} to {most:g}")
        return value

    return parse


TIMEOUT_S_MAX = 31_536_000.0
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Stop waiting after so many seconds; the work goes on.", parser=seconds(0, TIMEOUT_S_MAX), metavar="S"
    ),
]
