"""The README is true: its picture of the house, its settings, its examples' imports and the commands it names."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

from house.reading import ROOT, the_house
from treadle.shared.settings import settings_table

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def drawn() -> Iterator[str]:
    """The paths that the picture shows, folders with their slash; a line is a name, two spaces or more, a remark."""
    picture = re.search(r"^## The house\n+```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert picture, "README.md has no picture of the house"
    folders: list[str] = []
    for line in picture[1].splitlines():
        name = re.split(r" {2,}", line.strip())[0]
        depth = (len(line) - len(line.lstrip())) // 2
        del folders[depth:]
        yield "".join([*folders, name])
        if name.endswith("/"):
            folders.append(name)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_picture_shows_every_room_and_no_other() -> None:
    house = the_house()
    rooms = {str(room.path.relative_to(ROOT)) for room in house.rooms if not room.path.name.startswith("__")}
    folders = {f"{room.path.parent.relative_to(ROOT)}/" for room in house.rooms if room.is_face}
    shown = set(drawn()) - {"deploy/", "tests/"}
    assert {"missing": sorted((rooms | folders) - shown), "gone": sorted(shown - rooms - folders)} == {
        "missing": [],
        "gone": [],
    }


def test_the_settings_are_those_of_the_program() -> None:
    table = re.search(r"^<!-- settings: .*? -->\n(.*?)<!-- end of settings -->", README, re.MULTILINE | re.DOTALL)
    assert table
    assert table[1] == settings_table()


def test_what_the_examples_import_is_offered() -> None:
    examples = blocks("python")
    assert examples
    for example in examples:
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle"):
                offered = importlib.import_module(node.module or "").__all__
                assert {alias.name for alias in node.names} <= set(offered)


def test_the_commands_it_names_are_there() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join([*blocks(""), *re.findall(r"`([^`\n]+)`", README)])))
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets
