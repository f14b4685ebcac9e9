"""What the process of a slot prints, line by line in the Worker's log, bounded, and read at once whatever else happens.

One thread reads for all slots of a Worker: a program whose pipe nobody empties stops, and the event loop may be busy.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from treadle.shared.redaction import known

from .allowance import Allowance
from .failures import NAME_MAX, printable

READ_BYTES = 1 << 16
LINE_MAX = 4_000
SETTLE_READS_MAX = 64
"""How many pieces are read at most to empty a pipe at the end of a run; a pipe holds one, or sixteen."""
_log = logging.getLogger("treadle.handler")


class Printed:
    """What one process prints: of the run it is at, if any."""

    def __init__(self, out: int, err: int) -> None:
        self._lock = threading.Lock()
        self._rest = {out: b"", err: b""}
        """Of each pipe: the line that has no end yet, bounded."""
        self._skipped = set[int]()
        """Pipes at a line whose beginning was dropped: its rest is dropped too, a secret may have been cut in two."""
        self._open = {out, err}
        self._run = ""
        self._allowance = Allowance()

    @property
    def pipes(self) -> tuple[int, ...]:
        return tuple(self._rest)

    def begin(self, run: str) -> None:
        """From here on it is this run's."""
        with self._lock:
            self._run, self._allowance = run, Allowance()

    def log(self, level: int, name: str, text: str) -> None:
        """What the process has logged, within the same bounds. No logger is made by its names, which may be without end."""
        with self._lock:
            run = f"[{self._run}] "
            if self._allowance.takes(len(text), time.monotonic()) and _log.isEnabledFor(level):
                shown = (text if text.startswith(run) else run + text,)
                _log.handle(_log.makeRecord(printable(name, NAME_MAX), level, "", 0, "%s", shown, None))

    def finish(self) -> None:
        """Takes in all that was printed so far, says what was left out, and belongs to no run from here on."""
        with self._lock:
            for pipe, rest in self._rest.items():
                for _ in range(SETTLE_READS_MAX):
                    if pipe not in self._open or not self._take_in(pipe):
                        break
                if rest or self._rest[pipe] or pipe in self._skipped:
                    self._lines(pipe, b"\n", is_end=True)
            if self._allowance.dropped_bytes:
                dropped = self._allowance.dropped_bytes
                _log.warning("[%s] printed too much: %s bytes of it are not shown", self._run, f"{dropped:,}")
            self._run, self._allowance = "", Allowance()

    def read(self, pipe: int) -> bool:
        """Takes in what is there; False where the pipe has ended."""
        with self._lock:
            return self._take_in(pipe) is not None

    def close(self, pipe: int) -> None:
        """Closes this end, once: a number that was closed may be another file's by now."""
        with self._lock:
            if pipe in self._open:
                self._open.discard(pipe)
                os.close(pipe)

    def _take_in(self, pipe: int) -> int | None:
        """How many bytes were there; None where there will be no more."""
        try:
            piece = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            return None
        self._lines(pipe, piece)
        return len(piece) or None

    def _lines(self, pipe: int, piece: bytes, *, is_end: bool = False) -> None:
        now_s = time.monotonic()
        if pipe in self._skipped:
            skipped, end, piece = piece.partition(b"\n")
            self._allowance.dropped_bytes += len(skipped)
            if not end:
                return
            self._skipped.discard(pipe)
        text = self._rest[pipe] + piece
        if self._allowance.is_spent(now_s):
            whole, _, rest = text.rpartition(b"\n")
            if len(rest) > LINE_MAX:
                whole, rest = text, b""
                self._skipped.add(pipe)
            self._allowance.dropped_bytes += len(whole)
            self._rest[pipe] = rest
            return
        *whole_lines, rest = text.split(b"\n")
        lines = [piece for line in whole_lines for piece in _cut(line, LINE_MAX)]
        # What is cut is looked at as far as a secret may reach beyond the cut.
        *pieces, rest = _cut(rest, LINE_MAX + (0 if is_end else known.reach))
        lines += pieces
        if is_end and rest:
            lines.append(rest)
            rest = b""
        self._rest[pipe] = rest
        for line in lines:
            if self._allowance.takes(len(line) + 1, now_s):
                _log.info("[%s] | %s", self._run or "a slot between runs", _text(line))


def _cut(line: bytes, most: int) -> list[bytes]:
    """A line in pieces of LINE_MAX bytes at most, none of which ends inside a secret; the last one has `most` at most."""
    pieces = list[bytes]()
    while len(line) > most:
        at = known.cut(line, LINE_MAX)
        pieces.append(line[:at])
        line = line[at:]
    return [*pieces, line]


def _text(line: bytes) -> str:
    return printable(line.decode("utf-8", "backslashreplace").rstrip("\r"), LINE_MAX + known.reach)


class Capture:
    """The thread that reads, from the first process on."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._todo: list[Callable[[], None] | None] = []
        self._thread = threading.Thread(target=self._read, name="treadle-capture", daemon=True)
        self._thread.start()

    def watch(self, out: int, err: int) -> Printed:
        """Reads these two pipes until they end, and closes them."""
        printed = Printed(out, err)
        for pipe in printed.pipes:
            os.set_blocking(pipe, False)

        def register() -> None:
            for pipe in printed.pipes:
                self._selector.register(pipe, selectors.EVENT_READ, printed)

        self._do(register)
        return printed

    def forget(self, printed: Printed) -> None:
        """Closes its pipes, whoever may still hold the other ends; returns when that is done."""
        done = threading.Event()

        def close() -> None:
            for pipe in printed.pipes:
                self._close(printed, pipe)
            done.set()

        self._do(close)
        done.wait()

    def close(self) -> None:
        """Ends the thread, and closes what it still reads."""
        self._do(None)
        self._thread.join()

    def _do(self, action: Callable[[], None] | None) -> None:
        with self._lock:
            self._todo.append(action)
        os.write(self._wake_write, b".")

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, Printed):
                    if not key.data.read(key.fd):
                        self._close(key.data, key.fd)
                    continue
                with suppress(BlockingIOError):
                    os.read(self._wake_read, READ_BYTES)
            with self._lock:
                todo, self._todo = self._todo, []
            for action in todo:
                if action is None:
                    return self._end()
                action()

    def _close(self, printed: Printed, pipe: int) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(pipe)
        printed.close(pipe)

    def _end(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Printed):
                key.data.close(key.fd)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
