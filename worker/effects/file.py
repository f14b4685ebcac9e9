"""Effects on a file: its new content takes the place of the old one together with the record that says so.

    gate = FileGate("report.csv")
    async with context.effect("add-row", at=gate) as effect:
        if effect.is_new:
            with effect.at.open("a") as file:
                file.write("17\\n")

`effect.at` is a copy of the file. Beside the file stands a folder `<file>.effects`: `lock`; `part.<key>`, the copy; and
`done/<key>`, a record for each key. The rename of the record commits; the copy takes the file's place after it, by whoever
comes next where this process is killed between. The lock is held while the body runs, and is a lock of one host.

Nothing is committed where somebody else meddled meanwhile: took the lock's file or the copy away, or changed the file itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, cast

from treadle.shared import codec
from treadle.shared.errors import Unavailable

from .token import Token, judge

BUSY_S = 10.0
_AGAIN_S = 0.01
_RECORD_MAX = codec.EFFECT_MAX + 8192


class FileGate:
    """A file that is replaced by effects alone."""

    def __init__(self, path: str | PathLike[str], *, busy_s: float = BUSY_S) -> None:
        """`busy_s`: how long it waits for another one's body before it gives up (Unavailable)."""
        self.path = Path(os.path.realpath(path))  # a link would be replaced, and be another place than its file
        self._folder = self.path.with_name(self.path.name + ".effects")
        self._busy_s = busy_s

    def enter(self, key: str, token: Token) -> FilePassage:
        """The lock, held; the token is noted, and a copy of the file made."""
        done = self._folder / "done"
        done.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(key.encode()).hexdigest()
        passage = FilePassage(self.path, self._folder, name, key, token, self._locked(key))
        try:
            passage.begin()
        except BaseException:
            passage.close()
            raise
        return passage

    def _locked(self, key: str) -> int:
        place = self._folder / "lock"
        for _ in range(1 + round(self._busy_s / _AGAIN_S)):
            lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # Not a lock of the process, as `lockf` gives: two slots of one Worker would both have it.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, place):  # else somebody took the file away that was waited for
                    return lock
                os.close(lock)
            except BlockingIOError:
                os.close(lock)
                time.sleep(_AGAIN_S)
            except OSError as error:  # a file system without them, as some NFS
                os.close(lock)
                raise Unavailable(f"effect {key}: {self.path}: cannot be locked ({error.strerror})") from error
            except BaseException:
                os.close(lock)
                raise
        raise Unavailable(f"effect {key}: {self.path} is held by another one's body for more than {self._busy_s:g} s")


class FilePassage:
    """One change of the file; `place` is the copy that is to take its place."""

    def __init__(self, path: Path, folder: Path, name: str, key: str, token: Token, lock: int) -> None:
        self.place = folder / f"part.{name}"
        self.stored: bytes | None = None
        self._path = path
        self._record = folder / "done" / name
        self._key = key
        self._token = token
        self._lock: int | None = lock
        self._before: _Seen = None
        """The file as it was copied; None where there was none."""
        self._is_open = False
        """Whether the copy is this run's own, and not committed."""

    def begin(self) -> None:
        """Puts in place what was committed before and is not there yet, then looks and notes."""
        for part in self.place.parent.glob("part.*"):
            self._settle(part)
        found = _read(self._record)
        if found is not None and found[1] is not None:
            self.stored = found[1]
            return
        judge(self._token, found and found[0], key=self._key)
        self._note(None)
        self._is_open = True
        self._before = _seen(self._path)
        if self._before is not None:
            shutil.copy2(self._path, self.place)

    def commit(self, result: bytes) -> None:
        """Keeps the result and the copy, which takes the file's place; Unavailable, nothing done, where somebody meddled."""
        self._check()
        if self.place.exists():
            _sync(self.place)
            _sync(self.place.parent)
        self._is_open = False
        self._note(result)
        self._settle(self.place)

    def _check(self) -> None:
        """That the lock held is still the one that others wait for, and what was copied still what stands there."""
        lock = self.place.with_name("lock")
        if self._lock is None or not _is_at(self._lock, lock):
            what = f"{lock} was taken away, others may be at it"
        elif _read(self._record) != (self._token, None):
            what = f"{self._record} was taken away or written by somebody else"
        elif _seen(self._path) != self._before:
            what = f"{self._path} was changed by somebody who does not come through this gate"
        elif self._before is not None and not self.place.exists():
            what = f"{self.place}, the copy of the file, was taken away"
        else:
            return
        raise Unavailable(f"effect {self._key}: {what}; nothing was done, it may be tried again")

    def close(self) -> None:
        """Lets go of the lock; a copy that was not committed goes."""
        if self._lock is not None:
            lock, self._lock = self._lock, None
            try:
                if self._is_open:  # whatever its record says: where the lock was lost it may be of another run
                    self.place.unlink(missing_ok=True)
                elif self.stored is None:
                    self._settle(self.place)
            finally:
                os.close(lock)

    def _settle(self, part: Path) -> None:
        record = _read(part.parent / "done" / part.name.removeprefix("part."))
        with suppress(FileNotFoundError):
            if record is not None and record[1] is not None:
                part.replace(self._path)
                _sync(self._path.parent)
            else:
                part.unlink()

    def _note(self, result: bytes | None) -> None:
        said = {"key": self._key, "token": self._token.wire(), "result": result}
        fresh = self._record.with_suffix(".new")
        fresh.write_bytes(codec.pack(said, field="record of an effect", limit=_RECORD_MAX))
        _sync(fresh)
        fresh.replace(self._record)
        _sync(self._record.parent)


def _read(record: Path) -> tuple[Token, bytes | None] | None:
    try:
        raw = record.read_bytes()
    except FileNotFoundError:
        return None
    said = codec.unpack(raw, what=str(record), limit=_RECORD_MAX) if raw else None
    fields = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    return Token.noted(fields.get("token"), place=str(record)), fields.get("result")


_Seen = tuple[int, int, int, int] | None


def _seen(path: Path) -> _Seen:
    """What tells whether a file is another one, or has other content; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether what is open is what stands there now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
