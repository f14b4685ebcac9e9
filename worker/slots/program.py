"""A program as a handler: started with its inputs, its files kept as its Checkpoint, its end judged, nothing of it left.

`Program` is called as any `async def` handler is, in the process of its slot: whoever ends that process's tree ends it too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from treadle.shared.redaction import known

from ..context import Context, Fail
from . import endings, files
from .arguments import filled

LOOK_EACH_S = 0.1
"""How often it is looked whether files are ready to be saved, and whether the slot is asked for."""
TERM_S = 0.7
"""Between SIGTERM and SIGKILL; with room below what a handler that is stopped gets to unwind."""
DRAIN_S = 0.5
"""How long the output is read on after the program has ended, where something it left behind keeps it open."""
PIECE = 1 << 16
CREDENTIALS_MAX = 60_000
"""Bytes: they stand in a pipe until the program reads them."""
_log = logging.getLogger("treadle.worker")


class Program:
    """The function of a handler that runs a program."""

    def __init__(self, argv: Sequence[str], *, saves_on_sigterm: bool = False) -> None:
        self.argv = tuple(argv)
        self.saves_on_sigterm = saves_on_sigterm
        self.__qualname__ = f"command {self.argv[0]}"  # as messages name a handler

    async def __call__(self, context: Context, inputs: Mapping[str, Any]) -> Any:
        """What the program comes to; Fail as its exit status says (`endings.py`)."""
        argv, given = filled(self.argv, inputs), _json(inputs, "inputs")
        folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
        try:
            files.unpacked(context.checkpoint_state, folder)
            return await _Run(context, folder, saves_on_sigterm=self.saves_on_sigterm).carry_out(argv, given)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """One call of a program."""

    def __init__(self, context: Context, folder: Path, *, saves_on_sigterm: bool) -> None:
        self._context = context
        self._folder = folder
        self._saves_on_sigterm = saves_on_sigterm
        self._transport: asyncio.SubprocessTransport
        self._output = bytearray()
        self._last_words = b""
        self._is_asked = False
        """Whether the program was told that its slot is asked for."""

    async def carry_out(self, argv: Sequence[str], given: bytes) -> Any:
        starting = asyncio.ensure_future(self._start(argv))
        tasks: list[asyncio.Future[None]] = []
        try:
            process = await asyncio.shield(starting)  # half a start would be nobody's to end
            reading = asyncio.ensure_future(self._read(process))
            watching = asyncio.ensure_future(self._watch(process))
            rest = [asyncio.ensure_future(one) for one in (_feed(process, given), self._listen(process))]
            tasks += [reading, watching, *rest]
            # The program's own end counts, not that of what it leaves behind.
            done, _ = await asyncio.wait([reading, watching], return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            await watching
            await asyncio.wait([reading, *rest], timeout=DRAIN_S)
            if reading.done():
                reading.result()
            return await self._judge(process)
        finally:
            with anyio.CancelScope(shield=True):
                await self._clear(starting, tasks)

    async def _clear(self, starting: asyncio.Future[Process], tasks: Sequence[asyncio.Future[None]]) -> None:
        """Leaves nothing of the program that its process group holds."""
        try:
            process = await starting
        except Fail:
            return
        await _end(process)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._transport.close()  # its pipes: what it leaves behind may hold the other ends

    async def _start(self, argv: Sequence[str]) -> Process:
        reader = self._credentials()
        try:
            loop = asyncio.get_running_loop()
            self._transport, streams = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(PIECE, loop),
                *argv,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**os.environ, **self._environment(reader)},
                pass_fds=() if reader is None else (reader,),
                process_group=0,
            )
            return Process(self._transport, streams, loop)
        except OSError as error:
            raise Fail(f"{argv[0]!r} cannot be run: {error.strerror}", retryable=True) from None
        finally:
            if reader is not None:
                os.close(reader)

    def _environment(self, reader: int | None) -> dict[str, str]:
        context = self._context
        found = {
            "TREADLE_MISSION": context.mission,
            "TREADLE_ITEM": context.item,
            "TREADLE_ATTEMPT": str(context.attempt),
            "TREADLE_CHECKPOINT": str(self._folder),
        }
        if reader is not None:
            found["TREADLE_CREDENTIALS"] = str(reader)
        return {name: value.replace("\0", "\\0") for name, value in found.items()}

    def _credentials(self) -> int | None:
        """The end of a pipe from which the program reads its secrets; None where it has none."""
        secrets = dict(self._context.credentials)
        if not secrets:
            return None
        raw = _json(secrets, "credentials")
        if len(raw) > CREDENTIALS_MAX:
            raise Fail(f"credentials: {len(raw):,} bytes, at most {CREDENTIALS_MAX:,}")
        reader, writer = os.pipe()
        try:
            os.write(writer, raw)
        finally:
            os.close(writer)
        return reader

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        while piece := await process.stdout.read(PIECE):
            self._output += piece
            if len(self._output) > endings.OUTPUT_MAX:
                raise endings.too_much()

    async def _listen(self, process: Process) -> None:
        """Passes on what it says on standard error, which its slot has in the log, and keeps its last words."""
        assert process.stderr is not None
        while piece := await process.stderr.read(PIECE):
            self._last_words = (self._last_words + piece)[-endings.LAST_WORDS_MAX - known.reach :]
            with suppress(OSError):
                os.write(2, piece)

    async def _watch(self, process: Process) -> None:
        """Returns when the program has ended; until then it saves what is ready and tells it that its slot is asked for."""
        ended = asyncio.ensure_future(process.wait())
        try:
            while process.returncode is None:
                await asyncio.wait([ended], timeout=LOOK_EACH_S)
                if process.returncode is None:
                    await self._look(process)
        finally:
            ended.cancel()

    async def _look(self, process: Process) -> None:
        if files.is_ready(self._folder):
            await self._save()
        if not self._is_asked and self._context.why_stopped:
            self._is_asked = True
            if wrong := files.mark_stop(self._folder):
                os.write(2, f"{wrong}\n".encode())  # to the log, as what the program says
            if self._saves_on_sigterm:
                _send(process, signal.SIGTERM)

    async def _save(self) -> None:
        await self._context.checkpoint(files.packed(self._folder))
        (self._folder / files.READY).unlink(missing_ok=True)

    async def _judge(self, process: Process) -> Any:
        assert process.returncode is not None
        said = known.hide(self._last_words.decode(errors="replace"))  # before it is cut: a secret may begin earlier
        failure = endings.failure(process.returncode, said.encode())
        if failure is None:
            return endings.result_of(bytes(self._output))
        if files.is_ready(self._folder):
            await self._save()
        if self._is_asked and self._saves_on_sigterm:  # it ended because it was told to: no failure
            await self._context.checkpoint(self._context.checkpoint_state)
        raise failure


async def _feed(process: Process, given: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # a program need not read its inputs
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: Process) -> None:
    """Ends the program and what it started in its process group."""
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, TERM_S)):
        if process.returncode is not None:
            return
        _send(process, number)
        with anyio.move_on_after(patience_s):
            await process.wait()


def _send(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _json(value: Any, what: str) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise Fail(f"{what}: cannot be written as JSON for a command: {error}") from None
