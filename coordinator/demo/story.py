"""The demo as it happens: a server, Workers, two Missions, one kill, the reports; the figures are made afterwards."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
from treadle.shared.errors import TreadleError, is_group
from treadle.shared.model import AgentId, Event, EventKind, GroupId
from treadle.shared.names import token
from treadle.shared.settings import Settings
from treadle.shared.store import Store
from treadle.shared.store.embedded import EmbeddedServer

from ..client import Client, Mission
from ..core.figures import Frame, Pace
from ..specs import MissionSpec, WorkSpec
from . import evidence
from .shards import Listing, deal
from .workers import Crew

WEIGHTS = {"index": 1, "audit": 3}
ACCOUNT = "demo"
PREFIX = "treadle"
SECOND_AFTER = 0.25
"""The second Mission comes when so much of the first is verified."""
START_BY_S = 10
"""What a killed Worker had accepted and not started is offered again after so long."""
LOOK_EACH_S = 0.03
SAY_EACH_S, SHOW_EACH_S = 0.5, 0.2
CHOOSY_S = 3.0
STALLED_AFTER_S = 60.0
RESULTS_WITHIN_S = 30.0
OVER = frozenset({EventKind.MISSION_APPROVED, EventKind.MISSION_TERMINATED})
READ_AT_ONCE = 1000


class StalledError(TreadleError):
    """Nothing happened for too long."""


class SignalledError(Exception):
    """A signal asked the demo to end; everything it started has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of one demo."""

    listing: Listing
    workers: int
    slots: int
    ttl_s: float
    keep_in: Path | None = None
    """Where evidence and logs are left; None: in the server's folder, which goes with this process."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is left of one demo: the reports, the logs, and what Workers and operating system say."""

    reports: dict[str, Any]
    logs: dict[str, list[Event]]
    lines: list[evidence.Processed]
    ends: list[evidence.WorkerEnd]
    why_no_kill: str = ""


@dataclass(slots=True)
class _Watched:
    """The logs as far as they have been read, to decide when to act; no figure comes from here."""

    logs: dict[str, list[Event]] = field(default_factory=lambda: {name: [] for name in WEIGHTS})
    news: int = 0

    def is_over(self, name: str) -> bool:
        return any(event.kind in OVER for event in self.logs[name])

    def has_started(self, name: str) -> bool:
        return any(event.kind is EventKind.STARTED for event in self.logs[name])

    def verified(self, name: str) -> float:
        states = evidence.states_of(self.logs[name])
        return sum(state == "verified" for state in states.values()) / max(1, len(states))


def run(plan: Plan, say: Callable[[str], None], show: Callable[[Frame], None] | None = None) -> Told:
    """The distributed part, whole; nothing it started is left when it returns or raises. SignalledError on a signal.

    How far it is goes to `show`, several times a second, else to `say`, as lines.
    """
    try:
        return anyio.run(_until_a_signal, plan, say, show)
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _first(error: BaseException) -> BaseException:
    """The first error inside a group of errors, one that speaks to the user before any other."""
    if not is_group(error):
        return error
    leaves = [_first(one) for one in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, TreadleError)), leaves[0])


async def _until_a_signal(plan: Plan, say: Callable[[str], None], show: Callable[[Frame], None] | None) -> Told:
    caught = 0
    told: Told | None = None

    async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        nonlocal caught
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                caught = caught or number
                work.cancel()

    async with anyio.create_task_group() as group:
        work = anyio.CancelScope()
        await group.start(listen)
        with work:
            told = await _tell(plan, say, show)
        group.cancel_scope.cancel()
    if told is None:
        raise SignalledError(caught)
    return told


async def _tell(plan: Plan, say: Callable[[str], None], show: Callable[[Frame], None] | None) -> Told:
    async with (
        EmbeddedServer() as server,
        _store(server.url) as store,
        Client.connect(server.url, prefix=PREFIX) as client,
    ):
        say(f"server ready at {server.url}")
        watched = _Watched()
        folder = plan.keep_in or server.folder / "demo"
        folder.mkdir(exist_ok=True)
        async with Crew(server.url, folder, plan.slots, plan.ttl_s, say) as crew:
            for _ in range(plan.workers):
                crew.start()
            say(f"Workers: {plan.workers}, slots of each: {plan.slots}, lease TTL: {plan.ttl_s:g} s")
            missions: dict[str, Mission] = {}
            why_no_kill = ""
            async with anyio.create_task_group() as group:
                if show is None:
                    group.start_soon(_report_progress, watched, crew, say)
                else:
                    group.start_soon(_show_progress, watched, crew, show)
                group.start_soon(_follow, store, watched)
                missions["index"] = await _submit(client, "index", plan.listing, say)
                await _until(
                    watched, crew, lambda: watched.verified("index") >= SECOND_AFTER or watched.is_over("index")
                )
                missions["audit"] = await _submit(client, "audit", plan.listing, say)
                why_no_kill = await _kill_one(store, watched, crew, plan, say)
                await _until(watched, crew, lambda: all(watched.is_over(name) for name in WEIGHTS))
                group.cancel_scope.cancel()
            reports: dict[str, Any] = {}
            for name, mission in missions.items():
                reports[name] = (await mission.results(timeout=RESULTS_WITHIN_S))["merge"]
            say("both Missions are done; stopping the Workers")
        logs = {name: await _whole_log(store, name) for name in WEIGHTS}
        told = Told(reports, logs, crew.evidence(), crew.ends, why_no_kill)
        _leave(told, folder)
        return told


@asynccontextmanager
async def _store(url: str) -> AsyncGenerator[Store]:
    store = await Store.connect(url, prefix=PREFIX, partitions=Settings(url=url, prefix=PREFIX).partitions)
    try:
        yield store
    finally:
        await store.aclose()


def _group(name: str) -> GroupId:
    return GroupId(token(name, field="mission"))


async def _submit(client: Client, name: str, listing: Listing, say: Callable[[str], None]) -> Mission:
    work = [
        WorkSpec(
            id=f"shard-{number:02}",
            capability=f"demo.{name}",
            inputs={"root": str(listing.root), "files": list(files)},
            start_by_s=START_BY_S,
        )
        for number, files in enumerate(deal(listing.files), start=1)
    ]
    merge = WorkSpec(id="merge", capability=f"demo.{name}.merge", after=[one.id for one in work], start_by_s=START_BY_S)
    spec = MissionSpec(
        id=name,
        objective=f"{name} of {len(listing.files)} Python files",
        account=ACCOUNT,
        weight=WEIGHTS[name],
        work=[*work, merge],
    )
    mission = await client.submit(spec)
    say(f"Mission {name!r} submitted: weight {WEIGHTS[name]}, {len(work)} shards and a merge")
    return mission


async def _follow(store: Store, watched: _Watched) -> None:
    """Read on in both logs. Looking, not waiting: a blocking read would keep this connection from the demo's own calls."""
    while True:
        for name, log in watched.logs.items():
            events = await store.read_log(_group(name), after=log[-1].seq if log else 0, count=READ_AT_ONCE)
            log.extend(events)
            watched.news += len(events)
        await anyio.sleep(LOOK_EACH_S)


async def _until(watched: _Watched, crew: Crew, is_reached: Callable[[], bool]) -> None:
    """Wait for what the logs will show; WorkersGoneError where none is left to do it, StalledError where none comes."""
    seen, since = -1, time.monotonic()
    patience_s = STALLED_AFTER_S + 2 * crew.ttl_s
    while True:
        if watched.news != seen:
            seen, since = watched.news, time.monotonic()
            if is_reached():
                return
        crew.mourn()
        if time.monotonic() - since > patience_s:
            raise StalledError(f"no Event for {patience_s:.0f} s; `--keep` keeps the Workers' logs, look there")
        await anyio.sleep(LOOK_EACH_S)


async def _kill_one(store: Store, watched: _Watched, crew: Crew, plan: Plan, say: Callable[[str], None]) -> str:
    """Kill one Worker in the middle of a shard while both Missions run; '' or why there was none to kill."""
    choosy_until = time.monotonic() + CHOOSY_S
    while True:

        def candidates() -> list[AgentId]:
            are_choosy = plan.workers > 1 and time.monotonic() < choosy_until and not watched.is_over("index")
            return _victims(watched, crew, are_choosy=are_choosy)

        await _until(watched, crew, lambda: _all_over(watched) or bool(candidates()))
        if _all_over(watched):
            return "the work was done before a Worker was in the middle of a shard; give it a larger --path"
        victim = next(iter(candidates()), None)
        if victim is None or not crew.pause(victim):
            continue
        # Stopped, it writes no more, and what it had sent is in the log by the second call: so it holds this now.
        await store.now_ms()
        logs = [await _whole_log(store, name) for name in WEIGHTS]
        if victim not in evidence.holders(logs, crew.alive):
            crew.resume(victim)
            await anyio.sleep(LOOK_EACH_S)
            continue
        pid = crew.pid_of(victim)
        await crew.kill(victim, at_ms=await store.now_ms())
        say(f"SIGKILL to {victim} (pid {pid}) in the middle of a shard; its leases lapse within {plan.ttl_s:g} s")
        if plan.workers == 1:
            say(f"it was the only Worker, so {crew.start()} takes its place")
        return ""


def _all_over(watched: _Watched) -> bool:
    return all(watched.is_over(name) for name in WEIGHTS)


def _victims(watched: _Watched, crew: Crew, *, are_choosy: bool) -> list[AgentId]:
    """Who may be killed: whoever is in the middle of a shard, once the second Mission runs (or the first is done).

    Choosy: with shards of the second Mission only. What is cut of the first, whose share is small, would wait for its turn
    after the lease has lapsed, and the time to resumption would tell more of fairness than of recovery.
    """
    first, second = watched.logs["index"], watched.logs["audit"]
    if not (watched.has_started("audit") or watched.is_over("index")):
        return []
    if are_choosy:
        return evidence.holders([second], crew.alive - evidence.running(first))
    return evidence.holders([first, second], crew.alive)


async def _report_progress(watched: _Watched, crew: Crew, say: Callable[[str], None]) -> None:
    said = ""
    while True:
        await anyio.sleep(SAY_EACH_S)
        line = evidence.progress_line(watched.logs, crew.alive, slots_each=crew.slots)
        if line != said:
            say(line)
            said = line


async def _show_progress(watched: _Watched, crew: Crew, show: Callable[[Frame], None]) -> None:
    paces = Pace()
    while True:
        missions = evidence.progress(watched.logs, crew.alive)
        at_ms = int(time.monotonic() * 1000)
        show(Frame(at_ms, missions, tuple(paces.see(one, at_ms) for one in missions), len(crew.alive)))
        await anyio.sleep(SHOW_EACH_S)


async def _whole_log(store: Store, name: str) -> list[Event]:
    log: list[Event] = []
    while events := await store.read_log(_group(name), after=log[-1].seq if log else 0, count=READ_AT_ONCE):
        log.extend(events)
    return log


def _leave(told: Told, folder: Path) -> None:
    """Write the Group logs and the Workers' ends beside the evidence, one JSON line each."""
    for name, log in told.logs.items():
        rows = [asdict(event) | {"payload": event.payload.hex()} for event in log]
        (folder / f"log-{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "workers.jsonl").write_text("".join(json.dumps(asdict(end)) + "\n" for end in told.ends))
