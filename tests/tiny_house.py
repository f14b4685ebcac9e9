"""A tiny house for the core's tests: one Worker's decisions over `TinyStore`'s counters, on a clock that jumps."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from builders import AGENT, CAPABILITY, NOW_MS, Run, TinyStore
from treadle.shared.model import AgentId, Capability, GroupId
from treadle.worker.core.schedule import DRAW, Take, View, decide
from treadle.worker.core.tree import Ready


def begun(agent: AgentId = AGENT, *capabilities: Capability) -> Ready:
    """Nothing ready yet, to a Worker that has decided before: what comes now is news, no history."""
    ready = Ready(agent, capabilities or [CAPABILITY])
    ready.begin(0)
    return ready


def wanted(actions: Sequence[Take]) -> dict[GroupId, int]:
    """What the free slots are to be filled with."""
    counts: Counter[GroupId] = Counter()
    for take in actions:
        if not take.fallback:
            counts[take.group] += take.most
    return dict(counts)


@dataclass
class House:
    """One Worker: runs items on a few slots and writes down each start and the service at each instant."""

    slots: int
    draw: int = DRAW
    store: TinyStore = field(default_factory=TinyStore)
    now_ms: int = NOW_MS
    ready: Ready = field(default_factory=lambda: Ready(AGENT, [CAPABILITY]))
    running: list[tuple[int, int, Run]] = field(default_factory=list)
    started: list[Run] = field(default_factory=list)
    watch: Callable[[House], None] | None = None

    def add(self, group: str, runs: Sequence[int], **fields: Any) -> None:
        """Queue items by the length of their runs; the fields are those of `TinyStore.add`."""
        self.store.add(group, runs, self.now_ms, **fields)

    def run(self, until_ms: int) -> None:
        """Go on to an instant: fill free slots, then jump to the next end of a run."""
        while True:
            self.fill()
            if self.watch:
                self.watch(self)
            if not self.running or self.running[0][0] > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = self.running[0][0]
            while self.running and self.running[0][0] == self.now_ms:
                self.store.end(heapq.heappop(self.running)[2], self.now_ms)

    def fill(self) -> None:
        self.look()
        while free := self.slots - len(self.running):
            actions = decide(View(self.ready, free, draw=self.draw), self.now_ms)
            total = sum(wanted(actions).values())
            assert total == min(free, self.ready.takeable)
            if not total:
                return
            runs = self.store.take(actions, total, self.now_ms)
            assert len(runs) == total, "what is planned alone is within its own limits"
            for run in runs:
                self.started.append(run)
                heapq.heappush(self.running, (self.now_ms + run.run_ms, len(self.started), run))
            self.look()

    def look(self) -> None:
        self.ready.service(self.store.nodes(), self.now_ms)
        self.ready.update(self.store.changes(), self.now_ms)

    def service_ms(self, group: str) -> int:
        return self.store.service_ms(group, self.now_ms)

    def share(self, group: str, of: Sequence[str], since: dict[str, int] | None = None) -> float:
        had = {name: self.service_ms(name) - (since or {}).get(name, 0) for name in of}
        return had[group] / sum(had.values())

    def services(self) -> dict[str, int]:
        return {group: self.service_ms(group) for group in self.store.lines}


ENDLESS_S = 3_600


def endless(*runs_ms: int) -> list[int]:
    """Runs in turn, enough that one Group alone would fill 16 slots for an hour."""
    return list(runs_ms) * (16 * ENDLESS_S * 1_000 // sum(runs_ms))
