"""Which files the demo works on, and how they are dealt to shards: listing reads the disk once, the rest is pure."""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "__pycache__"})
SHARDS_MAX = 60
"""Short shards, so that a Mission which comes later soon gets its share; a Mission has at most 256 items."""
FILE_BYTES_MAX = 1 << 20
"""A larger file would hold the interpreter for too long in one piece; it is left out, and that is said."""
REPORT_BYTES_MAX = 900_000
"""A result is at most 1 MiB; the report has one row per file."""
ROW_BYTES = 200
"""At most so many bytes of a file's row besides its path."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was listed; `path` is relative to the listed folder, with forward slashes."""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files below `root` in path order, and how many were left out for which reason."""

    root: Path
    files: tuple[SourceFile, ...]
    too_large: int = 0
    unnameable: int = 0
    """Names that are not valid Unicode cannot be written into a report."""
    beyond_report: int = 0

    @property
    def left_out(self) -> str:
        """What was left out, in words; '' where nothing was."""
        reasons = (
            (self.too_large, f"larger than {FILE_BYTES_MAX >> 20} MiB"),
            (self.unnameable, "whose names are not valid Unicode"),
            (self.beyond_report, "for which the report has no room"),
        )
        return ", ".join(f"{count} {why}" for count, why in reasons if count)


def default_root() -> Path:
    """The standard library folder of the running Python."""
    return Path(sysconfig.get_path("stdlib"))


def list_files(root: Path) -> Listing:
    """All regular `*.py` files below `root`, without `SKIPPED_FOLDERS` and without following links to folders."""
    root = root.resolve()
    found: list[SourceFile] = []
    too_large = unnameable = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in names:
            if not name.endswith(".py"):
                continue
            file = Path(folder, name)
            try:
                status = file.stat()
            except OSError:  # a broken link, or gone since the folder was read
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            path = file.relative_to(root).as_posix()
            if not _is_unicode(path):
                unnameable += 1
            elif status.st_size > FILE_BYTES_MAX:
                too_large += 1
            else:
                found.append(SourceFile(path, status.st_size, status.st_mtime_ns))
    found.sort(key=lambda one: one.path)
    kept = _within_report(found)
    return Listing(root, tuple(found[:kept]), too_large, unnameable, len(found) - kept)


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _within_report(files: Sequence[SourceFile]) -> int:
    """How many of `files`, from the first, have room in one report."""
    room = REPORT_BYTES_MAX
    for position, file in enumerate(files):
        room -= len(file.path.encode()) + ROW_BYTES
        if room < 0:
            return position
    return len(files)


def changed_since(listing: Listing) -> list[str]:
    """The listed files that are no longer as they were listed; a report about them proves nothing."""
    changed: list[str] = []
    for file in listing.files:
        try:
            status = (listing.root / file.path).stat()
        except OSError:
            changed.append(file.path)
            continue
        if (status.st_size, status.st_mtime_ns) != (file.size, file.modified_ns):
            changed.append(file.path)
    return changed


def deal(files: Sequence[SourceFile], shards: int = SHARDS_MAX) -> tuple[tuple[str, ...], ...]:
    """`files` in at most `shards` shards of about equal bytes, none empty, each in path order; each file in one."""
    if not files or shards < 1:
        return ()
    hands: list[list[str]] = [[] for _ in range(min(shards, len(files)))]
    loads = [0] * len(hands)
    for file in sorted(files, key=lambda one: (-one.size, one.path)):
        lightest = min(range(len(hands)), key=lambda number: (loads[number], len(hands[number]), number))
        hands[lightest].append(file.path)
        loads[lightest] += file.size + 1  # an empty file is work too
    return tuple(tuple(sorted(hand)) for hand in hands)
