"""The Worker processes of one demo: started, stopped, killed, ended, and what became of each.

They are started by their module's name as any program would be: the wings do not import each other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
from treadle.shared.errors import TreadleError
from treadle.shared.model import AgentId
from treadle.shared.processes import Child, kill_tree, send, spawn

from .evidence import Processed, WorkerEnd, read_lines

STOP_GRACE_S = 8.0
LOG_TAIL_CHARS, LOG_TAIL_LINES = 2_000, 12
HANDLERS = "treadle.worker.examples.files"


class WorkersGoneError(TreadleError):
    """The demo's Workers ended by themselves; the message holds the last lines of what they said."""


@dataclass(slots=True)
class _Member:
    child: Child
    log: Path
    killed_ms: int | None = None
    status: int | None = None
    mourned: bool = False


@dataclass(slots=True)
class Crew:
    """The Workers of one demo; behind its `async with` none of them is left."""

    url: str
    folder: Path
    slots: int
    ttl_s: float
    say: Callable[[str], None]
    _members: dict[AgentId, _Member] = field(default_factory=dict)

    @property
    def evidence_folder(self) -> Path:
        return self.folder / "evidence"

    @property
    def alive(self) -> frozenset[AgentId]:
        return frozenset(name for name, one in self._members.items() if one.child.poll() is None)

    @property
    def ends(self) -> list[WorkerEnd]:
        """What became of those that have ended, as the operating system says."""
        return [
            WorkerEnd(name, one.child.pid, one.status, one.killed_ms)
            for name, one in self._members.items()
            if one.status is not None
        ]

    def start(self) -> AgentId:
        """One Worker more; its name."""
        name = AgentId(f"worker-{len(self._members) + 1}")
        self.evidence_folder.mkdir(exist_ok=True)
        log = self.folder / f"{name}.log"
        argv = [sys.executable, "-m", "treadle.worker.cli", "run", "--handlers", HANDLERS]
        argv += ["--slots", str(self.slots), "--name", name]
        # With -m the current folder goes on the path, so it is not the project's. Settings for another store stay out.
        settings = {
            "TREADLE_URL": self.url,
            "TREADLE_LEASE_TTL_S": f"{self.ttl_s:g}",
            "TREADLE_DEMO_EVIDENCE": str(self.evidence_folder),
        }
        env = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")} | settings
        with log.open("wb") as output:
            child = spawn(argv, env=env, cwd=self.folder, stdout=output, stderr=output)
        self._members[name] = _Member(child, log)
        return name

    def pid_of(self, name: AgentId) -> int:
        return self._members[name].child.pid

    def pause(self, name: AgentId) -> bool:
        """Stop it where it stands (SIGSTOP); False where it is gone."""
        return send(self._members[name].child.identity, signal.SIGSTOP)

    def resume(self, name: AgentId) -> None:
        send(self._members[name].child.identity, signal.SIGCONT)

    async def kill(self, name: AgentId, *, at_ms: int) -> None:
        """SIGKILL, verified to be that process; reaped when this returns."""
        one = self._members[name]
        one.killed_ms = at_ms
        await anyio.to_thread.run_sync(kill_tree, one.child.identity)
        one.status = await anyio.to_thread.run_sync(one.child.wait, 5.0)

    def mourn(self) -> None:
        """Say once of each Worker that ended by itself; WorkersGoneError where none is left."""
        for name, one in self._members.items():
            if one.status is None and (status := one.child.poll()) is not None:
                one.status = status
            if one.status is not None and one.killed_ms is None and not one.mourned:
                one.mourned = True
                self.say(f"{name} (pid {one.child.pid}) ended by itself, exit status {one.status}:\n{_tail(one.log)}")
        if not self.alive:
            raise WorkersGoneError("no Worker is left; what they said last stands above")

    def evidence(self) -> list[Processed]:
        """All that the Workers wrote down."""
        files = sorted(self.evidence_folder.glob("*.jsonl"))
        return [line for file in files for line in read_lines(file.read_bytes(), name=file.name)]

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """SIGTERM to all at once, SIGKILL to those that have not ended in time; also when cancelled."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for one in self._members.values():
                    group.start_soon(self._end, one)

    async def _end(self, one: _Member) -> None:
        send(one.child.identity, signal.SIGCONT)  # a stopped one would not hear SIGTERM
        status = await anyio.to_thread.run_sync(partial(one.child.stop, grace_s=STOP_GRACE_S))
        if one.status is None:
            one.status = status


def _tail(log: Path) -> str:
    try:
        said = log.read_bytes()[-LOG_TAIL_CHARS:].decode("utf-8", "replace").strip()
    except OSError:
        said = ""
    return "\n".join(f"  | {line}" for line in (said or "(said nothing)").splitlines()[-LOG_TAIL_LINES:])
