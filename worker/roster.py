"""The Workers that one user runs on one machine, each with a small record for those who want to reach it from outside.

A record says which process a Worker is, so that a later process of the same pid is never taken for it. One that was left
behind by a kill is known by that, and removed by the next who looks; so is one of an earlier boot of this host. A record of
another host, or of another container that shares the folder, is nobody's business here: it is neither shown nor removed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from socket import gethostname
from typing import Any

from treadle.shared.errors import Misuse
from treadle.shared.names import shown
from treadle.shared.processes import UNKNOWN, Identity, Life, identity, life_of

DRAIN = signal.SIGUSR2
"""What asks a Worker to drain. Not SIGTERM, of which a second one means something else."""
RECORD_BYTES_MAX = 4_096
RECORDS_MAX = 4_096
PATIENCE_MAX_S = 366 * 86_400
_BOOT = re.compile(r"[0-9a-f]{8}\.")
ATTEMPTS = 3
"""One that ends may remove the folder just now, since it was empty."""
_log = logging.getLogger("treadle.worker")


@dataclass(frozen=True, slots=True)
class Record:
    """One Worker's process, as it wrote itself down."""

    name: str
    """The Agent's, as a token."""
    pid: int
    started: str
    space: str
    """Where its pid counts: one boot, one namespace of processes."""
    patience_s: float
    """How long it takes to end at the most, once it was asked."""
    store: str = ""
    """Which store it works for, by `store_name`; '' where its record does not say it."""
    host: str = ""
    """The name of its machine; '' likewise."""

    @property
    def process(self) -> Identity:
        return Identity(self.pid, self.started)

    @property
    def shown(self) -> str:
        store = "".join(char if char.isprintable() else " " for char in self.store)
        return f"{shown(self.name)} (pid {self.pid}, {store or 'store unknown'})"

    @classmethod
    def read(cls, raw: bytes) -> Record | None:
        """None for what is no record."""
        try:
            found: Any = json.loads(raw)
            patience_s = float(found["patience_s"])
            ids = str(found["name"]), int(found["pid"]), str(found["started"]), str(found["space"])
            record = cls(*ids, patience_s, str(found.get("store", "")), str(found.get("host", "")))
            is_one = record.process and record.started != UNKNOWN and 0 <= patience_s <= PATIENCE_MAX_S
            return record if is_one else None
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, Misuse):
            return None


def here() -> str:
    """The boot and the namespace of processes that this process is in."""
    who = identity(os.getpid())
    boot = who.started.partition(".")[0] if who else UNKNOWN
    try:
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:  # not Linux
        return "here"


def folders() -> tuple[Path, ...]:
    """Where records of this user may be, the preferred one first."""
    runtime, temporary = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR") or "/tmp"
    own = Path(temporary).absolute() / f"treadle-workers-{os.getuid()}"
    return (Path(runtime) / "treadle-workers", own) if runtime and Path(runtime).is_absolute() else (own,)


def living() -> list[Record]:
    """The Workers of this user here whose processes are not surely gone; records of those that are, are removed."""
    found: dict[Identity, Record] = {}
    space = here()
    for folder in folders():
        if not _is_ours(folder):
            continue
        for path in sorted(folder.glob("*.json"))[:RECORDS_MAX]:
            record = _read(path)
            is_past = record is not None and _is_of_an_earlier_boot(record, space)
            if record is None or (record.space != space and not is_past):
                continue
            if is_past or life_of(record.process) is Life.GONE:
                with suppress(OSError):
                    path.unlink()
            else:
                found[record.process] = record
    return sorted(found.values(), key=lambda record: (record.name, record.pid))


def _is_of_an_earlier_boot(record: Record, space: str) -> bool:
    """Whether this host has started anew since: nothing of it runs. Another host's boot tells nothing, nor one not known."""
    are_known = all(_BOOT.match(one) for one in (record.space, space))
    return are_known and record.host == gethostname() and record.space.partition(".")[0] != space.partition(".")[0]


@contextmanager
def recorded(name: str, *, patience_s: float, store: str) -> Generator[None]:
    """Keeps this process's record for as long as it lasts. That it cannot be written is said, and is no reason to end."""
    path = _write(name, patience_s, store)
    try:
        yield
    finally:
        if path is not None:
            living()  # what was left by others goes too
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()


def _write(name: str, patience_s: float, store: str) -> Path | None:
    who = identity(os.getpid())
    if who is None or who.started == UNKNOWN:
        _log.warning("this process cannot be told from a later one of its pid: `treadle-worker drain` will not find it")
        return None
    record = Record(name, who.pid, who.started, here(), patience_s, store, gethostname())
    causes: list[str] = []
    for folder in folders():
        for _ in range(ATTEMPTS):
            try:
                return _put(record, folder)
            except OSError as error:
                cause = f"{folder}: {error.strerror or error}"
                if cause not in causes:
                    causes.append(cause)
    _log.warning("`treadle-worker drain` will not find this Worker: %s", "; ".join(causes))
    return None


def _put(record: Record, folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(folder):
        raise PermissionError(0, "is not a folder of this user's alone (mode 0700)")
    path = folder / f"{record.pid}.{record.started}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(record)) + "\n", encoding="ascii")
    return new.replace(path)


def _is_ours(folder: Path) -> bool:
    """Whether only this user can have put something there: below /tmp anybody may be the first to make a folder."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _read(path: Path) -> Record | None:
    try:
        with path.open("rb") as file:
            return Record.read(file.read(RECORD_BYTES_MAX))
    except OSError:
        return None
