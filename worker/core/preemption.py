"""When a run is asked for its slot, and for whom (scheduler.md rule 9). Pure.

Service is charged as it is used, so a swap only shifts who is served first: it is worth its cost once one side is ahead by
more than the swap itself moves. Between two siblings that is half a minimum run of either, `swap_ms`; what other runs were
asked for the same one counts once more each. So no pair is reversed within the minimum run, and a slot changes hands by
request once in a minimum run at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treadle.shared.model import Capability, GroupId, LeaseId

from .fairness import Standing

PENDING_MAX = 64
"""Slots that one Group may wait for at a time; the store's own bound (`_preempt.lua`)."""


@dataclass(frozen=True, slots=True)
class Share:
    """One node of a path from class to Group: what it has had, by its weight."""

    node: str
    virtual_ms: float
    """v in slot-milliseconds per unit of weight; of a node that was not served since its entry its frozen tag."""
    weight: float


@dataclass(frozen=True, slots=True)
class Running:
    """A run of this Worker, which may be asked."""

    lease: LeaseId
    width: int
    lasted_ms: int
    path: tuple[Share, ...]
    """Class, account and Group; () where its Group is not known here: then it is not asked."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The Group that the next free slot would go to."""

    group: GroupId
    capability: Capability
    width: int
    """Of its first item."""
    path: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """Ask the run under `lease` for its slot, for a Group that may wait for `most` slots, this one included."""

    lease: LeaseId
    group: GroupId
    capability: Capability
    most: int


def share_of(node: str, standing: Standing, now_ms: int, *, waits: bool) -> Share:
    """How a node stands in a comparison of service; one that `waits` and was not served yet counts from where it entered."""
    virtual_ms = standing.virtual_time(now_ms)
    if waits and not standing.usage.served:
        virtual_ms = max(virtual_ms, standing.tag)
    return Share(node, virtual_ms, standing.weight)


def preempt(
    waiting: Waiting, runs: Iterable[Running], pending: Sequence[tuple[Share, ...]], *, minimum_run_ms: int
) -> Preempt | None:
    """The run to ask, None for none: of those that ran for the minimum and fill what is waited for, the one most ahead.

    Only where no slot is free; `runs`: those that were not asked yet; `pending`: the paths of the other Groups for which
    this Worker asked before. How many slots are waited for in all is the store's to count, against `most`.
    """
    best: tuple[float, int, LeaseId] | None = None
    for run in runs:
        if run.lasted_ms < minimum_run_ms or run.width < waiting.width:
            continue
        times = swaps_ahead(run.path, waiting.path, minimum_run_ms=minimum_run_ms, width=run.width)
        times -= sum(_asks_for(path, run.path, waiting) for path in pending)
        if times >= 1 and (best is None or (-times, -run.lasted_ms, run.lease) < best):
            best = (-times, -run.lasted_ms, run.lease)
    if best is None:
        return None
    return Preempt(best[2], waiting.group, waiting.capability, int(min(-best[0], PENDING_MAX)))


def swaps_ahead(running: Sequence[Share], waiting: Sequence[Share], *, minimum_run_ms: int, width: int = 1) -> float:
    """By how many swaps of a minimum run the running side is ahead, where the two paths part; 0 where they do not.

    Where no minimum is asked for, any lead is as good as many.
    """
    parting = parting_of(running, waiting)
    if parting is None:
        return 0.0
    one, other = parting
    lead_ms = one.virtual_ms - other.virtual_ms
    swap_ms = width * minimum_run_ms / 2 * (1 / one.weight + 1 / other.weight)
    if swap_ms <= 0:
        return math.inf if lead_ms > 0 else 0.0
    return lead_ms / swap_ms


def parting_of(running: Sequence[Share], waiting: Sequence[Share]) -> tuple[Share, Share] | None:
    """The siblings in which two paths part; None for one and the same Group, or where one is not known."""
    for one, other in zip(running, waiting, strict=False):
        if one.node != other.node:
            return one, other
    return None


def _asks_for(path: Sequence[Share], running: Sequence[Share], waiting: Waiting) -> bool:
    """Whether a pending request is for the same sibling: in a class or account that waits all its Groups count."""
    parting = parting_of(running, waiting.path)
    return parting is not None and any(share.node == parting[1].node for share in path)
