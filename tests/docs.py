"""The examples of the documentation as files, so that a test runs what a reader would copy.

A block of a page that begins with a comment that is a file's name (`# thumbs.py`) is that file:

    written(page("testing.md"), tmp_path)      # every named block of docs/testing.md, below tmp_path
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
_NAME = re.compile(r"\A#+ ([\w./-]+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    language: str
    """'python', 'sh', 'toml', ...; '' where the page names none."""
    text: str
    line: int
    """Where it begins in its page, from 1."""

    @property
    def name(self) -> str:
        """The file it is, by its first line; '' where it is none."""
        found = _NAME.match(self.text)
        return found[1] if found else ""


def page(name: str) -> Path:
    """A page of docs/."""
    return DOCS / name


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, in order; of one language where it is given."""
    text = page.read_text(encoding="utf-8")
    found = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in _BLOCK.finditer(text)]
    return [block for block in found if language in (None, block.language)]


def blocks_under(page: Path, heading: str, language: str | None = None) -> list[Block]:
    """The fenced blocks of one section of a page, so that a block that joins another section changes nothing.

    Raises ValueError where no such heading stands on the page.
    """
    text = page.read_text(encoding="utf-8")
    headings = [(match[1], text.count("\n", 0, match.start()) + 1) for match in _HEADING.finditer(text)]
    begin = next((line for words, line in headings if words == heading), None)
    if begin is None:
        raise ValueError(f"{page.name} has no heading {heading!r}, only {[words for words, _ in headings]}")
    end = next((line for _, line in headings if line > begin), text.count("\n") + 2)
    return [block for block in blocks(page, language) if begin < block.line < end]


def written(page: Path, folder: Path) -> list[Path]:
    """Writes every named block to its file below `folder`; blocks of one name follow one another in it."""
    paths: dict[str, Path] = {}
    for block in blocks(page):
        if not block.name:
            continue
        path = folder / block.name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{page.name}:{block.line}: {block.name} is not below its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if block.name not in paths else "a", encoding="utf-8") as file:
            file.write(block.text)
        paths[block.name] = path
    return list(paths.values())
