"""Where this process prints. That nobody reads it any more is no failure of a run, and no reason to end.

A log's pipe that was closed, a full disk, a terminal that is gone: what cannot be written is dropped.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import Any, TextIO


class _Outlet(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def open_outlets() -> None:
    """Has stdout and stderr drop what cannot be written. Call it first thing in main.

    A descriptor that was closed before is opened on nothing: else a connection would have its number, and be printed to.
    A stream that somebody has put in their place is left as it is.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _dropping(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _dropping(2, sys.stderr)


def _dropping(number: int, before: TextIO | None) -> TextIO:
    is_eager = number == 2 or os.isatty(number) or getattr(before, "write_through", False)  # `python -u`
    return io.TextIOWrapper(
        io.BufferedWriter(_Outlet(number, "wb", closefd=False)),
        encoding=getattr(before, "encoding", "utf-8"),
        errors=getattr(before, "errors", "backslashreplace"),
        line_buffering=is_eager,
    )


def say(text: str) -> None:
    """Writes to stderr from a thread that must not wait: dropped where nobody reads."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    if poll.poll(0):
        with suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))
