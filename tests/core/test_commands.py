"""The command line itself: every command says what it does and where its store is, and the page about them is true."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from treadle.coordinator import MissionSpec
from treadle.coordinator.cli import app
from treadle.coordinator.commands.output import Column, fitted, typed
from treadle.coordinator.core.gates import Code
from treadle.coordinator.core.mission_files import mission_spec
from treadle.shared.errors import Misuse
from typer.core import TyperGroup
from typer.main import get_group
from typer.testing import CliRunner

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
FAMILIES = {name: of for name, of in get_group(app).commands.items() if isinstance(of, TyperGroup)}
COMMANDS = sorted(
    {*get_group(app).commands} - {*FAMILIES} | {f"{name} {one}" for name, of in FAMILIES.items() for one in of.commands}
)
WITHOUT_STORE = {"demo", "up", "policy check"}


def help_of(command: str) -> str:
    ran = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"})
    assert ran.exit_code == 0
    return str(ran.output)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_json_and_says_which_store(command: str) -> None:
    said = help_of(command)
    assert "--json" in said
    assert command in WITHOUT_STORE or ("--url" in said and "--prefix" in said)
    first = said.split("\n\n")[1].strip().split("\n")
    assert len(first) == 1, "what the list of commands shows is one line"
    assert len(first[0]) <= 100


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"demo"}))
def test_every_command_says_which_keys_its_json_has(command: str) -> None:
    assert re.search(r"--json[^:]*: \{\"", " ".join(help_of(command).split()))


def test_the_page_names_every_command_and_no_other() -> None:
    words = re.findall(r"^\| `treadle ([\w-]+)(?: ([\w-]+))?", PAGE, re.MULTILINE)
    named = {f"{first} {second}" if first in FAMILIES else first for first, second in words}
    assert named == set(COMMANDS)


def test_the_page_names_every_code() -> None:
    assert {code.value for code in Code} <= set(re.findall(r"[A-Z_]{4,}", PAGE))


def test_the_page_s_mission_file_is_one() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert tomllib.loads(text)["work"][1]["after"] == ["a"]
    assert isinstance(mission_spec(text, name="page", kind="toml"), MissionSpec)


def test_a_narrow_terminal_gets_what_matters_most() -> None:
    columns = [Column("ID"), Column("A", is_extra=True), Column("TEXT", may_shorten=True, is_extra=True)]
    assert fitted(columns, [10, 5, 50], 100) == {0: 10, 1: 5, 2: 50}
    assert fitted(columns, [10, 5, 50], 40) == {0: 10, 1: 5, 2: 21}
    assert fitted(columns, [10, 5, 50], 20) == {0: 10, 1: 5}
    assert fitted(columns, [10, 5, 50], 11) == {0: 10}
    assert fitted(columns, [10, 5, 50], 5) == {0: 10}, "then it is folded"


def test_a_name_that_cannot_be_typed_is_not_offered_for_typing() -> None:
    assert typed("m-1") == "m-1"
    assert typed("a b") == "'a b'"
    assert typed("a\x1b") == "MISSION"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--for", "0s"], "--for: 0.0 must be 0.1 to "),
        (["--for", "90d", "--to", "w"], "--for: 7776000.0 must be 0.1 to "),
        (["--to", "a", "--to", "a"], "--to: ['a', 'a'] names a Worker twice"),
        ([word for number in range(17) for word in ("--to", f"w{number}")], "--to: 17 Workers, must be 1 to 16"),
    ],
)
def test_what_is_wrong_with_an_offer_is_said_by_the_names_of_its_options(given: list[str], said: str) -> None:
    ran = CliRunner().invoke(app, ["offer", "m/a", *given])
    assert isinstance(ran.exception, Misuse)
    assert str(ran.exception).startswith(said)
