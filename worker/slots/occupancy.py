"""Who occupies the slots of one Worker: handlers at work, and handlers that run on although their runs are over.

Neither a thread nor a task can be ended from outside. One that is given up leaves its slot to other work; of those there
may be only so many at a time, so that a handler that never ends does not fill its Worker with its like.
"""

from __future__ import annotations

import logging
from typing import Protocol

import anyio

GIVEN_UP_PER_SLOT = 2
_log = logging.getLogger("treadle.worker")


class Straggler(Protocol):
    """A handler that runs on although its run is over."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...


class Occupancy:
    """As many handlers at work as slots, and twice as many given up at most: then the next waits for one of those to end."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._given_up_max = GIVEN_UP_PER_SLOT * slots
        self._limiter: anyio.CapacityLimiter | None = None
        self._freed = anyio.Event()
        self.at_work: list[str] = []
        """The runs whose handlers are called now."""
        self.given_up: set[Straggler] = set()
        """Those still running for runs that are over."""

    def resize(self, slots: int) -> None:
        """Has room for as many as there are slots now; those at work beyond that go on."""
        self._slots = max(1, slots)
        self._given_up_max = GIVEN_UP_PER_SLOT * self._slots
        if self._limiter is not None:
            self._limiter.total_tokens = self._slots

    async def admit(self, name: str) -> anyio.CapacityLimiter:
        """Waits until a handler may be started; the limiter for its thread."""
        if len(self.given_up) >= self._given_up_max:
            stuck = ", ".join(sorted(errand.name for errand in self.given_up))
            _log.warning("%s waits: handlers of runs that are over will not end (%s)", name, stuck)
        while len(self.given_up) >= self._given_up_max:
            await self._freed.wait()
        if self._limiter is None:  # inside the event loop only
            self._limiter = anyio.CapacityLimiter(self._slots)
        return self._limiter

    def give_up(self, errand: Straggler) -> None:
        """Goes on without one that does not end."""
        self.given_up.add(errand)
        _log.warning(
            "%s: its %s is given up, %d so far; it ends at its next checkpoint or by itself",
            errand.name,
            errand.kind,
            len(self.given_up),
        )

    def ended(self, errand: Straggler) -> None:
        """The thread or task of an errand has ended, whether it was given up or not."""
        if errand in self.given_up:
            self.given_up.discard(errand)
            _log.info("%s: the %s that was given up has ended", errand.name, errand.kind)
            self._freed.set()
            self._freed = anyio.Event()
