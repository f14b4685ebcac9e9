"""What a watch says where there is no terminal, and at which rate; figures that people are shown."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from treadle.coordinator.commands.displays import NARROW, RUNS_SHOWN_MAX, Bars, JsonLines, Lines, snapshot
from treadle.coordinator.core.figures import Frame, Pace, is_well, left, line, pace, presence
from treadle.shared.facts import Progress, RunFacts, WorkerFacts
from treadle.shared.model import AgentId, Capability, GroupId, MissionState
from treadle.shared.progress import Said

from docs import blocks, page

NOW = 1_800_000_000_000
ONE = Progress("m\x1b[2J", GroupId("m%1B%5B2J"), MissionState.ACTIVE, 10, 4, 1, 0, 2)


def frame(*missions: Progress, gone: tuple[str, ...] = ()) -> Frame:
    return Frame(NOW, missions, (None,) * len(missions), 1, gone)


def test_lines_say_each_change_once_a_second_and_an_end_at_once() -> None:
    said: list[str] = []
    now = [0.0]
    shown = Lines(said.append, lambda: now[0])
    shown.show(frame(ONE))
    shown.show(frame(ONE))
    shown.show(frame(replace(ONE, verified=5)))
    now[0] = 1.0
    shown.show(frame(replace(ONE, verified=6)))
    shown.show(frame(replace(ONE, verified=9, running=0, state=MissionState.FAILED)))
    shown.show(frame(replace(ONE, verified=9, running=0, state=MissionState.FAILED), gone=("x",)))
    assert said == [
        "m\\x1b[2J  active  4/10 verified, 2 running, 3 waiting, 1 failed",
        "m\\x1b[2J  active  6/10 verified, 2 running, 1 waiting, 1 failed",
        "m\\x1b[2J  failed  9/10 verified, 0 running, 0 waiting, 1 failed",
        "x  is not in the store",
    ]


def test_lines_say_that_the_store_is_away_and_that_it_is_back() -> None:
    said: list[str] = []
    now = [0.0]
    shown = Lines(said.append, lambda: now[0])
    for at in (0.0, 1.0, 6.0):
        now[0] = at
        shown.away("nobody listens", at)
    shown.back(7.0)
    assert [text.partition(";")[0] for text in said] == [
        "the store does not answer, since 0 ms",
        "the store does not answer, since 6.0 s",
        "the store answers again, after 7.0 s",
    ]


def test_json_lines_have_stable_keys() -> None:
    said: list[dict[str, Any]] = []
    shown = JsonLines(said.append)
    shown.show(frame(ONE))
    shown.show(frame(ONE))
    shown.away("why", 0.0)
    shown.away("why", 1.0)
    shown.back(1.5)
    shown.show(frame(gone=("x",)))
    assert said == [
        {
            **{"kind": "progress", "at_ms": NOW, "mission": "m\x1b[2J", "state": "active", "total": 10, "verified": 4},
            **{"running": 2, "waiting": 3, "failed": 1, "cancelled": 0, "open": False, "rate": None},
        },
        {"kind": "store", "answers": False, "why": "why"},
        {"kind": "store", "answers": True, "after_s": 1.5},
        {"kind": "gone", "at_ms": NOW, "mission": "x"},
    ]


SAID = Said(3, 10, "fetch", ("half",), "file\n7", NOW)
RUN = RunFacts("m\x1b", GroupId("m%1B"), "a", "w-1", 2, NOW, SAID)


def test_a_line_says_how_far_a_run_is_at_once_where_its_phase_is_new_and_else_each_ten_seconds() -> None:
    said: list[str] = []
    now = [0.0]
    shown = Lines(said.append, lambda: now[0])
    shown.show(replace(frame(), runs=(RUN,)))
    now[0] = 5.0
    more = replace(RUN, progress=replace(SAID, done=5))
    shown.show(replace(frame(), runs=(more,)))
    shown.show(replace(frame(), runs=(replace(RUN, progress=replace(SAID, phase="store")),)))
    now[0] = 20.0
    shown.show(replace(frame(), runs=(replace(RUN, progress=replace(SAID, done=9, phase="store")),)))
    assert said == [
        "m\\x1b/a  fetch, 3 of 10 (30%): file\\x0a7",
        "m\\x1b/a  store, 3 of 10 (30%): file\\x0a7",
        "m\\x1b/a  store, 9 of 10 (90%): file\\x0a7",
    ]


QUIET = RunFacts("m", GroupId("m"), "q", "w-1", 2, NOW - 3_000, None)


def test_a_run_that_says_nothing_is_a_line_once_it_has_lasted_a_second() -> None:
    said: list[str] = []
    shown = Lines(said.append, lambda: 0.0)
    new = replace(QUIET, item="new", started_ms=NOW - 999)
    for runs in ((QUIET, new), (QUIET,), (replace(QUIET, attempt=3),), (replace(QUIET, attempt=3, progress=SAID),)):
        shown.show(replace(frame(), runs=runs))
    assert said == [
        "m/q  runs since 3.0 s on w-1, attempt 2",
        "m/q  runs since 3.0 s on w-1, attempt 3",
        "m/q  fetch, 3 of 10 (30%): file\\x0a7",
    ]


def test_of_many_runs_that_say_nothing_a_look_adds_a_few_and_a_snapshot_has_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []
    shown = Lines(said.append, lambda: 0.0)
    many = replace(frame(), runs=tuple(replace(QUIET, item=f"i{number:03}") for number in range(40)))
    for looks in (1, 2, 3, 4):
        shown.show(many)
        assert len(said) == min(40, looks * RUNS_SHOWN_MAX)
    snapshot(replace(many, runs=(*many.runs, replace(QUIET, started_ms=NOW))), as_json=False)
    assert len(capsys.readouterr().out.splitlines()) == 41


def test_the_lines_of_the_page_are_those_that_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = (block.text for block in blocks(page("commands.md"), "text"))
    book = replace(ONE, mission="book", total=3, verified=1, failed=0, running=1)
    silent = replace(QUIET, mission="book", item="first half", worker="w1", attempt=1, started_ms=NOW - 1_200)
    telling = replace(silent, item="total", progress=Said(3, 10, "count", (), "page 3", NOW))
    snapshot(Frame(NOW, (book,), (None,), 1, (), (silent, telling)), as_json=False)
    assert capsys.readouterr().out == shown


def test_that_nobody_is_there_to_work_is_said_once_until_somebody_comes() -> None:
    said: list[str] = []
    shown = Lines(said.append, lambda: 0.0)
    for workers in (0, 0, 1, 0):
        shown.show(replace(frame(ONE), workers=workers))
    assert [text.partition(":")[0] for text in said[1:]] == ["no live Worker", "no live Worker"]


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_terminal_says_since_when_a_run_lasts_that_says_nothing(width: int) -> None:
    target = Console(file=io.StringIO(), width=width, height=20, force_terminal=True, color_system=None)
    with Live(console=target, auto_refresh=False) as live:
        Bars(live).show(replace(frame(ONE), runs=(QUIET, RUN)))
    lines = target.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert next(at for at, line in enumerate(lines) if "30%" in line) < next(
        at for at, line in enumerate(lines) if "runs si" in line
    )
    assert all(len(line) <= width for line in lines if "\x1b" not in line)


def test_a_json_line_says_each_change_of_what_a_run_said() -> None:
    said: list[dict[str, Any]] = []
    shown = JsonLines(said.append)
    for _ in range(2):
        shown.show(replace(frame(), runs=(RUN,)))
    shown.show(replace(frame(), runs=(replace(RUN, progress=replace(SAID, done=5)),)))
    about = {"kind": "run", "at_ms": NOW, "mission": "m\x1b", "item": "a", "attempt": 2, "worker": "w-1"}
    about["started_ms"] = NOW
    told = {"total": 10, "phase": "fetch", "note": "file\n7", "milestones": ["half"]}
    assert said == [{**about, **told, "done": done} for done in (3, 5)]


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_terminal_has_a_bar_for_each_run_that_said_how_far_it_is(width: int) -> None:
    target = Console(file=io.StringIO(), width=width, height=20, force_terminal=True, color_system=None)
    with Live(console=target, auto_refresh=False) as live:
        Bars(live).show(replace(frame(ONE), runs=(RUN,)))
    drawn = target.file.getvalue()  # type: ignore[attr-defined]
    assert "30%" in drawn
    assert ("fetch" in drawn) == (width >= NARROW)


def test_the_pace_is_that_of_the_last_seconds() -> None:
    pace_ = Pace()
    assert pace_.see(ONE, NOW) is None
    assert pace_.see(ONE, NOW + 100) is None
    assert pace_.see(replace(ONE, verified=8), NOW + 2_000) == 2.0
    for second in range(3, 40):
        pace_.see(replace(ONE, verified=8), NOW + second * 1000)
    assert pace_.see(replace(ONE, verified=8), NOW + 40_000) == 0.0


def test_how_a_rate_is_said_and_what_is_left() -> None:
    assert [pace(rate) for rate in (None, 0.01, 0.5, 3.14, 1234.5)] == ["", "0.6/min", "0.5/s", "3.1/s", "1,234/s"]
    assert left(ONE, 2.5) == "2.0 s"
    assert left(ONE, None) == left(ONE, 0.0) == left(replace(ONE, is_open=True), 1.0) == ""
    assert line(replace(ONE, cancelled=1), 2.0).endswith("1 failed, 1 cancelled, 2.0/s")


def test_all_is_well_until_a_mission_ended_otherwise_than_approved() -> None:
    assert is_well([ONE, replace(ONE, state=MissionState.APPROVED)])
    assert not is_well([ONE, replace(ONE, state=MissionState.CANCELLED)])


def test_a_standing_mission_with_nothing_to_do_is_no_reason_to_stay_where_nobody_named_it() -> None:
    idle = replace(ONE, verified=9, running=0, is_open=True)
    assert not frame(idle).is_over(idle_too=False)
    assert frame(idle).is_over(idle_too=True)
    assert not frame(replace(idle, verified=8)).is_over(idle_too=True)
    assert frame(replace(ONE, state=MissionState.FAILED)).is_over(idle_too=False)


@pytest.mark.parametrize(
    ("slots", "running", "silent_ms", "expected"),
    [
        *((4, 0, 0, "idle"), (4, 1, 0, "partly"), (4, 4, 0, "busy"), (2, 3, 0, "busy")),
        *((4, None, 0, "unknown"), (0, 1, 0, "busy"), (4, 1, 40_001, "unknown")),
    ],
)
def test_r39_presence_has_four_levels_and_no_count(
    slots: int, running: int | None, silent_ms: int, expected: str
) -> None:
    one = WorkerFacts(AgentId("w"), 1, (Capability("index"),), slots, 10_000, NOW - silent_ms, 7)
    assert presence(one, running, NOW) == expected
