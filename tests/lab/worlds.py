"""Small worlds of Groups as values: what the searches for a broken bound vary, run and judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from builders import NOW_MS
from lab.bounds import Node, apart_bound_ms, wait_bound_ms
from lab.laboratory import Lab
from lab.measures import apart_ms
from treadle.shared.model import GroupId

SPAN_MS = 60_000
LOOKED_AT = 40
"""Items of each Group whose wait is judged."""


@dataclass(frozen=True, slots=True)
class Load:
    """One Group: what it weighs, and its items as (when they come, how long they run)."""

    weight: float
    items: tuple[tuple[int, int], ...]

    @property
    def node(self) -> Node:
        return Node(self.weight, max((run_ms for _, run_ms in self.items), default=1))


@dataclass(frozen=True, slots=True)
class Small:
    """A small world: Workers and Groups."""

    workers: int
    slots: int
    loads: tuple[Load, ...]
    draw: int = 1
    stale_ms: int = 0
    seed: int = 0

    @property
    def all_slots(self) -> int:
        return self.workers * self.slots

    def run(self, span_ms: int = SPAN_MS) -> Lab:
        lab = Lab(self.workers, self.slots, draw=self.draw, stale_ms=self.stale_ms, seed=self.seed)
        for number, load in enumerate(self.loads):
            lab.open(_name(number), weight=load.weight)
            coming: dict[int, list[int]] = {}
            for at_ms, run_ms in load.items:
                coming.setdefault(at_ms, []).append(run_ms)
            for at_ms, runs_ms in sorted(coming.items()):
                lab.at(NOW_MS + at_ms, partial(lab.add, _name(number), runs_ms))
        lab.run(NOW_MS + span_ms)
        return lab

    def worst_apart(self, lab: Lab | None = None) -> float:
        """The largest part of bound (a) that any two Groups reached; above 1 it is broken."""
        nodes = [load.node for load in self.loads]
        found = apart_ms(lab or self.run(), {_name(number): load.weight for number, load in enumerate(self.loads)})
        return max(
            apart
            / apart_bound_ms(
                nodes[int(one)],
                nodes[int(other)],
                nodes,
                slots=self.all_slots,
                stale_ms=self.stale_ms,
                draw=self.draw,
            )
            for (one, other), apart in found.items()
        )

    def worst_wait(self, lab: Lab | None = None) -> float:
        """The largest part of bound (b) that any of some items of each Group reached."""
        lab = lab or self.run()
        nodes = [load.node for load in self.loads]
        ends = {(one.group, one.item): one.end_ms for one in lab.ended}
        worst = 0.0
        for number, node in enumerate(nodes):
            group = GroupId(_name(number))
            items = [(came, start, ends.get((group, item), lab.now_ms)) for came, start, item in lab.waits[group]]
            for at in range(0, len(items), 1 + len(items) // LOOKED_AT):
                came, start, _ = items[at]
                # What is left to do of those that go before it, in slot-milliseconds.
                ahead = sum(max(0, end - max(came, began)) for _, began, end in items[:at])
                bound = wait_bound_ms(node, nodes, ahead_ms=ahead, slots=self.all_slots, stale_ms=self.stale_ms)
                worst = max(worst, (start - came) / bound)
        return worst


def endless(*runs_ms: int, slots: int = 1, span_ms: int = SPAN_MS) -> tuple[tuple[int, int], ...]:
    """Runs in turn, there from the start, enough to fill some slots for the whole span."""
    times = slots * span_ms // sum(runs_ms) + slots
    return tuple((0, run_ms) for _ in range(times) for run_ms in runs_ms)


def _name(number: int) -> str:
    return str(number)
