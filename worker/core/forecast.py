"""When a WorkItem's run ends, from how long the runs of its own Group and capability took here: `forecast`. Pure.

The claim is free of any assumption about the lengths but one: that the next run is like those before it, in no
particular order. Of m earlier runs that took longer than this one has lasted, this one is as likely to end before the
first as between any two: it ends within the k-th of them with probability k / (m + 1).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from treadle.shared.disclosure import CapacityState, Disclosure

RUNS_KEPT = 64
"""The last runs of a Group and capability that are looked at: what they were like long ago says little."""
SURE = 80
"""The confidence an end is given at, in percent, where there are runs enough; with fewer than four it is less, with
fewer than nine up to 88."""


class History:
    """How long the last runs of one Group and capability took on this Worker."""

    def __init__(self, runs_ms: Iterable[int] = ()) -> None:
        self._runs_ms = deque(runs_ms, maxlen=RUNS_KEPT)

    def __len__(self) -> int:
        return len(self._runs_ms)

    def add(self, run_ms: int) -> None:
        """One run came to its result after so long; one that was stopped, or failed, says nothing of this."""
        self._runs_ms.append(run_ms)

    def end(self, lasted_ms: int, *, typical_ms: int = 0) -> tuple[int, int]:
        """How long a run that has lasted so long takes in all, and with what confidence in percent; (0, 0): unknown.

        Where none here took longer, the Group's `typical_ms` (e^, 0 for none) is all that is known: an end without a claim.
        """
        longer = sorted(run_ms for run_ms in self._runs_ms if run_ms > lasted_ms)
        if not longer:
            return (typical_ms, 0) if typical_ms > lasted_ms else (0, 0)
        shares = len(longer) + 1
        rank = min(len(longer), math.ceil(SURE * shares / 100))
        return longer[rank - 1], 100 * rank // shares


@dataclass(frozen=True, slots=True)
class Waits:
    """An item that is accepted and waits for a slot; it starts by then or is given back."""

    start_by_ms: int


@dataclass(frozen=True, slots=True)
class Runs:
    """An item that runs since then."""

    since_ms: int


def forecast(history: History, item: Waits | Runs, now_ms: int, *, typical_ms: int = 0, is_full: bool) -> Disclosure:
    """What there is to disclose of an item now: nothing that other Groups do enters but `is_full` (S23).

    `is_full`: whether all slots of this Worker are in use. The end of what waits counts from the end of its window.
    """
    if isinstance(item, Waits):
        start_from_ms, start_to_ms, lasted_ms = now_ms, max(now_ms, item.start_by_ms), 0
        capacity = CapacityState.QUEUED
    else:
        start_from_ms = start_to_ms = item.since_ms
        lasted_ms = max(0, now_ms - item.since_ms)
        capacity = CapacityState.CONSTRAINED if is_full else CapacityState.AVAILABLE
    run_ms, confidence = history.end(lasted_ms, typical_ms=typical_ms)
    end_ms = start_to_ms + run_ms if run_ms else 0
    return Disclosure(start_from_ms, start_to_ms, end_ms, confidence, capacity)


def is_material(disclosed: Disclosure, now: Disclosure, now_ms: int) -> bool:
    """Whether what is known now differs from what was disclosed in a way that somebody would plan by.

    That is an item that is late beyond its end, and an end that was unknown and is not any more. That a run is over, by a
    yield, a block or a lost lease, is told by the Event that ends it.
    """
    if not disclosed.end_ms:
        return now.end_ms > 0
    return now_ms > disclosed.end_ms
