"""The function library with some of its text changed: smaller bounds, or a bug on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from treadle.shared.store import library


@dataclass(frozen=True, slots=True)
class Edit:
    """One place of one Lua file."""

    file: str
    old: str
    new: str


TIGHT = (
    Edit("_base.lua", "T.RELEASE_MAX = 64", "T.RELEASE_MAX = 2"),
    Edit("_base.lua", "T.SLICE = 4000", "T.SLICE = 4"),
    Edit("_write.lua", "T.TOMBS_MAX = 1024", "T.TOMBS_MAX = 2"),
)
"""Bounds so small that ten items need pumps, slices and a pruned directory."""


@contextmanager
def edited(edits: Sequence[Edit]) -> Iterator[None]:
    """Everything that is loaded inside is the changed library; an edit whose place is not there any more is an error."""
    files = library.lua_files()
    for edit in edits:
        if files[edit.file].count(edit.old) != 1:
            raise LookupError(f"{edit.file} has {edit.old!r} {files[edit.file].count(edit.old)} times")
        files[edit.file] = files[edit.file].replace(edit.old, edit.new)
    library.build.cache_clear()
    try:
        with mock.patch.object(library, "lua_files", return_value=files):
            yield
    finally:
        library.build.cache_clear()
