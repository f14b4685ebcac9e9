"""How what is watched is shown: bars on a terminal, lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from treadle.shared.facts import Progress, RunFacts
from treadle.shared.lifecycle import TERMINAL_MISSIONS

from ..core.figures import Frame, left, line, pace, quiet, run_fields, run_line
from ..core.readable import cut, listed, span, times
from .following import Display
from .output import STYLES, cell, console

LOADED_AT_ONCE = 2_000
"""Items below which a Mission is in the store before a bar would be seen."""
LINE_EACH_S = 1.0
AWAY_LINE_EACH_S = 5.0
RUN_LINE_EACH_S = 10.0
"""Of a run that says nothing but other numbers; a phase or a milestone that is new is a line at once."""
RUNS_SHOWN_MAX = 16
QUIET_MS = 1_000
"""A run that says nothing is shown once it has lasted so long: of short work there is much."""
TINY, NARROW, WIDE = 40, 72, 100
"""Columns below which only name, bar and count are shown; below which also the state; and from which everything is."""
NAME_CHARS_MIN, NAME_CHARS_MAX = 6, 40
NO_WORKER = "no live Worker: `treadle-worker run --handlers MODULE` starts one"
LINES_AROUND = 4
"""Of a terminal's height, for titles and the lines below the bars."""


@contextmanager
def display(*, as_json: bool) -> Generator[Display]:
    """The display that fits: JSON lines where asked for, bars on a terminal, lines elsewhere."""
    if as_json:
        yield JsonLines(lambda value: print(json.dumps(value), flush=True))
        return
    target = console()
    if not target.is_terminal or target.is_dumb_terminal:
        yield _lines()
        return
    with Live(
        console=target, auto_refresh=False, transient=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield Bars(live)


def snapshot(frame: Frame, *, as_json: bool) -> None:
    """One look, as lines: each Mission, and each of its runs."""
    shown = JsonLines(lambda value: print(json.dumps(value))) if as_json else _lines(quiet_ms=0, runs_most=sys.maxsize)
    shown.show(frame)
    sys.stdout.flush()


def _lines(*, quiet_ms: int = QUIET_MS, runs_most: int = RUNS_SHOWN_MAX) -> Lines:
    return Lines(lambda text: print(text, flush=True), time.monotonic, quiet_ms=quiet_ms, runs_most=runs_most)


@contextmanager
def loading(items: int) -> Generator[Callable[[int], None]]:
    """A bar for a large Mission on its way to the store, on a terminal's standard error; nothing elsewhere."""
    target = console(sys.stderr)
    if not target.is_terminal or target.is_dumb_terminal or items < LOADED_AT_ONCE:
        yield lambda _: None
        return
    columns = (TextColumn("loading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=target, transient=True) as bar:
        task = bar.add_task("loading", total=items)
        yield lambda there: bar.update(task, completed=there)


class Bars:
    """A bar for each Mission, drawn again in place."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._frame: Frame | None = None

    def show(self, frame: Frame) -> None:
        self._frame = frame
        self._draw("")

    def away(self, why: str, since_s: float) -> None:
        self._draw(f"the store does not answer, since {span(since_s * 1000)}; trying again: {why}")

    def back(self, after_s: float) -> None:
        del after_s  # the next frame says it better

    def _draw(self, trouble: str) -> None:
        width, height = self._live.console.size
        parts: list[Table | Text] = []
        if self._frame is not None:
            rows = max(1, height - LINES_AROUND)
            parts.append(_bars(self._frame, width, rows))
            room = min(RUNS_SHOWN_MAX, max(0, rows - len(self._frame.missions)))
            if runs := _worth_a_bar(self._frame)[:room]:
                parts.append(_run_bars(runs, self._frame.at_ms, width))
            parts.append(_summary(self._frame, width))
        if trouble:
            parts.append(Text(cut(trouble, max(20, width - 1)), style="bold red"))
        self._live.update(Group(*parts), refresh=True)


def _bars(frame: Frame, width: int, rows: int) -> Table:
    """Those that have not ended first where there is no room for all."""
    pairs = list(zip(frame.missions, frame.rates, strict=True))
    if len(pairs) > rows:
        pairs.sort(key=lambda pair: pair[0].state in TERMINAL_MISSIONS)
        pairs = pairs[:rows]
    names = min(NAME_CHARS_MAX, max(NAME_CHARS_MIN, width // 4))
    drawn = Table.grid(padding=(0, 1, 0, 0), expand=True)
    drawn.add_column(max_width=names, no_wrap=True, overflow="ellipsis")
    drawn.add_column(ratio=1)
    for _ in range(5 if width >= NARROW else 2 if width >= TINY else 1):
        drawn.add_column(justify="right", no_wrap=True)
    if width >= WIDE:
        drawn.add_column(justify="right", no_wrap=True, min_width=9)
        drawn.add_column(justify="right", no_wrap=True, min_width=7)
    for one, rate in pairs:
        drawn.add_row(*_row(one, rate, width))
    return drawn


def _worth_a_bar(frame: Frame) -> list[RunFacts]:
    """Those that said how far they are, then those that have lasted, the longest first."""
    silent = [one for one in frame.runs if one.progress is None and frame.at_ms - one.started_ms >= QUIET_MS]
    return [one for one in frame.runs if one.progress] + sorted(silent, key=lambda one: one.started_ms)


def _run_bars(runs: Sequence[RunFacts], now_ms: int, width: int) -> Table:
    """A bar for each run that said how far it is; since when it runs for each other."""
    drawn = Table.grid(padding=(0, 1, 0, 1), expand=True)
    names = min(NAME_CHARS_MAX, max(NAME_CHARS_MIN, width // 4))
    drawn.add_column(max_width=names, no_wrap=True, overflow="ellipsis")
    drawn.add_column(ratio=1)
    drawn.add_column(justify="right", no_wrap=True)
    if width >= NARROW:
        drawn.add_column(max_width=width // 3, no_wrap=True, overflow="ellipsis")
    for one in runs:
        row: list[Text | ProgressBar] = [cell(f"{one.mission}/{one.item}")]
        if (said := one.progress) is not None:
            bar = ProgressBar(total=1.0, completed=said.fraction, complete_style="cyan", pulse=False)
            row += [bar, Text(f"{said.fraction:.0%}"), cell(said.phase or said.note)]
        else:
            row += [Text(quiet(one, now_ms), style="dim", no_wrap=True, overflow="ellipsis"), Text(""), Text("")]
        drawn.add_row(*row[: 4 if width >= NARROW else 3])
    return drawn


def _row(one: Progress, rate: float | None, width: int) -> list[Text | ProgressBar]:
    color = STYLES.get(one.state.value, "")
    bar = ProgressBar(
        total=max(1, one.total),
        completed=one.verified,
        complete_style=color or "cyan",
        finished_style=color or "green",
        pulse=False,
    )
    row: list[Text | ProgressBar] = [cell(one.mission), bar, Text(f"{one.verified}/{one.total}")]
    if width < NARROW:
        return [*row, _ending(one)] if width >= TINY else row
    row += [Text(f"{one.running} running"), Text(f"{one.waiting} waiting")]
    row += [Text(f"{one.failed} failed", style="bold red" if one.failed else "dim"), _ending(one)]
    if width >= WIDE:
        until = left(one, rate)
        row += [Text(pace(rate) if one.state not in TERMINAL_MISSIONS else ""), Text(f"{until} left" if until else "")]
    return row


def _ending(one: Progress) -> Text:
    return Text(one.state.value, style=STYLES.get(one.state.value, ""))


def _summary(frame: Frame, width: int) -> Text:
    live = [one for one in frame.missions if one.state not in TERMINAL_MISSIONS]
    rate = sum(
        rate or 0.0 for one, rate in zip(frame.missions, frame.rates, strict=True) if one.state not in TERMINAL_MISSIONS
    )
    text = f"{times(frame.workers, 'Worker')}, {times(len(live), 'Mission')} active"
    if rate:
        text += f", {pace(rate)}"
    if frame.is_deserted:
        text += f"; {NO_WORKER}"
    if frame.gone:
        text += f"; not in the store: {listed(frame.gone)}"
    return Text(cut(text, max(20, width - 1)), style="dim")


class Lines:
    """A line for each Mission that changed, at most one a second each; its end at once. A line for what a run says.

    A run that says nothing gets one once it has lasted `quiet_ms`, with each look `runs_most` at the most.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Callable[[], float],
        *,
        quiet_ms: int = QUIET_MS,
        runs_most: int = RUNS_SHOWN_MAX,
    ) -> None:
        self._write, self._clock = write, clock
        self._quiet_ms, self._runs_most = quiet_ms, runs_most
        self._is_deserted = False
        self._said: dict[str, tuple[float, Progress]] = {}
        self._away_s: float | None = None
        self._gone: set[str] = set()
        self._runs: dict[tuple[str, str], tuple[float, RunFacts]] = {}

    def show(self, frame: Frame) -> None:
        now_s = self._clock()
        present = {(one.mission, one.item) for one in frame.runs}
        self._runs = {key: said for key, said in self._runs.items() if key in present}
        for one, rate in zip(frame.missions, frame.rates, strict=True):
            at_s, before = self._said.get(one.mission, (-LINE_EACH_S, None))
            due = now_s - at_s >= LINE_EACH_S or one.state in TERMINAL_MISSIONS
            if one != before and due:
                self._said[one.mission] = (now_s, one)
                self._write(line(one, rate))
        self._show_silent([one for one in frame.runs if one.progress is None], now_s, frame.at_ms)
        for run in frame.runs:
            self._show_run(run, now_s, frame.at_ms)
        for name in frame.gone:
            if name not in self._gone:
                self._gone.add(name)
                self._write(f"{cut(name, 200)}  is not in the store")
        deserted, self._is_deserted = self._is_deserted, frame.is_deserted
        if self._is_deserted and not deserted:
            self._write(NO_WORKER)

    def _show_silent(self, runs: Sequence[RunFacts], now_s: float, now_ms: int) -> None:
        new = [one for one in runs if now_ms - one.started_ms >= self._quiet_ms and not self._is_known(one)]
        for one in new[: self._runs_most]:
            self._runs[one.mission, one.item] = (now_s, one)
            self._write(run_line(one, now_ms))

    def _is_known(self, one: RunFacts) -> bool:
        _, before = self._runs.get((one.mission, one.item), (0.0, None))
        return before is not None and before.attempt == one.attempt

    def _show_run(self, one: RunFacts, now_s: float, now_ms: int) -> None:
        at_s, before = self._runs.get((one.mission, one.item), (-math.inf, None))
        if one.progress is None or one == before:
            return
        was = before.progress if before is not None and before.attempt == one.attempt else None
        is_new = was is None or (was.phase, was.milestones) != (one.progress.phase, one.progress.milestones)
        if is_new or now_s - at_s >= RUN_LINE_EACH_S:
            self._runs[one.mission, one.item] = (now_s, one)
            self._write(run_line(one, now_ms))

    def away(self, why: str, since_s: float) -> None:
        now_s = self._clock()
        if self._away_s is None or now_s - self._away_s >= AWAY_LINE_EACH_S:
            self._away_s = now_s
            self._write(f"the store does not answer, since {span(since_s * 1000)}; trying again: {cut(why, 200)}")

    def back(self, after_s: float) -> None:
        self._away_s = None
        self._write(f"the store answers again, after {span(after_s * 1000)}")


class JsonLines:
    """One object a line: `progress` where a Mission changed, `run` where a run said how far it is, `store`, `gone`."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._said: dict[str, Progress] = {}
        self._runs: dict[tuple[str, str], RunFacts] = {}
        self._gone: set[str] = set()
        self._is_away = False

    def show(self, frame: Frame) -> None:
        for one, rate in zip(frame.missions, frame.rates, strict=True):
            if self._said.get(one.mission) != one:
                self._said[one.mission] = one
                self._write({"kind": "progress", "at_ms": frame.at_ms, **counts(one), "rate": rate and round(rate, 3)})
        known, self._runs = self._runs, {(one.mission, one.item): one for one in frame.runs}
        for key, run in self._runs.items():
            if known.get(key) != run:
                self._write({"kind": "run", "at_ms": frame.at_ms, "mission": run.mission, **run_fields(run)})
        for name in frame.gone:
            if name not in self._gone:
                self._gone.add(name)
                self._write({"kind": "gone", "at_ms": frame.at_ms, "mission": name})

    def away(self, why: str, since_s: float) -> None:
        del since_s
        if not self._is_away:
            self._is_away = True
            self._write({"kind": "store", "answers": False, "why": why})

    def back(self, after_s: float) -> None:
        self._is_away = False
        self._write({"kind": "store", "answers": True, "after_s": round(after_s, 3)})


def counts(one: Progress) -> dict[str, Any]:
    """A Mission's progress as programs read it."""
    return {
        "mission": one.mission,
        "state": one.state.value,
        "total": one.total,
        "verified": one.verified,
        "running": one.running,
        "waiting": one.waiting,
        "failed": one.failed,
        "cancelled": one.cancelled,
        "open": one.is_open,
    }
