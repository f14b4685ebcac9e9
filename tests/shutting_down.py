"""One Worker for each way to tell it to end, all in one state: how each ended, how long it took, what became of its work."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import anyio
from draining import begin_to_drain
from fleet import Desk, Fleet, Member, chain, sleeper, until
from treadle.coordinator import WorkSpec
from treadle.shared.model import EventKind

K = EventKind
WITHIN_S = 40.0


class How(StrEnum):
    """What tells a Worker to end."""

    SIGTERM = "SIGTERM"
    TWICE = "SIGTERM twice"
    SIGINT = "SIGINT"
    DRAIN = "drain"


class Fate(StrEnum):
    """What has become of a Worker's one item when it has ended."""

    NONE = "nothing ran"
    DONE = "done"
    CHECKPOINTED = "given back at its checkpoint"
    RELEASED = "given back"
    HELD = "held until its lease is over"


@dataclass(frozen=True, slots=True)
class Ending:
    """How one Worker ended."""

    status: int
    fate: Fate
    took_s: float


def threaded(id: str) -> WorkSpec:
    return WorkSpec(id=id, capability="fleet.thread", inputs={"steps": 1, "pace_s": 3_600.0})


STATES: dict[str, Callable[[str], WorkSpec] | None] = {
    "idle": None,
    "a handler with safe points": lambda id: chain(id, steps=1_000, step_s=0.5),
    "async, without a safe point": lambda id: sleeper(id, 3_600.0),
    "plain function, without one": threaded,
    "the event loop is blocked": lambda id: WorkSpec(id=id, capability="fleet.block", inputs={"block_s": 3_600.0}),
    "its end takes longer than the lease": lambda id: sleeper(id, 6.0),
}
IMPATIENT = ("-c", "import treadle.worker.cli as cli; cli.END_S = 1.0; cli.main()")
"""What gives a handler that blocks the loop up 1 s after the grace and the lease, not 10."""


async def endings(fleet: Fleet, desk: Desk, work: Callable[[str], WorkSpec] | None) -> dict[How, Ending]:
    """Each Worker works for a Mission of its own; all are told at once, and waited for."""
    members = {how: fleet.start(name_of(how), program=IMPATIENT, arguments=("--groups", name_of(how))) for how in How}
    await fleet.ready()
    if work is not None:
        for how in How:
            await desk.submit(name_of(how), work("a"))
        for how in How:
            await until(
                lambda how=how: [line for line in fleet.lines("a", "begin") if line.mission == name_of(how)],  # type: ignore[misc]
                description=f"that of {how} runs",
                of=tuple(members.values()),
            )
    found: dict[How, Ending] = {}
    statuses = await told(fleet, members)
    for how, (status, took_s) in statuses.items():
        fate = Fate.NONE if work is None else await fate_of(desk, name_of(how))
        found[how] = Ending(status, fate, took_s)
    return found


async def told(fleet: Fleet, members: dict[How, Member]) -> dict[How, tuple[int, float]]:
    """Tells each to end, all at once; the exit status of each, and how many seconds it took from what told it last."""
    found: dict[How, tuple[int, float]] = {}

    async def tell(how: How, member: Member) -> None:
        began_s = await _tell(fleet, how, member)
        await until(
            lambda: member.child.poll() is not None, description=f"{how} ends it", timeout_s=WITHIN_S, of=(member,)
        )
        found[how] = (member.child.wait(0) or 0, time.monotonic() - began_s)

    async with anyio.create_task_group() as tasks:
        for how, member in members.items():
            tasks.start_soon(tell, how, member)
    return {how: found[how] for how in members}


async def _tell(fleet: Fleet, how: How, member: Member) -> float:
    """When it was told, of this machine's monotonic clock."""
    if how is How.DRAIN:
        child = begin_to_drain(fleet, "--name", member.name)
        await until(lambda: child.poll() is not None, description="it was asked")
        assert child.poll() == 0
        return time.monotonic()
    member.signal(signal.SIGINT if how is How.SIGINT else signal.SIGTERM)
    if how is How.TWICE:
        await until(lambda: not is_pending(member), description="the first was taken")
        if member.child.poll() is None:
            member.signal(signal.SIGTERM)
    return time.monotonic()


def is_pending(member: Member) -> bool:
    """Whether a SIGTERM was sent and not yet taken by the process: two at once would be one."""
    try:
        status = Path(f"/proc/{member.child.pid}/status").read_text()
    except OSError:
        return False
    (line,) = re.findall(r"^ShdPnd:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(line, 16) >> (signal.SIGTERM - 1) & 1)


async def fate_of(desk: Desk, mission: str) -> Fate:
    """By the log, as it stands now: nobody else works for that Mission."""
    kinds = [event.kind for event in await desk.log(mission)]
    assert K.FAILED not in kinds
    if K.LAPSED in kinds:
        return Fate.HELD
    for kind, fate in (
        (K.RESULT_ACCEPTED, Fate.DONE),
        (K.CHECKPOINTED, Fate.CHECKPOINTED),
        (K.RELEASED, Fate.RELEASED),
    ):
        if kind in kinds:
            return fate
    return Fate.HELD


def name_of(how: How) -> str:
    return how.value.lower().replace(" ", "-")


def row_of(state: str, found: dict[How, Ending]) -> str:
    """A line of the table in docs/operations.md."""
    cells = [f"{one.status}, {one.fate}, {one.took_s:.2f} s" for one in found.values()]
    return f"| {state} | {' | '.join(cells)} |"


def heading(hows: Sequence[How] = tuple(How)) -> str:
    return f"| | {' | '.join(hows)} |\n| --- |{' --- |' * len(hows)}"
