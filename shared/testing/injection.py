"""`faults`: what a test does to its house. Each takes effect at once, between two steps of whoever it strikes.

Names are those of `treadle_worker(name=...)`; "client" is the test itself, with all its clients.
"""

from __future__ import annotations

import math
from contextvars import Context

from ..errors import Misuse
from .kit import Kit, Seat

SECONDS_MAX = 86_400 * 366
AFTER_MAX = 1_000_000


class Faults:
    """The faults of one test. Wrong names and numbers raise Misuse, which names what would do."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    @property
    def lost(self) -> list[str]:
        """The replies that were lost until now, as 'turn of w1': the function that was called, and by whom."""
        return list(self._kit.losses.lost)

    def lose_reply(self, after: int = 1, *, of: str | None = None) -> None:
        """Lose the reply of the `after`-th next fenced call (1: the very next): it is carried out, its caller is not told.

        A fenced call changes Missions, WorkItems or sessions; looks, renewals and timers are not counted, and a whole
        pipeline is one. `of`: count only the calls of this Worker or client. The caller sees its connection break.
        """
        if isinstance(after, bool) or not isinstance(after, int) or not 1 <= after <= AFTER_MAX:
            raise Misuse(f"lose_reply: after is {after!r}, must be an int of 1 to {AFTER_MAX}")
        if of is not None:
            self._seat(of, "lose_reply")
        self._kit.losses.lose(after, of)

    def cut(self, name: str) -> None:
        """Let nothing pass between a Worker (or "client") and the store, either way, until `heal(name)`.

        It is not told: what it sends is gone, and it learns so from its own time-outs.
        """
        seat = self._seat(name, "cut")
        seat.is_cut = True
        self._note(f"{name:>10} is cut off")
        self._kit.network.cut(seat.process, math.inf)

    def heal(self, name: str | None = None) -> None:
        """End the cut of one, or of all. One that was not cut is left as it is."""
        for seat in self._kit.seats.values() if name is None else [self._seat(name, "heal")]:
            if seat.is_cut:
                seat.is_cut = False
                self._note(f"{seat.name:>10} is healed")
                self._kit.network.heal(seat.process)

    def kill(self, name: str) -> None:
        """End a Worker as `kill -9` does: nothing of it runs again, nothing is given back, its leases run out.

        Called inside one of its own handlers it takes effect at that handler's next `await`.
        """
        seat = self._worker(name, "kill")
        self._note(f"{name:>10} is killed")
        seat.process.kill()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a Worker as SIGSTOP does, for so many seconds of virtual time (above 0, at most a year); then it goes on.

        It does not know. Stopped for longer than its lease it is a zombie: its work has gone on elsewhere, and what it
        still sends is refused. A pause of one that is paused already counts from now, in place of the first.
        """
        wrong = isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= SECONDS_MAX
        if wrong:
            raise Misuse(f"pause: seconds is {seconds!r}, must be a number above 0, at most {SECONDS_MAX}")
        seat = self._worker(name, "pause")
        loop = self._kit.loop
        seat.paused_until_s = until_s = loop.time() + seconds

        def resume() -> None:
            if seat.paused_until_s == until_s and not seat.process.is_dead:
                self._note(f"{name:>10} goes on")
                seat.process.resume()

        self._note(f"{name:>10} is paused for {seconds:g} s")
        seat.process.pause()
        loop.call_later(seconds, resume, context=Context())

    def no_library(self) -> None:
        """Make the server forget its function library, as FUNCTION FLUSH and a restart without it do."""
        self._note(f"{'-':>10} FUNCTION FLUSH")
        self._kit.network.flush_library()

    def _note(self, text: str) -> None:
        self._kit.network.note(text)

    def _seat(self, name: str, what: str) -> Seat:
        seat = self._kit.seats.get(name) if isinstance(name, str) else None
        if seat is None:
            known = ", ".join(repr(one) for one in self._kit.seats) or "none yet"
            raise Misuse(f"{what}: nobody here is called {name!r}; known are: {known}")
        return seat

    def _worker(self, name: str, what: str) -> Seat:
        seat = self._seat(name, what)
        if not seat.is_worker:
            raise Misuse(f"{what}: {name!r} lives in the test itself; it can be cut off, not {what}{_ED[what]}")
        if not seat.is_alive:
            raise Misuse(f"{what}: Worker {seat.shown} is not alive; start it again with treadle_worker(name={name!r})")
        return seat


_ED = {"kill": "ed", "pause": "d"}
