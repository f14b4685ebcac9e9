"""The Checkpoint of a program: the files of one folder, as plain data, and back. Bounded; no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from treadle.shared import codec

from ..context import Fail

READY = ".ready"
"""A program makes it to have its files saved; it is gone once they are durable."""
STOP = ".stop"
"""Made for a program whose slot is asked for: the next save ends its run."""
FILES_MAX = 256
NAME_BYTES_MAX = 255
FOLDER_BYTES_MAX = codec.CHECKPOINT_MAX - 64 * 1024
"""Of names and files together: the rest of the Checkpoint's bound is for how they are packed."""
_OURS = frozenset({READY, STOP})
_NOT_OURS = "checkpoint: it was saved by another kind of handler, not by a command; submit the work anew"


def is_ready(folder: Path) -> bool:
    """Whether the program has marked its files as ready. Fail, for good, where its mark is no file that could be removed."""
    try:
        found = (folder / READY).lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise Fail(f"checkpoint: {READY!a} is a folder; make a plain file of it, as `touch {READY}` does")
    return True


def mark_stop(folder: Path) -> str:
    """Makes the mark that a slot is asked for; what is wrong where the program has something else there, else ''.

    Nothing is written through a link: it would be out of the folder.
    """
    path = folder / STOP
    try:
        if path.is_symlink():
            path.unlink()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
    except OSError as error:
        return f"checkpoint: {STOP!a} cannot be made: {error.strerror}; leave that name to the Worker"
    return ""


def packed(folder: Path) -> dict[str, Any]:
    """The files of a folder as a Checkpoint. Fail, for good, for what is no plain file, too many, or too large."""
    names = sorted({path.name for path in folder.iterdir()} - _OURS)
    if len(names) > FILES_MAX:
        raise Fail(f"checkpoint: {len(names):,} files, at most {FILES_MAX}; pack them into one")
    files: dict[str, bytes] = {}
    size = 0
    for name in names:
        _check_name(name)
        size += len(name.encode())
        files[name] = _read(folder / name, FOLDER_BYTES_MAX - size)
        size += len(files[name])
    return {"files": files}


def unpacked(state: Mapping[str, Any], folder: Path) -> None:
    """Puts the files of a Checkpoint into an empty folder; Fail, for good, where it is no program's."""
    if not state:
        return
    files = state.get("files")
    if not isinstance(files, dict) or len(state) != 1:
        raise Fail(_NOT_OURS)
    for name, data in cast("dict[object, object]", files).items():
        if not isinstance(name, str) or not isinstance(data, bytes):
            raise Fail(_NOT_OURS)
        _check_name(name)
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= NAME_BYTES_MAX or "/" in name or "\0" in name or name in (".", "..", *_OURS):
        raise Fail(f"checkpoint: {name[:80]!a} is no plain name of a file (1 to {NAME_BYTES_MAX} bytes of UTF-8)")


def _read(path: Path, most: int) -> bytes:
    try:
        # Not blocking: of a named pipe nobody may ever write to the other end.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        what = "is a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise Fail(f"checkpoint: {path.name!a} {what}; only plain files are saved") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Fail(f"checkpoint: {path.name!a} is no plain file; only plain files are saved, and no folders")
    with os.fdopen(handle, "rb") as file:
        data = file.read(max(0, most) + 1)
    if len(data) > most:
        size = path.stat(follow_symlinks=False).st_size
        raise Fail(
            f"checkpoint: with {path.name!a} ({size:,} bytes) its files are more than {FOLDER_BYTES_MAX:,} bytes together; "
            "keep large data elsewhere and its address here"
        )
    return data
