"""Following Missions until they end, through a server that goes away and comes back; what is seen goes to a display.

It reads the store each moment and waits for nothing else, so that it can be stopped at any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
from treadle.shared.errors import StoreChanged, Unavailable
from treadle.shared.facts import Progress, RunFacts, WorkerFacts
from treadle.shared.lifecycle import TERMINAL_MISSIONS
from treadle.shared.model import GroupId
from treadle.shared.names import name_of
from treadle.shared.store import Store, pictures
from treadle.shared.store.underway import underway

from ..core.figures import Frame, Pace

LOOK_EACH_S = 0.5
WORKERS_EACH_S = 2.0
RUNS_EACH_S = 1.0
SEARCH_EACH_S = 2.0
"""How often new Missions are looked for: that reads the names of all that the store has, ended ones too."""
MANY, MANY_EACH_S = 200, 2.0
"""More Missions than this are looked at less often."""
WATCHED_MAX = 1_000


class Display(Protocol):
    """Where frames go."""

    def show(self, frame: Frame) -> None: ...

    def away(self, why: str, since_s: float) -> None:
        """The store does not answer, for so long by now; what was shown last is still the last that is known."""
        ...

    def back(self, after_s: float) -> None: ...


@dataclass(frozen=True, slots=True)
class End:
    """How a watch ended."""

    frame: Frame | None
    """The last look; None where there was none."""
    timed_out: bool = False


async def follow(
    store: Store,
    named: Sequence[GroupId] | None,
    display: Display,
    *,
    timeout_s: float | None = None,
    stay: bool = False,
) -> End:
    """Show the named Missions (None: all that are active, and those that come) until all of them have ended.

    With `stay` it goes on when none is left. At the time-out it returns what it saw last.
    """
    watch = _Watch(store, named)
    with anyio.move_on_after(timeout_s):
        while True:
            if await watch.look(display):
                frame = watch.frame
                assert frame is not None
                # An account's standing Mission never ends: one that nobody named is no reason to stay.
                if frame.is_over(idle_too=named is None) and not stay:
                    if watch.has_searched:
                        return End(frame)
                    watch.search()
                    continue
            few = watch.frame is None or len(watch.frame.missions) <= MANY
            await anyio.sleep(LOOK_EACH_S if few else MANY_EACH_S)
    return End(watch.frame, timed_out=True)


async def glance(store: Store, named: Sequence[GroupId] | None) -> Frame:
    """One look at the named Missions (None: all that are active); Unavailable where the store does not answer."""
    return await _Watch(store, named).read(anyio.current_time())


class _Watch:
    def __init__(self, store: Store, named: Sequence[GroupId] | None) -> None:
        self.frame: Frame | None = None
        self._store, self._named = store, named
        self._seen: dict[GroupId, Progress] = {}
        self._gone: dict[str, None] = {}
        self._pace = Pace()
        self._workers: list[WorkerFacts] = []
        self._workers_at_s = -math.inf
        self._searched_at_s = self._looked_at_s = -math.inf
        self._runs: list[RunFacts] = []
        self._runs_at_s = -math.inf
        self._away_since_s: float | None = None
        self._other_server = False

    @property
    def has_searched(self) -> bool:
        """Whether the last look would have found a Mission that is new."""
        return self._named is not None or self._searched_at_s == self._looked_at_s

    def search(self) -> None:
        """Has the next look search for new Missions."""
        self._searched_at_s = -math.inf

    async def look(self, display: Display) -> bool:
        """One look, shown; False where the store does not answer now."""
        now_s = anyio.current_time()
        try:
            if self._other_server:
                await self._store.adopt()
                self._other_server = False
            self.frame = await self.read(now_s)
        except (Unavailable, StoreChanged) as problem:
            self._other_server = self._other_server or isinstance(problem, StoreChanged)
            if self._away_since_s is None:
                self._away_since_s = now_s
            display.away(str(problem), anyio.current_time() - self._away_since_s)
            return False
        if self._away_since_s is not None:
            display.back(anyio.current_time() - self._away_since_s)
            self._away_since_s = None
        display.show(self.frame)
        return True

    async def read(self, now_s: float) -> Frame:
        found: dict[GroupId, Progress] = {}
        self._looked_at_s = now_s
        if self._named is None and now_s - self._searched_at_s >= SEARCH_EACH_S:
            found = {one.group: one for one in await pictures.progress(self._store, most=WATCHED_MAX)}
            self._searched_at_s = now_s
        known = self._seen if self._named is None else self._named
        # What has just ended is not among the active ones any more: one look more, its last.
        again = [group for group in known if group not in found and not _is_over(self._seen.get(group))]
        found |= {one.group: one for one in await pictures.progress(self._store, again)}
        gone = [group for group in again if group not in found]
        self._gone |= dict.fromkeys(name_of(group) for group in gone)
        if now_s - self._workers_at_s >= WORKERS_EACH_S:
            now_ms, listed = await pictures.workers(self._store)
            self._workers = [one for one in listed if not one.is_silent(now_ms)]
            self._workers_at_s = now_s
        now_ms = await self._store.now_ms()
        seen = self._seen | found
        self._seen = {group: seen[group] for group in list(seen)[-WATCHED_MAX:] if group not in gone}
        missions = tuple(self._seen.values())
        rates = tuple(self._pace.see(one, now_ms) for one in missions)
        runs = await self._read_runs(now_s, [one.group for one in missions if one.running])
        return Frame(now_ms, missions, rates, len(self._workers), tuple(self._gone), runs)

    async def _read_runs(self, now_s: float, groups: Sequence[GroupId]) -> tuple[RunFacts, ...]:
        """What runs, as of a second ago at most."""
        if now_s - self._runs_at_s >= RUNS_EACH_S:
            self._runs = await underway(self._store, groups, self._workers)
            self._runs_at_s = now_s
        return tuple(one for one in self._runs if one.group in groups)


def _is_over(one: Progress | None) -> bool:
    return one is not None and one.state in TERMINAL_MISSIONS
