"""The figures that people are shown: how fast it goes, how full a Worker is, one line of progress. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from treadle.shared.facts import Progress, RunFacts, WorkerFacts
from treadle.shared.lifecycle import TERMINAL_MISSIONS
from treadle.shared.model import GroupId, MissionState

from .readable import safe, span

RATE_OVER_MS = 15_000


@dataclass(slots=True)
class Pace:
    """How many items a Mission finishes in a second, over the last seconds."""

    _seen: dict[GroupId, deque[tuple[int, int]]] = field(default_factory=dict)

    def see(self, one: Progress, now_ms: int) -> float | None:
        """The rate after this look; None while there is too little to say."""
        looks = self._seen.setdefault(one.group, deque())
        looks.append((now_ms, one.ended))
        while len(looks) > 2 and looks[1][0] <= now_ms - RATE_OVER_MS:
            looks.popleft()
        (from_ms, before), (to_ms, after) = looks[0], looks[-1]
        return (after - before) * 1000 / (to_ms - from_ms) if to_ms - from_ms >= 500 else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at what is watched."""

    at_ms: int
    """The store's time."""
    missions: tuple[Progress, ...]
    rates: tuple[float | None, ...]
    workers: int
    """Live ones."""
    gone: tuple[str, ...] = ()
    """Missions that were watched and are not in the store any more."""
    runs: tuple[RunFacts, ...] = ()
    """What runs of them."""

    @property
    def is_deserted(self) -> bool:
        """Whether nobody is there to do what there is to do."""
        return not self.workers and any(one.state not in TERMINAL_MISSIONS for one in self.missions)

    def is_over(self, *, idle_too: bool) -> bool:
        """Whether all have ended; with `idle_too` one that is open and has nothing to do counts as ended."""
        return all(
            one.state in TERMINAL_MISSIONS or (idle_too and one.is_open and one.ended == one.total)
            for one in self.missions
        )


def line(one: Progress, rate: float | None) -> str:
    """How far a Mission is, in one line."""
    parts = [f"{one.verified}/{one.total} verified", f"{one.running} running", f"{one.waiting} waiting"]
    parts.append(f"{one.failed} failed")
    if one.cancelled:
        parts.append(f"{one.cancelled} cancelled")
    if rate and one.state not in TERMINAL_MISSIONS:
        parts.append(f"{pace(rate)}")
    return f"{safe(one.mission)}  {one.state}  {', '.join(parts)}"


def run_line(one: RunFacts, now_ms: int) -> str:
    """A run in one line: how far it says it is; of one that says nothing, since when it runs, and where."""
    return f"{safe(one.mission)}/{safe(one.item)}  {safe(one.progress.words()) if one.progress else quiet(one, now_ms)}"


def quiet(one: RunFacts, now_ms: int) -> str:
    """What is known of a run that says nothing."""
    again = f", attempt {one.attempt}" if one.attempt > 1 else ""
    return f"runs since {span(max(0, now_ms - one.started_ms))} on {safe(one.worker)}{again}"


def run_fields(one: RunFacts) -> dict[str, object]:
    """A run as programs read it; what it said is null where it said nothing."""
    about: dict[str, object] = {"item": one.item, "attempt": one.attempt}
    about |= {"worker": one.worker, "started_ms": one.started_ms}
    said = one.progress
    if said is None:
        return {**about, "done": None, "total": None, "phase": None, "note": None, "milestones": []}
    told: dict[str, object] = {"done": said.done, "total": said.total, "phase": said.phase, "note": said.note}
    return {**about, **told, "milestones": list(said.milestones)}


def pace(rate: float | None) -> str:
    """A rate for people: items a second, or a minute where it is slow; '' where nothing moves."""
    if not rate:
        return ""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 0.5 else f"{rate * 60:.1f}/min"


def left(one: Progress, rate: float | None) -> str:
    """How long it goes on at this rate; '' where nobody knows."""
    if not rate or one.is_open or one.state in TERMINAL_MISSIONS:
        return ""
    return span((one.total - one.ended) * 1000 / rate)


def is_well(missions: Iterable[Progress]) -> bool:
    """Whether every Mission that has ended was approved."""
    return all(one.state not in TERMINAL_MISSIONS or one.state is MissionState.APPROVED for one in missions)


def presence(one: WorkerFacts, running: int | None, now_ms: int) -> str:
    """How full a Worker is, coarsely (R39): what it runs, and for whom, is nobody's but theirs.

    `running`: the slots that it runs something in; None where nobody looked.
    """
    if running is None or one.is_silent(now_ms):
        return "unknown"
    return "idle" if running == 0 else "busy" if running >= one.slots else "partly"
