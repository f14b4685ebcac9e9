"""What this process is told by signals, whatever its main thread is in the middle of.

Python calls the handler of a signal between two lines of the main thread: behind `os.system`, or a driver that waits in C,
that may be an hour late. So each signal is also a byte in a pipe, written as it comes, which another thread reads.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

_LATE = 0x80
"""In a byte by which Python's own handler leaves word: in case a handler's `add_signal_handler` took the pipe's place."""


class Signals:
    """The signals that were listened to, each once, in the order in which they came."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._numbers: frozenset[int] = frozenset({0})
        self._seen: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        self._heard: Counter[int] = Counter()

    def listen(self, numbers: Collection[signal.Signals]) -> None:
        """From here on these are heard; in the main thread."""
        self._numbers |= frozenset(map(int, numbers))
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, self._on_signal)

    def tell(self, number: int = 0) -> None:
        """As if that signal had come; 0 is none of them."""
        with suppress(OSError):  # full: whoever reads has enough to do
            os.write(self._write, bytes([number | _LATE]))

    def next(self, until_s: float | None) -> int | None:
        """The next that comes before a moment of the monotonic clock; None: none has."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while poll.poll(None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000):
            (byte,) = os.read(self._read, 1)
            number, seen = byte & ~_LATE, self._seen[byte >= _LATE]
            seen[number] += 1
            if number in self._numbers and seen[number] > self._heard[number]:
                self._heard[number] += 1
                return number
        return None

    def _on_signal(self, number: int, _frame: object) -> None:
        """May come at any line of the main thread, so it only leaves word (BR-19)."""
        self.tell(number)
