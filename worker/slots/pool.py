"""The processes of a Worker's slots: started, kept warm for the next run of their kind, and all ended with it.

A warm process is used again for the same Group and capability only, after a success, when nothing that the run has
started or opened is left. A spare one has imported the handlers and belongs to nobody yet. Both end when nobody wants
them for half a minute. With those at work they are as many as slots: a spare one is there while fewer are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from treadle.shared.model import Capability, GroupId

from . import errand
from .capture import Capture
from .environment import allowed
from .folders import Folders, sweep
from .frames import Kind
from .keeping import Keeping
from .slot_process import Ended, SlotProcess
from .threads import in_thread

IDLE_S = 30.0
Key = tuple[GroupId, Capability]
_log = logging.getLogger("treadle.worker")


@dataclass(slots=True, eq=False)
class _Idle:
    process: SlotProcess
    key: Key | None
    """Whose it is; None: a spare one."""
    timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """It is idle no longer."""
        if self.timer is not None:
            self.timer.cancel()


@dataclass(frozen=True, slots=True)
class Facilities:
    """What all processes of a Worker share: its folder, the reader of what they print, and the keeper that outlives it."""

    folders: Folders
    capture: Capture
    keeping: Keeping

    @classmethod
    def open(cls, base: Path | None) -> Facilities:
        base = base or Path(tempfile.gettempdir())
        sweep(base)
        with ExitStack() as made:
            folders = Folders(base)
            made.callback(folders.close)
            capture = Capture()
            made.callback(capture.close)
            keeping = Keeping(folders.mark, folders.root)
            made.pop_all()
        return cls(folders, capture, keeping)

    def close(self) -> None:
        self.capture.close()
        self.folders.close()
        self.keeping.stop()


class Pool:
    """One Worker's processes."""

    def __init__(self, slots: int, modules: Iterable[str] = (), base: Path | None = None) -> None:
        """`base`: where the folder of the Worker is made; None: the folder for temporary files."""
        self._slots = slots
        self._modules = sorted(set(modules))
        """What each of them imports."""
        self._base = base
        self._facilities: Facilities | None = None
        self._opening = threading.Lock()
        self._idle: list[_Idle] = []
        self._all: set[SlotProcess] = set()
        self._tasks: dict[asyncio.Task[None], anyio.CancelScope] = {}
        self._is_refilling = False
        self._is_closed = False

    @property
    def idle(self) -> int:
        """How many are at no work."""
        return len(self._idle)

    def resize(self, slots: int) -> None:
        """Keeps so many idle processes at most from now on."""
        self._slots = max(1, slots)

    async def take(self, group: GroupId, capability: Capability) -> tuple[SlotProcess, Path]:
        """A process for one run, and the run's folder. Ended where there can be none; Misuse where the Worker has no folder."""
        try:
            facilities = await self.open()
            folder = facilities.folders.new()
        except (OSError, RuntimeError) as error:
            raise Ended(f"no folder and no process can be had: {error}") from None
        try:
            process = self._found((group, capability)) or self._found(None)
            if process is None:
                self._make_room()
                process = await self._start(facilities)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.remove(folder)
            raise
        if len(self._all) < self._slots:
            self._in_background(self._refill(facilities))
        return process, folder

    async def give_back(self, process: SlotProcess, group: GroupId, capability: Capability) -> None:
        """Keeps it for the next run of that kind, or ends it: it returns when one of the two is sure."""
        if await self._is_as_before(process) and not self._is_closed:
            self._keep(process, (group, capability))
        else:
            await self.end(process)

    async def end(self, process: SlotProcess) -> str:
        """Ends it; see `SlotProcess.end`."""
        how = await process.end()
        self._all.discard(process)
        return how

    def kill(self) -> bool:
        """Ends all of them, from any thread, for a Worker that ends itself behind it: whether none of them is left."""
        return all([process.kill() for process in list(self._all)])

    async def remove(self, folder: Path) -> None:
        """Removes a run's folder."""
        if self._facilities is not None:
            await in_thread(self._facilities.folders.remove, folder)

    async def close(self) -> None:
        """Ends all of them, and removes what they had; twice is fine."""
        self._is_closed = True
        if self._facilities is None:
            return
        with anyio.CancelScope(shield=True):
            for scope in self._tasks.values():
                scope.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))
            for one in self._idle:
                one.stop()
            await asyncio.gather(*(self.end(process) for process in list(self._all)))
            await in_thread(self.dispose)

    def dispose(self) -> None:
        """Removes the folder, and ends its keeper and the reader; from any thread, without a loop, twice is fine."""
        with self._opening:
            if self._facilities is not None:
                self._facilities.close()
                self._facilities = None

    async def open(self) -> Facilities:
        """Sweeps what dead Workers left, and makes the folder. Misuse where it cannot be made."""
        if self._facilities is None:
            with anyio.CancelScope(shield=True):
                await in_thread(self._opened)
        return self._opened()

    def folder(self) -> Path:
        """A folder for a run that is in no process of its own; from any thread."""
        return self._opened().folders.new()

    def _opened(self) -> Facilities:
        with self._opening:
            facilities = self._facilities
            if facilities is None:
                facilities = self._facilities = Facilities.open(self._base)
            return facilities

    async def _start(self, facilities: Facilities) -> SlotProcess:
        mark = f"{facilities.folders.mark}{secrets.token_hex(8)}."
        process = await SlotProcess.start(
            mark, facilities.capture, environment=allowed(os.environ), path=_path(), modules=self._modules
        )
        self._all.add(process)
        return process

    async def _refill(self, facilities: Facilities) -> None:
        """Has one spare process; a run that fails for want of one says it, not this."""
        if self._is_refilling or any(one.key is None for one in self._idle):
            return
        self._is_refilling = True
        try:
            process = await self._start(facilities)
        except Ended as error:
            _log.debug("no spare process: %s", error)
        else:
            self._keep(process, None)
        finally:
            self._is_refilling = False

    async def _is_as_before(self, process: SlotProcess) -> bool:
        try:
            with anyio.fail_after(errand.UNWIND_S):
                (left,) = (await process.next(Kind.CLEAN)).fields
        except (Ended, TimeoutError) as error:
            left = str(error) or "no word"
        if left:
            _log.debug("process %d is not used again: its run left %s", process.pid, left)
        return await process.is_settled() and not left

    def _found(self, key: Key | None) -> SlotProcess | None:
        """The newest idle process of that kind, which is idle no longer."""
        for one in reversed(self._idle):
            if one.key == key:
                self._idle.remove(one)
                one.stop()
                if one.process.is_alive:
                    return one.process
                self._in_background(self._end_idle(one))
        return None

    def _keep(self, process: SlotProcess, key: Key | None) -> None:
        one = _Idle(process, key)
        one.timer = asyncio.get_running_loop().call_later(IDLE_S, lambda: self._in_background(self._end_idle(one)))
        self._idle.append(one)
        if len(self._all) > self._slots:
            self._make_room()

    def _make_room(self) -> None:
        """Ends the process that was idle for longest, a spare one first, where there are as many as slots."""
        if self._idle and len(self._all) >= self._slots:
            one = next((one for one in self._idle if one.key is None), self._idle[0])
            self._idle.remove(one)
            self._in_background(self._end_idle(one))

    async def _end_idle(self, one: _Idle) -> None:
        if one in self._idle:
            self._idle.remove(one)
        one.stop()
        await self.end(one.process)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_closed:
            work.close()
            return
        # Not the task is cancelled: what is shielded in it, half a start, would not be shielded from that.
        scope = anyio.CancelScope()

        async def within() -> None:
            with scope:
                await work

        task = asyncio.get_running_loop().create_task(within(), name="slot processes")
        self._tasks[task] = scope
        task.add_done_callback(lambda done: self._tasks.pop(done, None))


def _path() -> list[str]:
    """The Worker's own, where modules are looked for; '' is the folder it is in."""
    return [str(Path(entry).resolve()) if Path(entry).exists() else entry for entry in sys.path]
