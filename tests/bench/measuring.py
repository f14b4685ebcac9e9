"""What a benchmark is measured with: counters of the server, of a Worker process and of the machine, rows, and their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import redis

_OWN = frozenset({"info", "config|resetstat", "config|set", "flushall", "function|flush"})
"""What the benchmark itself asks of the server."""


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process with all its threads; nan where the system does not say (no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_busy() -> tuple[float, float]:
    """Seconds of CPU that all processes used since the boot, and how many seconds that could have been."""
    try:
        fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return float("nan"), float("nan")
    ticks = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - fields[3] - fields[4]) / ticks, sum(fields) / ticks


@dataclass(frozen=True, slots=True)
class Counters:
    """What the server, one Worker process, this process and the machine have used so far."""

    at_s: float
    server_s: float
    commands: int
    """The ones inside the function library too."""
    reads: int
    memory: int
    worker_s: float
    own_s: float
    busy_s: float
    possible_s: float

    @classmethod
    def now(cls, admin: redis.Redis, worker_pid: int | None = None) -> Counters:
        info: dict[str, Any] = admin.info("everything")
        calls = sum(
            value["calls"]
            for name, value in info.items()
            if name.startswith("cmdstat_") and name.removeprefix("cmdstat_") not in _OWN
        )
        busy_s, possible_s = machine_busy()
        return cls(
            at_s=time.monotonic(),
            server_s=info["used_cpu_user"] + info["used_cpu_sys"],
            commands=calls,
            reads=info["total_reads_processed"],
            memory=info["used_memory"],
            worker_s=0.0 if worker_pid is None else cpu_of(worker_pid),
            own_s=time.process_time(),
            busy_s=busy_s,
            possible_s=possible_s,
        )

    @staticmethod
    def clock() -> float:
        """The clock of `at_s`."""
        return time.monotonic()

    def until(self, after: Counters, items: int) -> dict[str, float]:
        """What each of `items` cost between two readings, and how busy everybody else kept the machine."""
        wall_s, each = after.at_s - self.at_s, 1e6 / items
        ours_s = (after.server_s - self.server_s) + (after.worker_s - self.worker_s) + (after.own_s - self.own_s)
        others = (after.busy_s - self.busy_s - ours_s) / max(1e-9, after.possible_s - self.possible_s)
        return {
            "items/s": items / wall_s,
            "server us": (after.server_s - self.server_s) * each,
            "worker us": (after.worker_s - self.worker_s) * each,
            "client us": (after.own_s - self.own_s) * each,
            "commands": (after.commands - self.commands) / items,
            "reads": (after.reads - self.reads) / items,
            "others %": max(0.0, 100 * others),
        }


@dataclass(slots=True)
class Row:
    """One case: a figure per round and name."""

    case: str
    rounds: list[dict[str, float]] = field(default_factory=list)

    def spread(self) -> dict[str, tuple[float, float, float]]:
        """Least, median and most of each figure."""
        found: dict[str, tuple[float, float, float]] = {}
        for name in dict.fromkeys(name for one in self.rounds for name in one):
            values = [one[name] for one in self.rounds if name in one]
            found[name] = (min(values), statistics.median(values), max(values))
        return found


class Results:
    """The rows of a run, as text for people and as one JSON object."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.server = ""

    def add(self, case: str, figures: Mapping[str, float]) -> None:
        """Notes one round of a case, and prints it."""
        self.rows.setdefault(case, Row(case)).rounds.append(dict(figures))
        print(f"\n{case}: " + "  ".join(f"{name} {shown(value)}" for name, value in figures.items()), end="")

    def lines(self) -> Iterable[str]:
        """A table: median, and least to most where there were several rounds."""
        for row in self.rows.values():
            yield row.case
            for name, (least, median, most) in row.spread().items():
                more = f"   ({shown(least)} to {shown(most)}, {len(row.rounds)} rounds)" if len(row.rounds) > 1 else ""
                yield f"    {name:24s} {shown(median):>10s}{more}"

    def json(self) -> str:
        cases = {
            row.case: {
                "rounds": row.rounds,
                "spread": {
                    name: dict(zip(("min", "median", "max"), s, strict=True)) for name, s in row.spread().items()
                },
            }
            for row in self.rows.values()
        }
        return json.dumps({"setting": setting(self.server), "cases": cases}, indent=1)


def shown(value: float) -> str:
    """A figure with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def setting(server: str) -> dict[str, Any]:
    """Where it was measured, and with which versions."""
    names = ("redis", "hiredis", "uvloop", "anyio", "msgpack")
    return {
        "server": server,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "packages": {name: _version(name) for name in names},
        "argv": sys.argv[1:],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
