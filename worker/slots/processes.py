"""A handler in a process of its own.

It is stopped by a message, then by its end: its run is over only when a look has found nothing of it (S16). Whatever the
process does to itself is the failure of that one run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.model import GroupId

from ..context import Blocked, Fail
from ..handlers import Handler
from ..programs import as_plain
from . import errand, hearing
from .errand import Packed, Reported
from .failures import Failure, printable
from .frames import FRAME_MAX, Frame, Kind, write
from .given import Given, parts_of
from .pool import Pool
from .run import Run
from .service import Service
from .slot_process import Ended, SlotProcess

ASKS_MAX = 64
OVER = "it took longer than its time-out"


async def process_errand(run: Run, given: Given, service: Service) -> ProcessErrand:
    """An errand whose process is there and has imported the handlers. Reported where it cannot be."""
    pool, handler, group = run.desk.workshop.pool, run.handler, run.grant.group
    try:
        taken = await pool.take(group, handler.capability)
    except Ended as error:
        raise Reported(ended(str(error), handler)) from None
    made = ProcessErrand(pool, taken, group, handler, given, service)
    run.when_asked = made.tell
    return made


class ProcessErrand:
    """One call of a handler, in a process that the pool has given."""

    def __init__(
        self,
        pool: Pool,
        taken: tuple[SlotProcess, Path],
        group: GroupId,
        handler: Handler,
        given: Given,
        service: Service,
    ) -> None:
        self._pool = pool
        self._process, self._folder = taken
        self._group = group
        self._handler = handler
        self._given = given
        self._service = service
        self._asks: set[asyncio.Task[None]] = set()
        self._is_at_work = False
        self._is_stopped = False
        self._is_clean = False

    async def run(self) -> Packed:
        """What the handler returned. Cancelled, it returns when all of the process is gone, and its lease is kept till then."""
        said: Frame | None = None
        cancelled: BaseException | None = None
        self._process.hear = self._hear
        self._process.printed.begin(self._given.name)
        try:
            self._begin()
            said = await self._process.next(Kind.END)
        except Ended:
            pass
        except asyncio.CancelledError as error:
            cancelled = error
            self._stop(self._service.why or OVER)
            with anyio.move_on_after(2 * errand.UNWIND_S, shield=True):
                said = await self._last_word()
                await self._cleaned_up()
        finally:
            self._is_at_work = False
            for task in self._asks:
                task.cancel()
        try:
            came = None if said is None or said.fields[0] == "stopped" else _came(*said.fields)
        except (Corrupt, Misuse) as error:
            await self._pool.end(self._process)
            raise Reported(ended(f"it said what is no end of a run: {error}", self._handler)) from None
        self._is_clean = isinstance(came, Packed) and cancelled is None
        if said is not None and cancelled is None and not self._is_clean:
            with anyio.move_on_after(errand.UNWIND_S, shield=True):
                await self._cleaned_up()
        how = "" if self._is_clean else await self._pool.end(self._process)
        if isinstance(came, Packed):
            return came
        raise came or cancelled or Reported(ended(how, self._handler))

    def tell(self) -> None:
        """Has the handler see why its run is to end, where it looks."""
        if self._is_at_work:
            self._process.say(Kind.TELL, self._service.why)

    async def unwound(self) -> None:
        """Returns when the process is gone, or proved to be as it was before; and the run's folder is removed."""
        with anyio.CancelScope(shield=True):
            self._process.hear = None
            if self._is_clean:
                await self._pool.give_back(self._process, self._group, self._handler.capability)
            else:
                await self._pool.end(self._process)
            await self._pool.remove(self._folder)

    def _begin(self) -> None:
        frames = [write(Kind.BODY, name, raw) for name, raw in parts_of(self._given)]
        terms: dict[str, Any] = {
            "capability": self._handler.capability,
            "environment": self._environment(),
            "folder": str(self._folder),
            "limits": self._handler.limits.plain() if self._handler.limits else {},
            "program": as_plain(self._handler.function),
            "level": logging.getLogger("treadle.handler").getEffectiveLevel(),
        }
        self._process.send(b"".join([*frames, write(Kind.BEGIN, terms)]))
        self._is_at_work = True
        if self._service.why:
            self.tell()

    def _environment(self) -> dict[str, str]:
        named = {name: os.environ[name] for name in self._handler.environment if name in os.environ}
        return named | {"TMPDIR": str(self._folder)}

    def _stop(self, why: str) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._process.say(Kind.STOP, why, self._service.is_lost)

    async def _last_word(self) -> Frame | None:
        try:
            return await self._process.next(Kind.END)
        except Ended:
            return None

    async def _cleaned_up(self) -> None:
        """Returns when what the handler left running has seen its cancellation: a killed task cleans nothing up."""
        with suppress(Ended):
            await self._process.next(Kind.CLEAN)

    def _hear(self, frame: Frame) -> None:
        if frame.kind is Kind.SAY:
            self._say(*frame.fields)
        elif len(self._asks) < ASKS_MAX:
            task = asyncio.get_running_loop().create_task(self._ask(*frame.fields))
            self._asks.add(task)
            task.add_done_callback(self._asks.discard)
        else:
            said = codec.pack(f"more than {ASKS_MAX} questions at once", field="answer", limit=FRAME_MAX)
            self._process.say(Kind.ANSWER, frame.fields[0], said, "Misuse")

    async def _ask(self, number: int, method: str, raw: bytes) -> None:
        try:
            answer, raised = await getattr(self._service, method)(*hearing.asked(method, raw)), ""
        except Exception as error:
            answer, raised = printable(str(error)), type(error).__name__
        if self._service.is_over:  # before the answer: where its run ends here, the handler must not go on
            self._stop(self._service.why)
        self._process.say(Kind.ANSWER, number, codec.pack(answer, field=method, limit=FRAME_MAX), raised)

    def _say(self, method: str, raw: bytes) -> None:
        """Corrupt or Misuse for what no context says."""
        if method == "log":
            self._process.printed.log(*hearing.logged(raw))
        elif method == "spend":
            try:
                self._service.spend(*hearing.spent(raw))
            except Fail as error:  # it keeps the same budget, so only where it was tampered with
                self._stop(f"it spent what it has not: {error}")
        elif method == "progress":
            for said in hearing.progressed(raw):
                self._service.progress(said)
        else:
            raise Corrupt(f"{method[:40]!r}: nothing that a handler may say")


def ended(how: str, handler: Handler) -> Failure:
    """The failure of a run whose process did not say what came of it."""
    return Failure(kind="ProcessEnded", text=printable(how), place=handler.line, code="", retryable=True)


def _came(kind: str, raw: bytes) -> Packed | Exception:
    """What came of a handler, as its process says it."""
    if kind == "result":
        return Packed(hearing.returned(raw))
    came = hearing.raised(kind, raw)
    return came if isinstance(came, Blocked) else Reported(came)
