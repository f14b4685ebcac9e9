"""Letting time pass until nothing is left to do, or until so many handlers have run."""

from __future__ import annotations

import asyncio

from ..answers import ItemView, MissionView
from ..errors import Misuse
from ..lifecycle import TERMINAL_MISSIONS
from ..model import ItemState
from ..names import name_of
from ..store import Store
from .kit import PARTITIONS, PREFIX, Kit
from .wires import NetworkEndpoint

WITHIN_S = 600.0
WITHIN_S_MAX = 86_400.0 * 366
RUNS_MAX = 1_000_000
LOOK_S, LOOK_S_MAX = 0.05, 1.0
MISSIONS_MAX = 10_000
REASONS_SHOWN = 10


class NotIdle(AssertionError):
    """The bound of virtual time is over, and something still waits. Its text says what, and who could do it."""


class Runner:
    """What `run_until_idle` and `run_at_most` do."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._store: Store | None = None

    async def until_idle(self, *, within_s: float = WITHIN_S) -> float:
        """Let virtual time pass until nothing is left that can happen by itself; give the seconds that passed.

        Idle: every Mission has ended (of one that still grows, and of one-off jobs, every WorkItem), no handler runs,
        nobody is paused. What is parked, and what waits for it, is not waited for. NotIdle after `within_s` virtual
        seconds (default 600).
        """
        return (await self._run(None, within_s))[0]

    async def at_most(self, runs: int, *, within_s: float = WITHIN_S) -> int:
        """Let at most `runs` handler runs begin, and end; give how many began. Returns before that when all is idle.

        From then on no further run begins until the next run_until_idle or run_at_most: one that is due waits, with its
        lease, just before its handler is called. NotIdle after `within_s` virtual seconds (default 600).
        """
        if isinstance(runs, bool) or not isinstance(runs, int) or not 0 <= runs <= RUNS_MAX:
            raise Misuse(f"run_at_most: {runs!r} is no number of handler runs, must be an int of 0 to {RUNS_MAX}")
        return (await self._run(runs, within_s))[1]

    async def _run(self, most: int | None, within_s: float) -> tuple[float, int]:
        kit = self._kit
        if isinstance(within_s, bool) or not isinstance(within_s, int | float) or not 0 < within_s <= WITHIN_S_MAX:
            raise Misuse(f"within_s: {within_s!r}, must be a number of seconds above 0, at most {WITHIN_S_MAX:.0f}")
        if asyncio.get_running_loop() is not kit.loop:
            raise Misuse("run_until_idle, run_at_most: await them in the test itself, not in a fixture of another loop")
        begun_s, first = kit.loop.time(), kit.gate.begun
        kit.gate.open(most)
        while True:
            kit.raise_broken()
            passed_s, runs = kit.loop.time() - begun_s, kit.gate.begun - first
            if not kit.running and ((most is not None and runs >= most) or not await self._waiting()):
                return passed_s, runs
            if passed_s >= within_s:
                raise NotIdle(await self._complaint(within_s))
            await asyncio.sleep(min(LOOK_S_MAX, LOOK_S + passed_s / 20, within_s - passed_s))

    async def _opened(self) -> Store:
        if self._store is None:
            onlooker = self._kit.loop.process("onlooker")
            self._kit.network.unnoted.add(onlooker)
            endpoint = NetworkEndpoint(self._kit.network, onlooker)
            self._store = await Store.connect(endpoint, prefix=PREFIX, partitions=PARTITIONS)
        return self._store

    async def _waiting(self) -> list[str]:
        """What can still happen by itself; an empty list when all is idle."""
        kit = self._kit
        found = [f"Worker {seat.shown}" for seat in kit.workers if seat.is_alive and seat.process.is_paused]
        found += [f"{run} runs" for run in kit.running]
        if found:
            return found
        store = await self._opened()
        for mission in await store.missions(most=MISSIONS_MAX):
            if mission.state not in TERMINAL_MISSIONS:
                found += await self._waiting_of(store, mission)
                if len(found) > REASONS_SHOWN:
                    break
        return found

    async def _waiting_of(self, store: Store, mission: MissionView) -> list[str]:
        items = await store.items(mission.group)
        # Of what waits for one of these, nothing is known to happen by itself; of what does not, it is listed all the same.
        stuck = any(item.held or (item.has_ended and item.state is not ItemState.VERIFIED) for item in items)
        left = [item for item in items if not item.has_ended]
        parked = any(item.held for item in left)
        waiting = [item for item in left if not item.held and not (stuck and item.dependencies_left)]
        if waiting:
            return [self._reason(mission, item) for item in waiting]
        return [] if parked or mission.is_open else [f"mission {mission.mission!r}: its end"]

    def _reason(self, mission: MissionView, item: ItemView) -> str:
        text = f"{mission.mission}/{name_of(item.item)}: {item.state}"
        left_s = item.next_ms / 1000 - self._kit.loop.wall_time()
        if item.next_ms and left_s > 0:
            return f"{text}, due in {left_s:.1f} s"
        if item.dependencies_left:
            return f"{text}, waits for {item.dependencies_left} other(s)"
        capability = str(item.capability)
        if not any(capability in seat.capabilities for seat in self._kit.workers if seat.is_alive):
            return f"{text}, needs {capability!r}, which no Worker that is alive offers"
        return f"{text}, needs {capability!r}"

    async def _complaint(self, within_s: float) -> str:
        waiting = await self._waiting()
        workers = ", ".join(seat.shown for seat in self._kit.workers) or "none was started"
        more = [f"... and {len(waiting) - REASONS_SHOWN} more"] if len(waiting) > REASONS_SHOWN else []
        lines = [*waiting[:REASONS_SHOWN], *more, f"Workers: {workers}"]
        said = "".join(f"\n  {line}" for line in lines)
        return f"not idle after {within_s:g} virtual seconds (within_s= allows more); still waiting:{said}"
