"""What this process is told by signals, whatever its main thread is in the middle of.

Python calls the handler of a signal between two lines of the main thread: behind `os.system`, or a driver that waits in C,
that may be an hour late. So each signal is also a byte in a pipe, written as it comes, which a thread reads.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, cast

_AT_ONCE = 4096
"""Bytes of the pipe: each is a signal."""


class Signals:
    """The signals that were listened to, each once, in the order in which they came."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._said: SimpleQueue[int] = SimpleQueue()
        """By the pipe below 0, by Python's handler above: in case a handler's `add_signal_handler` took the pipe's place."""
        self._numbers: frozenset[int] = frozenset({0})
        self._seen: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        self._heard: Counter[int] = Counter()

    def listen(self, numbers: Collection[signal.Signals]) -> None:
        """From here on these are heard; in the main thread."""
        self._numbers |= frozenset(map(int, numbers))
        threading.Thread(target=self._follow, name="treadle-signals", daemon=True).start()
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # It may come at any line of the main thread, so it only leaves word (BR-19). And it is no function of Python's:
        # the next signal would come in the middle of that, and a storm of them nest it until the stack is full.
        leave_word = cast("Callable[[int, Any], None]", self._said.put)
        for number in numbers:
            signal.signal(number, leave_word)

    def tell(self, number: int = 0) -> None:
        """As if that signal had come; 0 is none of them."""
        self._said.put(number)

    def next(self, until_s: float | None) -> int | None:
        """The next that comes before a moment of the monotonic clock, however many come all the time; None: none has."""
        while True:
            left_s = None if until_s is None else until_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            try:
                said = self._said.get(timeout=left_s)
            except Empty:
                return None
            number, seen = abs(said), self._seen[said < 0]
            seen[number] += 1
            if number in self._numbers and seen[number] > self._heard[number]:
                self._heard[number] += 1
                return number

    def _follow(self) -> None:
        with suppress(OSError):  # a handler closed all files: what Python's own handler says is still heard
            while numbers := os.read(self._read, _AT_ONCE):
                for number in numbers:
                    self._said.put(-number)
