"""Writes ended Missions into files, one each, and reads them back. A file is whole or not there."""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import anyio.to_thread
from treadle.shared import codec
from treadle.shared.answers import MissionView
from treadle.shared.archive import LINE_MAX, End, Header, Part, Scribe, read
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.store import Store, archiving

from .line import repeated

NAME_MAX = 120
SUFFIX = ".jsonl.gz"


@dataclass(frozen=True, slots=True)
class Archived:
    """One Mission's file."""

    mission: str
    path: Path
    digest: str
    events: int
    items: int
    size: int
    """Of the file, in bytes."""


class Draft:
    """A file under a name of its own until it is sound; it goes again unless it is published."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(f".{path.name}.part")
        self._raw: BinaryIO | None = None
        self._is_published = False

    def __enter__(self) -> Self:
        raw = os.open(self._part, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(raw)
            raise Misuse(f"--to: {self._path} is being written by another process; let it finish") from None
        os.ftruncate(raw, 0)
        self._raw = os.fdopen(raw, "wb")
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)
        return self

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def publish(self) -> None:
        """Read back, on disk under its name, and the name in its folder: a power cut leaves the whole file or none."""
        assert self._raw is not None
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        for _ in parts(self._part):
            pass
        self._part.replace(self._path)
        self._is_published = True
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(self, *_: object) -> None:
        assert self._raw is not None
        self._file.close()
        if not self._is_published:
            self._part.unlink(missing_ok=True)
        self._raw.close()


def parts(path: Path) -> Iterator[Part]:
    """The parts of an archive, verified; Corrupt for a file that was altered, cut, or is none; Misuse for one not there."""
    try:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as file:
            yield from read(iter(lambda: file.readline(LINE_MAX + 1), b""), what=str(path))
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise Corrupt(f"{path}: it is cut or altered: {problem}") from None
    except OSError as problem:
        raise Misuse(f"{path}: cannot be read ({problem.strerror}); name an archive's file") from None


def ends_of(path: Path) -> tuple[Header, End]:
    """The first and the last part of a sound archive."""
    found = [part for part in parts(path) if isinstance(part, Header | End)]
    header, end = found
    assert isinstance(header, Header)
    assert isinstance(end, End)
    return header, end


def path_of(folder: Path, view: MissionView) -> Path:
    """A Mission's file: another Mission under the same id, later, has another."""
    name = view.group if len(view.group) <= NAME_MAX else f"{view.group[:NAME_MAX]}~{codec.digest(view.group.encode())}"
    return folder / f"{'%2E' + name[1:] if name.startswith('.') else name}.{view.created_ms}{SUFFIX}"


def _before(path: Path) -> tuple[Header, End] | None:
    """What an earlier run wrote, where that is sound."""
    try:
        return ends_of(path) if path.exists() else None
    except Corrupt:
        return None


async def archive(store: Store, view: MissionView, folder: Path, *, actor: str) -> Archived:
    """Writes an ended Mission's file and records that it is there; what an earlier run wrote is only recorded.

    Refused where the Mission has not ended, or went on meanwhile; Corrupt where its log is not whole.
    """
    path = path_of(folder, view)
    found = _before(path)
    if found is None or (found[0].through != view.last_seq and found[1].digest != view.archive):
        scribe = Scribe()
        with Draft(path) as draft:
            async for line in archiving.lines(store, view.group, scribe):
                draft.write(line)
            await anyio.to_thread.run_sync(draft.publish)
        through, end = scribe.through, End(scribe.events, scribe.items, scribe.digest)
    else:
        through, end = found[0].through, found[1]
    await repeated(
        lambda: archiving.record(store, view.group, seq=through, digest=end.digest, actor=actor), store.adopt
    )
    return Archived(view.mission, path, end.digest, end.events, end.items, path.stat().st_size)
