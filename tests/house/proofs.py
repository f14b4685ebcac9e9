"""Lists in docs/rules.md the tests that carry the id of a rule in their name: `test_br_05_...`, `test_s1_s4_...`.

After tests have come: `cd tests && ../.venv/bin/python -m house.proofs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from house.reading import ROOT, the_house

PAGE = ROOT / "docs" / "rules.md"
_BLOCK = re.compile(r"(<!-- by name: .*? -->\n).*?(<!-- end of by name -->)", re.DOTALL)
_ID = re.compile(r"_(br|[rslc])_?(\d{1,2})(?=_)")
_KINDS = ("R", "C", "S", "L", "BR-")


def ids_of(test: str) -> list[str]:
    """The ids that a test's name begins with."""
    found, rest = [], test.removeprefix("test")
    while match := _ID.match(rest):
        kind, number = match[1].upper(), int(match[2])
        found.append(f"BR-{number:02}" if kind == "BR" else f"{kind}{number}")
        rest = rest[match.end() :]
    return found


def by_name() -> dict[str, list[str]]:
    """Each id with the tests that carry it, as `folder/file.py::test`."""
    found: dict[str, list[str]] = {}
    for path, tree in the_house().test_files:
        for node in tree.body:
            name = getattr(node, "name", "")
            for id_ in ids_of(name):
                found.setdefault(id_, []).append(f"{path.relative_to(ROOT / 'tests')}::{name}")
    return found


def _place(id_: str) -> tuple[int, int]:
    kind = re.sub(r"\d+$", "", id_)
    return _KINDS.index(kind), int(id_.removeprefix(kind))


def _rows() -> Iterator[str]:
    yield "| id | tests |"
    yield "| --- | --- |"
    found = by_name()
    for id_ in sorted(found, key=_place):
        yield f"| {id_} | {', '.join(f'`{test}`' for test in sorted(found[id_]))} |"


def page(text: str) -> str:
    """The text of the page with the list drawn anew."""
    return _BLOCK.sub(lambda found: found[1] + "\n".join(_rows()) + "\n" + found[2], text)


def write(path: Path = PAGE) -> None:
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
