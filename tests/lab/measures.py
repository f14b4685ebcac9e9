"""What is read off a laboratory afterwards: service, shares, how far two nodes came apart, how long items waited."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from lab.laboratory import Lab
from treadle.shared.model import GroupId

NodeOf = Callable[[GroupId], str]
"""Which node of a level a Group belongs to: itself, its account, its class."""


def service_ms(lab: Lab, since_ms: int, until_ms: int, node_of: NodeOf = str) -> dict[str, int]:
    """The slot-time that each node had between two instants."""
    had: dict[str, int] = defaultdict(int)
    for at_ms, group, width in lab.changes:
        had[node_of(group)] += width * (until_ms - min(until_ms, max(since_ms, at_ms)))
    return dict(had)


def shares(lab: Lab, since_ms: int, until_ms: int, node_of: NodeOf = str) -> dict[str, float]:
    """Each node's part of the slot-time that was used between two instants."""
    had = service_ms(lab, since_ms, until_ms, node_of)
    whole = sum(had.values())
    return {node: one / whole for node, one in sorted(had.items())}


def use(lab: Lab, since_ms: int, until_ms: int) -> float:
    """Which part of all slots was in use between two instants, the Workers being those there are now."""
    slots = sum(worker.slots for worker in lab.workers)
    return sum(service_ms(lab, since_ms, until_ms).values()) / (slots * (until_ms - since_ms))


def waits_ms(lab: Lab, groups: Iterable[str], *, until_ms: int | None = None) -> list[int]:
    """How long each item waited for its first start, shortest first; with `until_ms`, those that still wait count too."""
    waited = [start - came for group in groups for came, start, _ in lab.waits[GroupId(group)]]
    if until_ms is not None:
        waited += [until_ms - came for group in groups for came in lab.waiting(GroupId(group))]
    return sorted(waited)


def quantile(values: Sequence[int], part: float) -> int:
    """The value that `part` of all are not above; `values` are sorted."""
    return values[min(len(values) - 1, int(part * len(values)))]


def apart_ms(
    lab: Lab, weights: Mapping[str, float], node_of: NodeOf = str, *, until_ms: int | None = None
) -> dict[tuple[str, str], float]:
    """Of each two nodes: the most by which their service by weight came apart over any interval in which both stay ready.

    In slot-milliseconds per unit of weight: the largest of |S_i/w_i - S_j/w_j|.
    """
    names = sorted(weights)
    until_ms = lab.now_ms if until_ms is None else until_ms
    had = dict.fromkeys(names, 0.0)
    running = dict.fromkeys(names, 0)
    ready = dict.fromkeys(names, 0)
    lows: dict[tuple[str, str], float] = {}
    highs: dict[tuple[str, str], float] = {}
    worst = {(i, j): 0.0 for i in names for j in names if i < j}
    marks = [(at, 1, node_of(group), 1 if on else -1) for at, group, on in lab.books.ready]
    marks += [(at, 0, node_of(group), width) for at, group, width in lab.changes]
    marks = [mark for mark in marks if mark[2] in had and mark[0] <= until_ms]
    marks.sort(key=lambda mark: mark[0])  # stable: at one instant as they happened, changes and entries apart
    now_ms = marks[0][0] if marks else until_ms
    for at_ms, is_entry, node, by in [*marks, (until_ms, 0, "", 0)]:
        if at_ms > now_ms:
            for name in names:
                had[name] += running[name] * (at_ms - now_ms) / weights[name]
            for pair in worst:
                if pair in lows:
                    apart = had[pair[0]] - had[pair[1]]
                    lows[pair], highs[pair] = min(lows[pair], apart), max(highs[pair], apart)
                    worst[pair] = max(worst[pair], highs[pair] - lows[pair])
            now_ms = at_ms
        if node and is_entry:
            ready[node] += by
            for pair in worst:
                if node in pair and ready[pair[0]] and ready[pair[1]] and pair not in lows:
                    lows[pair] = highs[pair] = had[pair[0]] - had[pair[1]]
                elif node in pair and not ready[node]:
                    lows.pop(pair, None)
        elif node:
            running[node] += by
    return worst
