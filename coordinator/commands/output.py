"""What a command writes: tables for people, one JSON document for programs, notes beside them on standard error.

Colours, bars and folded columns only on a terminal; elsewhere a table is as wide as its content, one row a line, so that
`grep` and `cut` work. Names reach a terminal with what could steer it escaped, and never as markup.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, cast

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from treadle.shared.errors import Misuse

from ..core.readable import safe

UNBOUNDED = 100_000
"""Columns of what is no terminal."""
GAP, SHORT = 2, 8
"""Between columns; and how short a shortened one gets."""

STYLES = {
    **dict.fromkeys(("OK", "approved", "verified", "live", "VERIFIED"), "green"),
    **dict.fromkeys(
        ("WARN", "paused", "silent", "awaiting_approval", "cancelled", "UNKNOWN", "blocked", "BLOCKED"), "yellow"
    ),
    **dict.fromkeys(("FAIL", "failed", "halted", "FAILED", "HELD", "HALTED"), "bold red"),
    **dict.fromkeys(("active", "RUNNING"), "cyan"),
}
"""Of words that are states; every other word has none."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: numbers stand on the right; what is extra is left out where the terminal is narrow, the last one first."""

    title: str
    right: bool = False
    may_shorten: bool = False
    is_extra: bool = False


def console(stream: TextIO | None = None) -> Console:
    """A console on a stream (standard output); it takes NO_COLOR and TERM=dumb as they are meant."""
    stream = sys.stdout if stream is None else stream
    is_terminal = stream is not None and stream.isatty()  # None: it was closed before the command began
    return Console(
        file=stream,
        force_terminal=is_terminal,
        width=None if is_terminal else UNBOUNDED,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not is_terminal,
    )


def cell(value: object) -> Text:
    """A value as text of a cell: escaped, never markup; a state in its colour."""
    text = safe(str(value))
    return Text(text, style=STYLES.get(text.partition(":")[0], ""))


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under titles.

    Where the terminal is too narrow, what may be shortened is, then what may be left out is, then the rest is folded.
    """
    target = console()
    cells = [[cell(value) for value in row] for row in rows]
    widths = [
        max([cell_len(column.title), *(row[place].cell_len for row in cells)]) for place, column in enumerate(columns)
    ]
    kept = fitted(columns, widths, target.width)
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold" if target.is_terminal else "")
    for place, width in kept.items():
        column = columns[place]
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=column.right or column.may_shorten or not target.is_terminal,
            overflow="ellipsis" if column.may_shorten else "fold",
            max_width=width if column.may_shorten else None,
        )
    for row in cells:
        drawn.add_row(*(row[place] for place in kept))
    if target.is_terminal:
        target.print(drawn)
        return
    with target.capture() as captured:
        target.print(drawn)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """The places of the columns that are shown, with their widths, so that they fit if they can."""
    kept = dict(enumerate(widths))

    def excess() -> int:
        return sum(kept.values()) + GAP * (len(kept) - 1) - room

    for place, column in enumerate(columns):
        if column.may_shorten and excess() > 0:
            kept[place] = max(min(SHORT, kept[place]), kept[place] - excess())
    for place in reversed(range(len(columns))):
        if columns[place].is_extra and excess() > 0:
            del kept[place]
    return kept


def typed(name: str) -> str:
    """A name as it is typed at a shell's prompt; MISSION for one that cannot be typed."""
    return shlex.quote(name) if safe(name) == name else "MISSION"


def say(text: str) -> None:
    """A line of the answer itself."""
    print(text, flush=True)


def note(text: str) -> None:
    """A line for people beside the answer; programs read standard output only."""
    print(text, file=sys.stderr, flush=True)


def ask(question: str, instead: str) -> None:
    """Go on only where a person says so; Misuse, with what to do `instead`, where there is none to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse(f"{question} {instead}")
    if not typer.confirm(f"treadle: {question}", err=True):
        raise Misuse("nothing was done")


def document(value: dict[str, Any]) -> None:
    """The answer as one JSON object on one line; ASCII, so that no name in it can steer a terminal."""
    print(json.dumps(value), flush=True)


def plain(value: object) -> Any:
    """A result as JSON has it: bytes as text where they are UTF-8, else as hexadecimal digits; times in ISO 8601."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in cast("Sequence[object]", value)]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
