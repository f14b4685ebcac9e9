"""What the process of a slot may use at most, as its system bounds it (rlimits)."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from treadle.shared import codec
from treadle.shared.errors import Misuse

BOUNDS: dict[str, tuple[int, int]] = {
    "memory_mb": (64, 1 << 20),
    "cpu_s": (1, 7 * 86_400),
    "processes": (0, 1 << 16),
    "open_files": (16, 1 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one run may use; None: what the Worker may. Misuse for a number out of its bounds.

    They hold for each process of a run by itself, but `processes`.
    """

    memory_mb: int | None = None
    """Data in memory, MiB (RLIMIT_DATA); beyond it allocating fails, in Python with MemoryError."""
    cpu_s: float | None = None
    """Processor time, seconds, rounded up to whole ones (RLIMIT_CPU); beyond it SIGXCPU ends the process."""
    processes: int | None = None
    """Processes and threads it may start (RLIMIT_NPROC). The kernel counts all of the user's, and does not bound root."""
    open_files: int | None = None
    """Files open at once (RLIMIT_NOFILE), those of the slot itself included, about ten."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            kinds = int | float if name == "cpu_s" else int
            if value is None or (isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most):
                continue
            raise Misuse(f"limits: {name}: {codec.shown(value)}, must be a number from {least:,} to {most:,}")

    def plain(self) -> dict[str, float]:
        """The limits that are set, by their names."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def apply(limits: Limits) -> None:
    """Bounds this process, and those it starts. Processor time counts from now on, also at the second call."""
    if limits.memory_mb is not None:
        _bound(resource.RLIMIT_DATA, limits.memory_mb << 20)
    if limits.open_files is not None:
        _bound(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.processes is not None:
        _bound(resource.RLIMIT_NPROC, _threads_of_user() + limits.processes)
    if limits.cpu_s is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _bound(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + limits.cpu_s))


def _bound(what: int, most: int) -> None:
    """The soft limit only: the hard one can never be raised again, and the next run in this process has its own."""
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _threads_of_user() -> int:
    """What the kernel counts for RLIMIT_NPROC: all threads of this user."""
    mine, count = os.getuid(), 0
    with suppress(FileNotFoundError):
        for tasks in Path("/proc").glob("[0-9]*/task"):
            with suppress(OSError):
                if tasks.stat().st_uid == mine:
                    count += sum(1 for _ in tasks.iterdir())
    return max(1, count)
