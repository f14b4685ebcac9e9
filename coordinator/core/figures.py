"""The figures that people are shown: shares against weights, how fast it goes, one line of progress. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from treadle.shared.facts import GroupFacts, Progress
from treadle.shared.lifecycle import TERMINAL_MISSIONS
from treadle.shared.model import GroupId, MissionState

from .readable import safe, span

RATE_OVER_MS = 15_000
ENDED = ("ended", "cancelled")
"""States of a Group whose Mission has ended."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of its account's service: what this Group has had, and what its weight gives it while all of them have work."""

    used: float | None
    """None: its account's Groups have had nothing yet."""
    due: float


def shares(groups: Sequence[GroupFacts]) -> list[Share]:
    """The share of each Group, in their order, among those of its account that have not ended."""
    found: list[Share] = []
    for one in groups:
        rivals = [other for other in groups if other.account == one.account and other.state not in ENDED]
        if one not in rivals:
            rivals.append(one)
        used_ms = sum(other.used_ms for other in rivals)
        weight = sum(other.weight for other in rivals)
        found.append(Share(one.used_ms / used_ms if used_ms else None, one.weight / weight))
    return found


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
