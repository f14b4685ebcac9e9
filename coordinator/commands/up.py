"""`treadle up`: a server of one's own, for trying things."""

from __future__ import annotations

import shlex
import signal
import sys

import anyio
from treadle.shared.store.embedded import EmbeddedServer

from .opening import finish
from .options import AsJson
from .output import document, note, say

LOOK_EACH_S = 1.0


def up(as_json: AsJson = False) -> None:
    """Start a server for trying things, until Ctrl-C.

    It listens on a unix socket; its data goes with it. Standard output has one line, `export TREADLE_URL=...`, for the
    other terminals. SIGINT and SIGTERM end it with exit status 0.

    --json: {"url", "pid"}
    """

    async def keep() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async with EmbeddedServer() as server, anyio.create_task_group() as group:
                if as_json:
                    document({"url": server.url, "pid": server.server.pid})
                else:
                    say(f"export TREADLE_URL={shlex.quote(server.url)}")
                    note(_HINTS)
                group.start_soon(_watch, server)
                async for _ in signals:
                    break
                group.cancel_scope.cancel()

    finish(keep, heeds_signals=True)
    if not as_json and sys.stderr.isatty():
        note("the server has ended, and its data with it")


async def _watch(server: EmbeddedServer) -> None:
    """Say where it ends by itself."""
    while True:
        await anyio.sleep(LOOK_EACH_S)
        server.check()


_HINTS = """\
The server runs until Ctrl-C; its data goes with it. In other terminals, after that export line:
  treadle-worker run --handlers MODULE     runs the work of the handlers in MODULE.py
  treadle submit FILE                      submits a Mission (TOML or JSON)
  treadle watch                            shows how far it is"""
