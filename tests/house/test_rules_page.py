"""docs/rules.md names a proof for every rule, and every test that it names is there."""

from __future__ import annotations

import re

import pytest
from house.proofs import ids_of
from house.reading import ROOT, the_house

PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
SCENARIOS = 49
"""BR-01 to BR-97: the odd numbers."""
IDS = [
    *(f"R{number}" for number in range(1, 73)),
    *(f"S{number}" for number in range(1, 28)),
    *(f"L{number}" for number in range(1, 13)),
    *(f"BR-{2 * number + 1:02}" for number in range(SCENARIOS)),
]
ROWS = [
    (cells[0], cells[-1])
    for line in PAGE.splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3 and re.match(r"(R|S|L|BR-)\d", cells[0])
]
_BY_NAME = re.compile(r"`(\w+/test_\w+\.py)::(test_\w+)`")
_PROOF = re.compile(r"`(\w+/test_\w+\.py)(?:::(\w+))?`")


def known_tests() -> dict[str, set[str]]:
    """The tests of each file below tests/."""
    found: dict[str, set[str]] = {}
    for path, tree in the_house().test_files:
        names = {getattr(node, "name", "") for node in tree.body}
        found[str(path.relative_to(ROOT / "tests"))] = {name for name in names if name.startswith("test_")}
    return found


def test_every_test_that_is_named_by_its_id_is_there() -> None:
    known = known_tests()
    listed = _BY_NAME.findall(PAGE)
    assert listed
    assert [(file, name) for file, name in listed if name not in known.get(file, ())] == []


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("test_br_05_a_zombie", ["BR-05"]),
        ("test_br79_unknown", ["BR-79"]),
        ("test_s1_s4_whatever", ["S1", "S4"]),
        ("test_r06_a_member", ["R6"]),
        ("test_l12_free", ["L12"]),
        ("test_c1_a_thousand", ["C1"]),
        ("test_replay", []),
        ("test_64_items", []),
        ("test_one_of_s1_is_enough", []),
    ],
)
def test_the_ids_of_a_test_stand_at_the_beginning_of_its_name(name: str, ids: list[str]) -> None:
    assert ids_of(name) == ids


def test_every_rule_has_one_row() -> None:
    assert sorted(name for ids, _ in ROWS for name in ids.split(", ")) == sorted(IDS)


@pytest.mark.parametrize(("ids", "proof"), ROWS)
def test_a_rule_is_proved_by_tests_that_are_there_or_is_said_not_to_be(ids: str, proof: str) -> None:
    known = known_tests()
    named = _PROOF.findall(proof)
    assert named or re.search(r"\bnot (yet|claimed)\b", proof), f"{ids}: neither a test nor 'not yet' or 'not claimed'"
    assert proof.count("`") == 2 * len(named), f"{ids}: what is quoted is a test"
    for file, name in named:
        assert file in known, f"{ids}: {file}"
        assert not name or name in known[file], f"{ids}: {file}::{name}"
