"""Waiting for a store that cannot answer now: jittered, bounded, ended by the order to stop."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from treadle.shared.errors import Unavailable

BACK_OFF_S = (0.05, 5.0)
"""The first wait at most twice the one, none above the other: a lost reply is asked for again at once, and after an outage
the Workers of a whole house come back over seconds."""
HURRY_S = 1.0
"""How long handlers may still take where there is no time for the grace."""
_log = logging.getLogger("treadle.worker")
_T = TypeVar("_T")


class Patience:
    """How one Worker waits. `stop` is its order to stop; `chance` makes many Workers come back at different moments."""

    def __init__(self, stop: anyio.Event, chance: random.Random) -> None:
        self.stop = stop
        self.hurry = anyio.Event()
        """Set where there is no time for the grace."""
        self._chance = chance

    def nonce(self) -> str:
        """A value that no other call of any Worker uses."""
        return f"{self._chance.getrandbits(64):016x}"

    def back_off_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row (BR-49)."""
        low, high = BACK_OFF_S
        return self._chance.uniform(low / 2, min(high, low * 2.0 ** min(failures, 10)))

    def complain(self, failures: int, error: Unavailable) -> None:
        """Says that the store is waited for: at once, then ever more seldom."""
        if failures in (1, 5, 20) or failures % 60 == 0:
            _log.warning("waiting for the store: %s", error)

    async def until_answered(
        self, attempt: Callable[[], Awaitable[_T]], *, is_over: Callable[[Unavailable], bool] = lambda _: False
    ) -> _T:
        """What `attempt` gives, asked again while the store cannot answer, it is not over and nobody said stop."""
        for failures in itertools.count(1):
            try:
                return await attempt()
            except Unavailable as error:
                if self.stop.is_set() or is_over(error):
                    raise
                self.complain(failures, error)
                with anyio.move_on_after(self.back_off_s(failures)):
                    await self.stop.wait()
        raise AssertionError("count() does not end")
