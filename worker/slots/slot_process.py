"""One process of a slot, as its Worker holds it: started, spoken to, and gone only when a look finds none of it (S16).

A thread starts it and waits for its end, so the event loop is never kept by either. Its end is noticed before it is
reaped: until all that it started is gone, its number, and so its group and session, stays its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import anyio
from treadle.shared.containment import MARK, end_enclosed, is_alone, remains
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.processes import KILL_PATIENCE_S, Child, Life, spawn

from .capture import Capture, Printed
from .failures import exit_text
from .frames import Frame, Kind, Reader, write
from .threads import in_thread

START_S = 60.0
"""How long importing the handlers may take."""
HANG_UP_S = 1.0
"""How long a process that has closed its line may take to end."""
UNREAD_MAX = 8
UNSENT_BYTES_MAX = 8 << 20
"""Of answers that it does not read: more than those to as many questions as it may ask at once."""
LAST_READS_MAX = 64
"""Pieces that are read of an ended process's line: as many as a line holds, and not all that a fork goes on to say."""
PROGRAM = "from treadle.worker.slots.child import main; main()"
_log = logging.getLogger("treadle.worker")


class Ended(Exception):
    """The process has ended, or is of no more use, before it said what was waited for."""


class SlotProcess(asyncio.Protocol):
    """A process that runs handlers, one after another. All of it but `kill` is used on the event loop."""

    def __init__(self, mark: str, capture: Capture) -> None:
        self.mark = mark
        self.hear: Callable[[Frame], None] | None = None
        """What its questions and sayings are given to, during a run."""
        self.printed: Printed
        self._capture = capture
        self._child: Child
        self._link: socket.socket
        self._transport: asyncio.Transport
        self._reader = Reader()
        self._said: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._broken = ""
        self._ending: asyncio.Task[str] | None = None

    @classmethod
    async def start(
        cls, mark: str, capture: Capture, *, environment: Mapping[str, str], path: Sequence[str], modules: Sequence[str]
    ) -> SlotProcess:
        """A process that has imported the modules. Ended, with all of it gone, where it cannot."""
        self = cls(mark, capture)
        with anyio.CancelScope(shield=True):  # half a start would be nobody's to end
            await self._spawn({**environment, MARK: mark})
        try:
            self.say(Kind.LOAD, list(path), list(modules))
            with anyio.fail_after(START_S):
                (wrong,) = (await self.next(Kind.READY)).fields
        except BaseException as error:
            how = await self.end()
            if isinstance(error, Ended | TimeoutError):
                said = str(error) or f"its handlers were not imported within {START_S:g} s"
                raise Ended(said if self._broken or isinstance(error, TimeoutError) else how) from None
            raise
        if wrong:
            await self.end()
            raise Ended(wrong)
        return self

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it may be spoken to."""
        return self._ending is None and not self._broken and self._said.empty()

    def say(self, kind: Kind, *fields: Any) -> None:
        """Sends a frame; never waits. To one that has ended it goes nowhere."""
        self.send(write(kind, *fields))

    def send(self, raw: bytes) -> None:
        """Sends frames, all at once."""
        self._transport.write(raw)

    async def next(self, kind: Kind) -> Frame:
        """The next frame besides questions and sayings. Ended where that is another, or never comes."""
        frame = await self._said.get()
        if frame is not None and frame.kind is kind:
            return frame
        if frame is not None:
            self._break(f"it said {frame.kind} where {kind} was waited for")
        self._said.put_nowait(None)  # for whoever asks again
        raise Ended(self._broken)

    async def is_settled(self) -> bool:
        """Takes in what it has printed. Whether nothing of it is there but itself: what a run started is proved to be gone."""

        def settle() -> bool:
            self.printed.finish()
            return is_alone(self._child.identity, self.mark)

        return await in_thread(settle)

    async def end(self) -> str:
        """Ends it with all it started; returns when a look has found none of it, with how it ended. Twice is fine."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end(), name=f"end of process {self.pid}")
        ending = self._ending
        with anyio.CancelScope(shield=True):
            await asyncio.wait([ending])
        return ending.result()

    def kill(self) -> bool:
        """Ends it with all it started, from any thread; whether a look has found none of it."""
        return end_enclosed(self._child.identity, self.mark) is Life.GONE

    async def _end(self) -> str:
        while (left := await in_thread(end_enclosed, self._child.identity, self.mark)) is not Life.GONE:
            what = f"{left}: {await in_thread(remains, self._child.identity, self.mark) or 'gone by now'}"
            _log.error("process %d of a slot cannot be ended (%s); its slot is not used before it is", self.pid, what)
            await asyncio.sleep(1)
        status = await in_thread(self._child.wait, KILL_PATIENCE_S)
        await in_thread(self.printed.finish)
        await in_thread(self._capture.forget, self.printed)
        self._transport.abort()
        self._said.put_nowait(None)
        return self._broken or exit_text(status)

    async def _spawn(self, environment: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Child] = loop.create_future()
        mine, its = ExitStack(), ExitStack()

        def tell(call: Callable[..., object], *arguments: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(call, *arguments)

        def hold(link: int, out: int, err: int) -> None:
            try:
                with its:
                    argv = [sys.executable, "-P", "-c", PROGRAM, str(link)]
                    child = spawn(argv, env=environment, stdout=out, stderr=err, pass_fds=(link,))
            except BaseException as error:
                tell(started.set_exception, error)
                return
            tell(started.set_result, child)
            child.wait_unreaped()
            tell(self._has_exited)

        try:  # all that may be refused here comes before the process, which would be left
            self._link, link = socket.socketpair()
            mine.callback(self._link.close)
            its.callback(link.close)
            out, its_out, err, its_err = _pipes()
            its.callback(os.close, its_out)
            its.callback(os.close, its_err)
            self.printed = self._capture.watch(out, err)
            mine.callback(self._capture.forget, self.printed)
            self._link.setblocking(False)
            self._transport, _ = await loop.create_unix_connection(lambda: self, sock=self._link)
            mine.callback(self._transport.abort)
            arguments = (link.fileno(), its_out, its_err)
            threading.Thread(target=hold, args=arguments, name="treadle-slot", daemon=True).start()
            self._child = await started
        except BaseException as error:
            mine.close()
            its.close()
            raise Ended(f"no process can be started: {error}") from None

    # --- what the transport and the thread say -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take_in(frame)
        except (Corrupt, Misuse) as error:
            self._break(f"it spoke what is no frame: {error}")

    def _take_in(self, frame: Frame) -> None:
        if frame.kind in (Kind.ASK, Kind.SAY):
            if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
                raise Corrupt("it does not read what it is answered")
            if self.hear is not None:
                self.hear(frame)
            return
        if frame.kind is Kind.END:
            self.hear = None  # what comes behind it is nobody's
        self._said.put_nowait(frame)
        if self._said.qsize() > UNREAD_MAX:
            self._break("it said what nobody waited for")

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._ending is None and not self._broken:
            asyncio.get_running_loop().call_later(HANG_UP_S, self._hung_up)

    def _hung_up(self) -> None:
        if self._said.empty() and self._ending is None:
            self._break("it closed its line to the Worker, and went on")

    def _has_exited(self) -> None:
        """What it said before is still in the line, which a process it forked may keep open."""
        with suppress(OSError, RuntimeError):
            self._transport.pause_reading()
            for _ in range(LAST_READS_MAX):
                if not (piece := self._link.recv(1 << 16)):
                    break
                self.data_received(piece)
        self._said.put_nowait(None)

    def _break(self, why: str) -> None:
        self._broken = self._broken or why
        self._transport.abort()
        self._said.put_nowait(None)


def _pipes() -> tuple[int, int, int, int]:
    """Two pipes, or none."""
    first = os.pipe()
    try:
        return *first, *os.pipe()
    except OSError:
        for end in first:
            os.close(end)
        raise
