"""What is disclosed of when a WorkItem starts and ends, and how it is written where one instant is asked for. Pure.

An estimate is of one run under one ownership: the Event that ends either ends it (docs/disclosure.md). Nothing of it
says what else its Worker does, but for one word of how full that Worker is (WRK-012, S23).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from .errors import Corrupt


class CapacityState(StrEnum):
    """The coarse level of its Worker's load, in the words of the protocol's `capacityStatus`.

    Its fourth word, `blocked`, is never disclosed: a blocked item has no estimate, since nobody knows when it goes on.
    """

    AVAILABLE = "available"
    """It has its slots, and its Worker has a free one besides."""
    CONSTRAINED = "constrained"
    """It has its slots, and all of its Worker's are in use."""
    QUEUED = "queued"
    """It is accepted and waits for a slot."""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """When a WorkItem starts and ends, as its Worker estimates it. Times are the store's, in milliseconds."""

    start_from_ms: int
    start_to_ms: int
    """The same as `start_from_ms` for what runs: its start is known."""
    end_ms: int
    """By when its run has ended, with `confidence`; 0: unknown."""
    confidence: int
    """In percent, below 100, of `end_ms`, given a start within the window; 0: nothing is claimed."""
    capacity_state: CapacityState
    computed_ms: int = 0
    """When the store recorded it; 0 for one that is not recorded."""

    def schedule_estimate(self) -> dict[str, object] | None:
        """The protocol's `scheduleEstimate`; None while the end is unknown, since it cannot say so.

        `estimatedStart`, one instant, is the middle of the window; `estimatedCompletion` is `end_ms`, which is no middle:
        it holds with the confidence beside it.
        """
        if not self.end_ms:
            return None
        return {
            "estimatedStart": _instant((self.start_from_ms + self.start_to_ms) // 2),
            "estimatedCompletion": _instant(self.end_ms),
            "confidence": self.confidence / 100,
            "capacityStatus": self.capacity_state.value,
            "lastCalculatedAt": _instant(self.computed_ms),
        }


def current(record: str, *, epoch: int, number: int) -> Disclosure | None:
    """The disclosure of a WorkItem's record where it is of this ownership and this run; Corrupt for no record at all.

    A record is "computed epoch number start_from start_to end confidence capacity" (`disclose.lua`): `number` is that of the
    run it is about, the next one for what is queued.
    """
    try:
        *numbers, capacity = record.split(" ")
        computed, of_epoch, of_number, start_from, start_to, end, confidence = map(int, numbers)
        found = Disclosure(start_from, start_to, end, confidence, CapacityState(capacity), computed)
    except ValueError:
        raise Corrupt(f"disclosure: {record[:200]!r} is no record of one") from None
    return found if (of_epoch, of_number) == (epoch, number) else None


def _instant(at_ms: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
