"""How far the runs of a session say they are, told to the store seldom: the latest numbers, and every milestone.

what handlers say, from whatever thread -> Words, one a run -> `Progress` operations, which ride in the next turn
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from treadle.shared.model import Lease, LeaseId
from treadle.shared.progress import Said
from treadle.shared.store import Progress

from ..lanes import Lanes
from .run import Run, Ticket

EACH_S = 1.0
"""What a run says is told no more often. Nothing is told of its first second: short work costs no call and no byte."""
LOOK_EACH_S = 0.1
AT_ONCE_MAX = 16
"""Of one look; the rest a look later."""


@dataclass(slots=True)
class _Word:
    next_s: float
    """Before that nothing is told."""
    phase: str = ""
    """As it was told last: it holds until another is named."""
    said: Said | None = None
    """Not told yet."""
    is_new: bool = True
    """Whether nothing was told yet."""


class Words:
    """What runs say and when it is to be told. It may be said from any thread; it never waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words: dict[LeaseId, _Word] = {}
        self._looked_s = 0.0

    def say(self, lease: LeaseId, said: Said, *, began_s: float) -> None:
        """Takes what a run says, beside what is not told yet."""
        with self._lock:
            word = self._words.get(lease) or self._words.setdefault(lease, _Word(began_s + EACH_S))
            word.said = word.said.then(said) if word.said else said

    def due(self, now_s: float) -> list[tuple[LeaseId, Said]]:
        """What is to be told now."""
        if not self._words or 0 <= now_s - self._looked_s < LOOK_EACH_S:
            return []
        self._looked_s = now_s
        with self._lock:
            ready = [(lease, one) for lease, one in self._words.items() if one.said and now_s >= one.next_s]
            return [(lease, _told(word, now_s)) for lease, word in ready[:AT_ONCE_MAX]]

    def last(self, lease: LeaseId, now_s: float) -> Said | None:
        """What a run that is about to end has not told; of its first second only milestones are worth it."""
        with self._lock:
            word = self._words.pop(lease, None)
        if word is None or word.said is None or _is_short(word, now_s):
            return None
        return _told(word, now_s)

    def forget(self, lease: LeaseId) -> None:
        """A run is over."""
        if self._words:
            with self._lock:
                self._words.pop(lease, None)


def _is_short(word: _Word, now_s: float) -> bool:
    return word.is_new and now_s < word.next_s and not (word.said and word.said.milestones)


def _told(word: _Word, now_s: float) -> Said:
    assert word.said is not None
    said = replace(word.said, phase=word.said.phase or word.phase)
    word.said, word.phase, word.next_s, word.is_new = None, said.phase, now_s + EACH_S, False
    return said


class Progressing:
    """One session's words on their way to the store."""

    def __init__(self, lanes: Lanes[Ticket]) -> None:
        self._words = Words()
        self._lanes = lanes

    def say(self, run: Run, said: Said) -> None:
        """Takes what a run says, from whatever thread."""
        if not run.is_over:
            self._words.say(run.lease.lease_id, said, began_s=run.began_s)

    def tell(self, runs: Mapping[LeaseId, Run], now_s: float) -> None:
        """Asks for what is due to be told."""
        for lease, said in self._words.due(now_s):
            run = runs.get(lease)
            if run is None:  # a thread said it just when its run was over
                self._words.forget(lease)
            elif not run.is_over:
                self._ask(run, said)

    def closing(self, runs: Mapping[LeaseId, Run], lease: Lease, now_s: float) -> None:
        """A run is about to end by itself: what it said last travels before its end."""
        said = self._words.last(lease.lease_id, now_s)
        if said is not None and (run := runs.get(lease.lease_id)) is not None:
            self._ask(run, said)

    def finished(self, run: Run) -> None:
        """A run is over; what it has not told is not told any more."""
        self._words.forget(run.lease.lease_id)

    def _ask(self, run: Run, said: Said) -> None:
        self._lanes.ask(run.grant.partition, Progress(*run.target, said), Ticket())
