"""The bounds that the Scheduler keeps (docs/scheduling.md), as formulae."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a level: its weight, and the longest run (or estimate) below it times its width."""

    weight: float
    longest_ms: float

    @property
    def unit_ms(self) -> float:
        """L^/w."""
        return self.longest_ms / self.weight


def apart_bound_ms(
    one: Node, other: Node, level: Sequence[Node], *, slots: int, stale_ms: int = 0, draw: int = 1
) -> float:
    """(a): by how much the service of two nodes by weight may come apart while both stay ready.

    `slots` are all that may run both; a draw of several items counts as that many slots more. The last term is for an
    interval that begins with an entry: the level V that an entry is put at holds what is charged in advance for the runs
    of any node, and falls where they turn out shorter.
    """
    at_most = slots + draw - 1
    return (
        2 * at_most * max(one.unit_ms, other.unit_ms)
        + slots * stale_ms * (1 / one.weight + 1 / other.weight)
        + at_most * max(node.unit_ms for node in level)
    )


def wait_bound_ms(node: Node, level: Sequence[Node], *, ahead_ms: float, slots: int, stale_ms: int = 0) -> float:
    """(b): how long an item may wait that `ahead_ms` slot-milliseconds of its own Group stand before, without preemption.

    The last term is for the entry of its Group: the level holds the run of whoever was served, and not the tags of those
    that wait, so that these may have so much before it by weight.
    """
    weights = sum(one.weight for one in level)
    return (
        weights / (node.weight * slots) * (ahead_ms + (slots + 1) * node.longest_ms)
        + (slots + 1) / slots * sum(one.longest_ms for one in level)
        + max(one.longest_ms for one in level)
        + 2 * stale_ms
        + weights * max(one.unit_ms for one in level)
    )
