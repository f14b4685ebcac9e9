"""docs/tutorial.md walked literally: its files in a fresh folder, its commands in shells, what they write as it is shown."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh import FRESH
from walking import Walk, constant, matched, steps

from docs import blocks, page, written

PAGE = page("tutorial.md")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tt-", dir="/tmp") as made:  # short: a server's socket may be below it
        yield Path(made)


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_every_step_gives_what_the_page_shows(folder: Path) -> None:
    place, output = folder / "first", folder / "output"
    place.mkdir()
    output.mkdir()
    programs = str(Path(sys.executable).parent)
    environment = {**FRESH, "PATH": f"{programs}{os.pathsep}{FRESH['PATH']}", "PYTHONUNBUFFERED": "1"}
    environment["TMPDIR"] = str(folder)
    files = {path.name for path in written(PAGE, place)}
    assert files == {"words.py", "book.toml", "results.py", "long.toml", "enqueue.py", "schedule.py"}
    with Walk(place, output, environment) as walk:
        for block in blocks(PAGE, "console"):
            for step in steps(block.text, block.line):
                walk.take(step)
    assert {path.name for path in folder.iterdir()} == {"first", "output"}, "the server's folder is gone with it"


def test_every_block_is_walked_or_written_but_the_installation() -> None:
    others = [block for block in blocks(PAGE) if block.language != "console" and not block.name]
    assert [block.language for block in others] == ["sh"]
    assert "pip install" in others[0].text


def test_what_varies_is_compared_as_such() -> None:
    shown = "2026-11-29 22:36:49,180 WARNING x: failed after 0.019 s: /home/ann/first/words.py:45: E: 3 of 4"
    real = "2031-01-01 00:00:00,001 WARNING x: failed after 12 ms: /tmp/other/words.py:45: E: 3 of 4"
    assert constant(shown) == constant(real)
    assert constant(shown) != constant(real.replace("3 of 4", "4 of 4"))
    assert constant(shown) != constant(real.replace(":45", ":46"))
    assert constant("a  active  0/3 verified, 19.8/min") == constant("a active 0/3 verified")


@pytest.mark.parametrize(
    ("wanted", "lines", "whole", "taken"),
    [
        ([], [], True, 0),
        ([], ["a"], True, None),
        ([], ["a"], False, 0),
        (["a"], ["a", "b"], False, 1),
        (["a"], ["a", "b"], True, None),
        (["...", "b"], ["a", "a", "b", "c"], False, 3),
        (["...", "b", "..."], ["a", "b", "c"], True, 2),
        (["a", "...", "c"], ["a", "b"], False, None),
        (["b"], ["a", "b"], False, None),
    ],
)
def test_lines_that_are_left_out(wanted: list[str], lines: list[str], whole: bool, taken: int | None) -> None:
    found = matched(wanted, lines, whole=whole)
    assert (found is None) == (taken is None)
    assert found == taken or (wanted[-1:] == ["..."] and found == len(lines))


def test_a_block_names_its_terminals() -> None:
    found = steps("$ a b\n1\nw1$ c &\nup$ ...\n2\n3\n", 10)
    assert [(step.terminal, step.command, step.wanted, step.line) for step in found] == [
        ("", "a b", ("1",), 11),
        ("w1", "c &", (), 13),
        ("up", "...", ("2", "3"), 14),
    ]


def test_a_walk_fails_where_something_else_comes_than_is_shown(folder: Path) -> None:
    with Walk(folder, folder, FRESH) as walk:
        for step in steps("$ number=1\n$ echo $number of 2\n1 of 2\n", 1):
            walk.take(step)
        (wrong,) = steps("$ echo $number of 2\n1 of 3\n", 7)
        with pytest.raises(pytest.fail.Exception, match=r"line 8: \$ echo (?s:.*)\n1 of 3\n--- there is\n1 of 2"):
            walk.take(wrong)
