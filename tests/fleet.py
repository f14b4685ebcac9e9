"""Worker processes for the system tests, what they said and did, and waiting for it."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import pytest
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.model import Event, EventKind, GroupId, ItemId
from treadle.shared.names import token
from treadle.shared.processes import Child, spawn
from treadle.shared.store import Store

TESTS = Path(__file__).resolve().parent
LOG_SHOWN_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    """One thing a run wrote down (see `fleet_handlers`)."""

    mission: str
    item: str
    attempt: int
    worker: str
    pid: int
    what: str
    at_s: float
    more: Mapping[str, Any]

    @classmethod
    def read(cls, raw: bytes) -> Line:
        fields: dict[str, Any] = json.loads(raw)
        own = {name: fields.pop(name) for name in ("mission", "item", "attempt", "worker", "pid", "what", "at_s")}
        return cls(**own, more=fields)


@dataclass(frozen=True, slots=True)
class Member:
    """One Worker process, alive or not."""

    name: str
    child: Child
    log: Path

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def said(self, pattern: str) -> bool:
        """Whether its log holds a match."""
        return re.search(pattern, self.log_text()) is not None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.child.pid, number)

    def pause(self) -> None:
        """Stop it from running and return when it is: nothing of it happens until `resume`."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; gone and reaped when this returns."""
        self.signal(signal.SIGKILL)
        self.child.wait(10)

    def exit_status(self, *, within_s: float) -> int:
        """Its exit status; a failure that shows its log where it has not ended in time."""
        status = self.child.wait(within_s)
        if status is None:
            pytest.fail(f"{self.name} has not ended within {within_s:g} s; its log:\n{self.tail()}")
        return status

    def tail(self) -> str:
        return self.log_text()[-LOG_SHOWN_CHARS:]


@dataclass(slots=True)
class Fleet:
    """The Workers of one test, on one store; behind its `with` none of them is left."""

    url: str
    folder: Path
    ttl_s: float = 1.0
    grace_s: float = 5.0
    slots: int = 2
    members: list[Member] = field(default_factory=list)

    def start(
        self,
        name: str | None = None,
        *,
        slots: int | None = None,
        ttl_s: float | None = None,
        grace_s: float | None = None,
        program: tuple[str, ...] = ("-m", "treadle.worker.cli"),
        arguments: tuple[str, ...] = (),
        **environment: str,
    ) -> Member:
        """One Worker more; it may not be ready yet."""
        name = name or f"w{len(self.members) + 1}"
        argv = [sys.executable, *program, "run", "--handlers", "fleet_handlers"]
        argv += ["--app-dir", str(TESTS), "--name", name, "--slots", str(self.slots if slots is None else slots)]
        child, log = self.run([*argv, *arguments], ttl_s=ttl_s, grace_s=grace_s, **environment)
        self.members.append(Member(name, child, log))
        return self.members[-1]

    def run(
        self, argv: list[str], *, ttl_s: float | None = None, grace_s: float | None = None, **environment: str
    ) -> tuple[Child, Path]:
        """Start any program as a Worker is started: its own folder, none of the tester's own settings."""
        evidence = self.folder / "evidence"
        evidence.mkdir(exist_ok=True)
        settings = {
            "TREADLE_URL": self.url,
            "TREADLE_LEASE_TTL_S": f"{self.ttl_s if ttl_s is None else ttl_s:g}",
            "TREADLE_GRACE_S": f"{self.grace_s if grace_s is None else grace_s:g}",
            "FLEET_EVIDENCE": str(evidence),
            "XDG_RUNTIME_DIR": str(self.folder),
            **environment,
        }
        env = {key: value for key, value in os.environ.items() if not key.startswith("TREADLE_")} | settings
        log = self.folder / f"{len(list(self.folder.glob('*.log'))):03}.log"
        with log.open("wb") as output:
            return spawn(argv, env=env, cwd=self.folder, stdout=output, stderr=output), log

    async def ready(self, *members: Member) -> None:
        """Return when their sessions are open (all of them: none is named)."""
        for member in members or self.members:
            await until(
                lambda member=member: member.said("session [0-9]+ is open"),  # type: ignore[misc]
                description=f"{member.name} has opened a session",
                of=(member,),
            )

    def lines(self, item: str | None = None, what: str | None = None, worker: str | None = None) -> list[Line]:
        """What the runs wrote down, in order of time; a torn last line, as a kill may leave one, is passed over."""
        found = [
            Line.read(raw)
            for file in (self.folder / "evidence").glob("*.jsonl")
            for raw in file.read_bytes().split(b"\n")[:-1]
        ]
        wanted = {"item": item, "what": what, "worker": worker}
        return sorted(
            (line for line in found if all(value in (None, getattr(line, key)) for key, value in wanted.items())),
            key=lambda line: line.at_s,
        )

    def alive(self) -> list[Member]:
        return [member for member in self.members if member.child.poll() is None]

    def tell(self) -> str:
        """The logs of all, for a failure's message."""
        return "\n".join(f"--- {member.name} (pid {member.child.pid})\n{member.tail()}" for member in self.members)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.alive():
            member.kill()


async def until(
    predicate: Callable[[], Any],
    *,
    description: str,
    timeout_s: float = 30.0,
    of: tuple[Member, ...] = (),
) -> Any:
    """What `predicate` gives, awaited where it must be, as soon as it is true; else fails, with the logs `of` Workers."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = predicate()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            logs = "".join(f"\n--- {member.name}\n{member.tail()}" for member in of)
            pytest.fail(f"not within {timeout_s:g} s: {description}{logs}")
        await anyio.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a test stands: it submits, and reads the store."""

    url: str
    client: Client
    store: Store

    async def submit(self, id: str, *work: WorkSpec, **fields: Any) -> Mission:
        return await self.client.submit(MissionSpec(id=id, objective=f"system test {id}", work=list(work), **fields))

    async def log(self, mission: str) -> list[Event]:
        """The whole log of a Mission's Group."""
        return await whole_log(self.store, mission)

    async def of_kind(self, mission: str, kind: EventKind, item: str | None = None) -> list[Event]:
        """Its Events of one kind, of one item where that is named."""
        wanted = None if item is None else ItemId(token(item, field="item"))
        return [event for event in await self.log(mission) if event.kind is kind and wanted in (None, event.item)]


@asynccontextmanager
async def at_desk(url: str) -> AsyncIterator[Desk]:
    async with Client.connect(url, actor="ann") as client:
        store = await Store.connect(url)
        try:
            yield Desk(url, client, store)
        finally:
            await store.aclose()


async def whole_log(store: Store, mission: str) -> list[Event]:
    group = GroupId(token(mission, field="mission"))
    events: list[Event] = []
    while page := await store.read_log(group, after=events[-1].seq if events else 0):
        events += page
    return events


def chain(
    id: str,
    *,
    steps: int = 5,
    step_s: float = 0.1,
    again_s: float | None = None,
    after: Sequence[str] = (),
    **fields: Any,
) -> WorkSpec:
    """An item of `fleet_handlers.chain`; from its second attempt on its steps take `again_s`."""
    inputs = {"steps": steps, "pace_s": step_s, "again_s": step_s if again_s is None else again_s}
    return WorkSpec(id=id, capability="fleet.chain", inputs=inputs, after=list(after), **fields)


def asker(id: str, **fields: Any) -> WorkSpec:
    """An item of `fleet_handlers.ask`: it saves, asks, and gives what it was answered."""
    return WorkSpec(id=id, capability="fleet.ask", inputs={}, **fields)


def sleeper(id: str, sleep_s: float, *, again_s: float | None = None, **fields: Any) -> WorkSpec:
    """An item of `fleet_handlers.sleep`: no safe point before its end."""
    inputs = {"pace_s": sleep_s, "again_s": sleep_s if again_s is None else again_s}
    return WorkSpec(id=id, capability="fleet.sleep", inputs=inputs, **fields)
