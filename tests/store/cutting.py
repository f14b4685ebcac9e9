"""A small proxy in front of a real server's socket: it cuts a connection after a call ran and before its answer arrives."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote


class CuttingProxy:
    """Forwards bytes both ways on a unix socket of its own, until it is told to cut."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="cut-", dir="/tmp"))
        self._listener: asyncio.Server | None = None
        self._armed = False
        self._connections: set[asyncio.Task[None]] = set()
        self.cuts: list[bytes] = []
        """The beginning of each answer that was dropped."""

    @property
    def url(self) -> str:
        return f"unix://{quote(str(self._folder / 's'))}?db=0"

    def cut_next_answer(self) -> None:
        """Drop the answer to the next function call, and close its connection."""
        self._armed = True

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._connected, self._folder / "s")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        shutil.rmtree(self._folder)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Cancelled: the proxy is closed, and nobody else waits for this task.
            with suppress(ConnectionError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_unix_connection(self._server)
        asks = asyncio.ensure_future(reader.read(1 << 16))
        answers = asyncio.ensure_future(server_reader.read(1 << 16))
        called = False
        try:
            while True:
                await asyncio.wait((asks, answers), return_when=asyncio.FIRST_COMPLETED)
                if asks.done():
                    if not (data := asks.result()):
                        return
                    called = b"FCALL" in data
                    server_writer.write(data)
                    asks = asyncio.ensure_future(reader.read(1 << 16))
                if answers.done():
                    if not (data := answers.result()):
                        return
                    if self._armed and called:
                        # The server has answered, so the call has run.
                        self._armed = False
                        self.cuts.append(data[:16])
                        return
                    writer.write(data)
                    answers = asyncio.ensure_future(server_reader.read(1 << 16))
        finally:
            for future in (asks, answers):
                future.cancel()
            for closing in (server_writer, writer):
                closing.close()
                with suppress(ConnectionError):
                    await closing.wait_closed()
