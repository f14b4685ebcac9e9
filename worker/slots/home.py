"""What the process of a slot is between runs: each begins there, and what it cannot come back from is named.

A process of which something is named is ended by its Worker, so whatever is cheaper ended with it is not put back.
"""

from __future__ import annotations

import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from .limits import Limits, apply

OURS = ("MainThread", "follow-owner")
"""The threads that stand here between runs."""
_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


class Home:
    """This process as it was after the imports."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._files = _files()
        self._state = _state()

    def leave(self, terms: Mapping[str, Any]) -> None:
        """Goes to a run's folder, with its environment and limits."""
        os.environ |= cast("dict[str, str]", terms["environment"])
        os.chdir(terms["folder"])
        apply(Limits(**terms["limits"]))
        self._state = _state()  # limits are part of it

    def come_back(self) -> str:
        """Undoes what can be undone, and names what the run has left behind."""
        os.chdir(self._folder)
        os.umask(self._umask)
        os.environ.clear()
        os.environ |= self._environment
        sys.path[:] = self._path
        tempfile.tempdir = None  # it remembers the run's folder
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, action in self._signals.items():
            if signal.getsignal(number) is not action and action is not None:
                signal.signal(number, action)
        state = _state()
        changed = [name for name in state if state[name] != self._state[name]]
        return ", ".join(
            [*_children(), *_threads(), *sorted(f"file {one}" for one in _files() ^ self._files), *changed]
        )[:400]


def _state() -> dict[str, object]:
    """What else a run may change for those after it, and is cheaper ended with the process than put back."""
    return {
        "signals held back": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "limits": [resource.getrlimit(what) for what in _LIMITS],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "users": (os.getresuid(), os.getresgid()),
        "standard streams": [id(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "logging": (logging.root.manager.disable, [id(one) for one in logging.root.handlers]),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "recursion limit": sys.getrecursionlimit(),
        "time-out of sockets": socket.getdefaulttimeout(),
        "locale": locale.setlocale(locale.LC_ALL),
        "garbage collection": gc.isenabled(),
    }


def _children() -> list[str]:
    """This process adopts what loses its parent: no child means no descendant at all."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return ["a child process"]


def _threads() -> list[str]:
    for thread in threading.enumerate():
        if thread.name == "AnyIO worker thread":  # told to end, with the run's loop
            thread.join(1)
    names = [one.name for one in threading.enumerate()]
    missing = [f"no thread {name}" for name in OURS if name not in names]
    return missing + [f"thread {name}" for name in names if name not in OURS]


def _files() -> frozenset[str]:
    """What is open, by number and what it is; the listing's own is not."""
    found = set[str]()
    with suppress(FileNotFoundError):
        for one in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                found.add(f"{one.name} ({one.readlink()})")
    return frozenset(found)
