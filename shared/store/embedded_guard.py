"""The guard of one embedded server: it starts the server as its child, and ends it and its folder with its owner.

Run as `python -I -S embedded_guard.py BINARY FOLDER`; it imports nothing of this package, so that it is small and
there in milliseconds. Standard input is a pipe whose write end only the owner holds: each byte says "start" (or "end
what runs and start again"), answered on standard output by the server's pid; the pipe's end is the owner's end, and no
kill -9 can suppress that. It does not end on SIGTERM, SIGINT or SIGHUP: a service manager signals all processes at
once, and the owner needs its server until it has finished. To end the server, end its owner.
"""

from __future__ import annotations

import os
import signal
import sys
import time

REMOVE_TRIES = 100
REMOVE_STEP_S = 0.02


def start(binary: str, folder: str) -> int:
    """The pid of a new server, leader of its own session: a helper it forked (AOF rewriting) is ended with it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.chdir(folder)
        log = os.open("server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.execv(binary, [binary, "server.conf"])
    except OSError as error:
        os.write(2, f"{binary}: cannot be executed: {error}\n".encode())
    finally:
        os._exit(127)


def end(pid: int) -> None:
    """End the server and reap it. SIGKILL: a stopped one hears nothing else, and what counts lies in its AOF."""
    for kill in (os.kill, os.killpg):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            continue  # It ended by itself, or does not lead its group yet.
    os.waitpid(pid, 0)


def remove(folder: str) -> None:
    """Remove the folder; tried again while a dying helper of the server still writes into it."""
    import shutil  # only here: it costs more than all else of this program

    for _ in range(REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(REMOVE_STEP_S)


def _ignored(_number: int, _frame: object) -> None:
    """Does nothing with a signal."""


def main(binary: str, folder: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A handler, not SIG_IGN: that would be inherited by the server.
        signal.signal(number, _ignored)
    server = 0
    try:
        while os.read(0, 1):
            if server:
                end(server)
                server = 0
            server = start(binary, folder)
            os.write(1, b"%d\n" % server)
    finally:
        if server:
            end(server)
        remove(folder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
