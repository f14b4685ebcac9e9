"""On which line a field of a Mission file stands, also in odd but well-formed files."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.locating import line_in_json, line_in_toml

TOML = '''\
# objective = "a comment"
objective = """
work = 1
"quoted" \\""" still text
"""
account = 'it''s'   # no escape here
"odd key" = 1

[[work]]
id = "a"
inputs = { files = ["x", { deep = 1 }], "weird.key" = 2 }
after = [
  "b",   # ]
  'c"',
  "d]",
]
[[work]]
"id" = "b"
inputs.path.name = 1
[work.retry]
retries = 3
[[work.more]]
x = 1
[[work.more]]
y = 2
[[work]]
id = "c"
when = 2026-11-29T21:00:00Z
big = \'\'\'
[[work]]
\'\'\'
last = 1
'''


def line_of(text: str, mark: str) -> int:
    return text.count("\n", 0, text.index(mark)) + 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("objective",), 2),
        (("account",), 6),
        (("odd key",), 7),
        (("work", 0, "id"), 10),
        (("work", 0, "inputs", "files", 1, "deep"), 11),
        (("work", 0, "inputs", "weird.key"), 11),
        (("work", 0, "after"), 12),
        (("work", 0, "after", 0), 13),
        (("work", 0, "after", 2), 15),
        (("work", 1), 17),
        (("work", 1, "id"), 18),
        (("work", 1, "inputs", "path", "name"), 19),
        (("work", 1, "retry"), 20),
        (("work", 1, "retry", "retries"), 21),
        (("work", 1, "more", 1, "y"), 25),
        (("work", 2, "id"), 27),
        (("work", 2, "last"), 32),
        (("work", 2, "capability"), 26),
        (("absent",), 1),
    ],
)
def test_toml(path: tuple[str | int, ...], line: int) -> None:
    tomllib.loads(TOML.replace("'it''s'", "'its'"))
    assert line_in_toml(TOML.replace("'it''s'", "'its'"), path) == line


JSON = """\
{"objective": "a \\"work\\": [", "esc\\u0061ped": 1,
 "work": [
  {"id": "a", "after": [],
   "inputs": {"x": [1, [2,
    3], {"y": null}]}},
  {
   "id": "b}",
   "weight":
     NaN
  }
 ]}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("objective",), 1),
        (("escaped",), 1),
        (("work",), 2),
        (("work", 0), 3),
        (("work", 0, "inputs"), 4),
        (("work", 0, "inputs", "x", 1, 1), 5),
        (("work", 0, "inputs", "x", 2, "y"), 5),
        (("work", 1), 6),
        (("work", 1, "id"), 7),
        (("work", 1, "weight"), 8),
        (("work", 1, "capability"), 6),
        (("work", 7), 2),
    ],
)
def test_json(path: tuple[str | int, ...], line: int) -> None:
    assert line_in_json(JSON, path) == line


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in inner for deeper in _paths(child, (*path, key)))]


@given(_values, st.booleans())
def test_every_place_of_any_json_is_found_on_its_line(value: Any, ascii_only: bool) -> None:
    """Written one value a line, the places come in the order of their lines, each on the one its own text begins."""
    text = json.dumps(value, indent=1, ensure_ascii=ascii_only)
    where = [number for number, line in enumerate(text.split("\n"), 1) if line.strip().rstrip(",") not in ("]", "}")]
    assert [line_in_json(text, path) for path in _paths(value)] == where


@given(st.text(max_size=80))
def test_whatever_it_is_given_it_ends(text: str) -> None:
    assert line_in_toml(text, ("work", 0)) >= 1
