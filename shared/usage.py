"""The service of a Group, account or class, as the store counts it (scheduler.md, rule 1)."""

from __future__ import annotations

from dataclasses import dataclass

STARTS_EPOCH_MS = 1_735_689_600_000
"""Starts are summed relative to 2025-01-01, so that the sums stay exact integers (design.md 3.10)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The service of one node (Group, account or class), over all Workers, in slot-milliseconds (scheduler.md, rule 1)."""

    used_ms: int = 0
    """Of the runs that ended."""
    running: int = 0
    """Sum of the widths that run now."""
    starts_ms: int = 0
    """Sum of width * (start - STARTS_EPOCH_MS) of what runs now."""
    estimate_ms: int = 0
    """Sum of width * e^ of what runs now, e^ being what it was at each start."""
    typical_ms: int = 0
    """e^: the running estimate of one run, in milliseconds; 0 is cold."""
    offset: int = 0
    """Virtual time given at entries, in slot-milliseconds per unit of weight."""
    entry: int = 0
    """How often this node became ready after it was not."""
    entry_ms: int = 0
    served: bool = False
    """Whether something was accepted since that entry."""
