"""The line of a slot's process to its Worker, and the Service that a handler reaches through it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle.shared import codec
from treadle.shared.errors import Expired, Misuse, Refused, Stale, Unavailable
from treadle.shared.progress import Said

from ..context import Fail
from .allowance import Allowance
from .budget import Budget
from .failures import printable
from .frames import FRAME_MAX, Frame, Kind, Reader, write

READ_BYTES = 1 << 16
MESSAGE_MAX = 8_000
TELL_EACH_S = 0.1
_RAISED: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (Misuse, Refused, Stale, Expired, Unavailable, Fail)
}
"""What a Service raises for its handler, by name; anything else comes as a RuntimeError."""


class Line:
    """This process's end: frames in, one after another, and frames out, from any thread."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reader = Reader()
        self._frames: deque[Frame] = deque()

    def fileno(self) -> int:
        return self._link.fileno()

    def say(self, kind: Kind, *fields: Any) -> None:
        """Sends a frame; not from a process that was forked off, whose bytes would be mixed into this one's."""
        raw = write(kind, *fields)
        if os.getpid() == self._pid:
            with self._lock:
                self._link.sendall(raw)

    def hear(self) -> Frame:
        """The next frame, waited for. Where the Worker has hung up, or is gone, this process ends."""
        while not self._frames:
            self._take_in(0)
        return self._frames.popleft()

    def heard(self) -> list[Frame]:
        """The frames that are there by now."""
        self._take_in(socket.MSG_DONTWAIT)
        found = list(self._frames)
        self._frames.clear()
        return found

    def _take_in(self, flags: int) -> None:
        try:
            piece = self._link.recv(READ_BYTES, flags)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            os._exit(0)
        self._frames.extend(self._reader.feed(piece))


class PipedService:
    """The Service of a run whose Worker is at the other end of a line."""

    def __init__(self, line: Line, budget: Budget, stopped: Callable[[], None]) -> None:
        self._line = line
        self._budget = budget
        self._stopped = stopped
        self._folder = str(Path.cwd())
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.has_returned = False
        self.is_lost = False
        self.why = ""
        self._is_stopped = False
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._said: Said | None = None
        """How far it is, and not said yet."""
        self._is_telling = False

    @property
    def is_over(self) -> bool:
        return self.has_returned or self._is_stopped

    def folder(self) -> str:
        """That of the process, which the run was begun in."""
        return self._folder

    async def save(self, state: bytes) -> None:
        await self._ask("save", state)

    def spend(self, dimension: str, amount: int) -> None:
        """Charged here, and told: the Worker charges it before it hears what is asked next."""
        self._budget.spend(dimension, amount)
        self._line.say(Kind.SAY, "spend", codec.pack([dimension, amount], field="spend", limit=FRAME_MAX))

    def left(self, dimension: str) -> int | None:
        return self._budget.left(dimension)

    def progress(self, said: Said) -> None:
        """Says it soon: at once, or with what is said in the next tenth of a second; from any thread."""
        with self._lock:
            self._said = self._said.then(said) if self._said else said
            if self._is_telling:
                return
            self._is_telling = True
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self.tell()
        self._loop.call_later(TELL_EACH_S, self._tell_again)

    def _tell_again(self) -> None:
        with self._lock:
            self._is_telling = self._said is not None
            goes_on = self._is_telling
        if goes_on:
            self._tell()

    def tell(self) -> None:
        """Says how far the run is, where that is not said yet."""
        with self._lock:
            said, self._said = self._said, None
        if said is not None:
            fields = [said.done, said.total, said.phase, list(said.milestones), said.note]
            self._line.say(Kind.SAY, "progress", codec.pack(fields, field="progress", limit=FRAME_MAX))

    async def begin_effect(self, effect: str) -> tuple[str, bytes]:
        code, result = await self._ask("begin_effect", effect)
        return code, result

    async def commit_effect(self, effect: str, result: bytes) -> tuple[str, bytes]:
        code, kept = await self._ask("commit_effect", effect, result)
        return code, kept

    def hear(self) -> None:
        """Takes in what the Worker has said; called on the event loop."""
        for frame in self._line.heard():
            match frame.kind:
                case Kind.TELL:
                    (self.why,) = frame.fields
                case Kind.STOP:
                    self.why, self.is_lost = frame.fields
                    self._is_stopped = True
                    self._stopped()
                case Kind.ANSWER:
                    self._answer(*frame.fields)
                case _:
                    raise Misuse(f"frame {frame.kind}: not one that is said during a run")

    async def _ask(self, method: str, *arguments: Any) -> Any:
        raw = codec.pack(list(arguments), field=method, limit=FRAME_MAX)
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._line.say(Kind.ASK, number, method, raw)
            return await answer
        finally:
            del self._asked[number]

    def _answer(self, number: int, raw: bytes, raised: str) -> None:
        answer = self._asked.get(number)
        if answer is None or answer.done():  # its asker was cancelled
            return
        value = codec.unpack(raw, what="an answer", limit=FRAME_MAX)
        if raised:
            answer.set_exception(_RAISED.get(raised, RuntimeError)(str(value)))
        else:
            answer.set_result(value)


class LineLog(logging.Handler):
    """Sends what is logged in this process to its Worker's log, bounded as what is printed is."""

    def __init__(self, line: Line) -> None:
        super().__init__()
        self._line = line
        self.allowance = Allowance()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = printable(self.format(record), MESSAGE_MAX)
            if self.allowance.takes(len(text), time.monotonic()):
                said = [record.levelno, record.name, text]
                self._line.say(Kind.SAY, "log", codec.pack(said, field="log", limit=FRAME_MAX))
        except Exception:
            self.handleError(record)
