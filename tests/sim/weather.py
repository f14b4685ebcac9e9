"""What may go wrong in one run, drawn from its seed: which kinds at all (swarm), how often, how hard."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from treadle.shared.testing.clock import Process
from treadle.shared.testing.network import Command, Route


class Fault(StrEnum):
    """A kind of fault. Each seed has some of them, so that none hides another for ever."""

    LOST_REPLY = "lost_reply"
    """A call runs, its answer does not come back."""
    LOST_CALL = "lost_call"
    """A call does not run, or only the first few of a pipeline; the caller sees the same as above."""
    LATE_CALL = "late_call"
    """A call runs after its caller gave up waiting and perhaps repeated it."""
    SLOW = "slow"
    """Questions and answers take up to two seconds."""
    CUT = "cut"
    """A process and the store cannot reach each other for a while."""
    CRASH = "crash"
    """kill -9 between two steps, then a restart, under the same name or another."""
    PAUSE = "pause"
    """SIGSTOP, mostly for longer than a lease, then SIGCONT."""
    STOP = "stop"
    """SIGTERM, then a restart."""
    TWIN = "twin"
    """A second runtime of an Agent is started beside the first."""
    FLUSH = "flush"
    """The server loses the function library."""
    OTHER_SERVER = "other_server"
    """All connections break, and the server that answers then is another one with the same data."""
    LOST_TOKENS = "lost_tokens"
    """A list of wake tokens is deleted."""


OF_CALLS = (Fault.LOST_REPLY, Fault.LOST_CALL, Fault.LATE_CALL, Fault.SLOW)
OF_PROCESSES = (Fault.CUT, Fault.CRASH, Fault.PAUSE, Fault.STOP, Fault.TWIN)
OF_SERVERS = (Fault.FLUSH, Fault.OTHER_SERVER, Fault.LOST_TOKENS)


class Weather:
    """The dice of one run. `clear()` ends all faults; delays of a good network are left."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_rough = True
        self.rates: dict[Fault, float] = {}
        calm = chance.random() < 0.03
        for fault in Fault:
            if not calm and chance.random() < 0.45:
                # Of one exchange each, or of one of the moments that the world draws for the others.
                self.rates[fault] = (
                    chance.choice((0.005, 0.02, 0.08)) if fault in OF_CALLS else chance.choice((1, 3, 6))
                )

    @property
    def enabled(self) -> tuple[Fault, ...]:
        return tuple(self.rates)

    def clear(self) -> None:
        self.is_rough = False

    def route(self, process: Process | None, commands: Sequence[Command], timeout_s: float) -> Route:  # noqa: ARG002
        """Draws what becomes of an exchange of some commands whose caller waits so long: it is the same for all."""
        chance = self._chance
        there_s, back_s = chance.uniform(0.0001, 0.001), chance.uniform(0.0001, 0.001)
        fault = self._fault()
        if fault is Fault.LOST_REPLY:
            return Route(there_s, back_s, len(commands), False, fault)
        if fault is Fault.LOST_CALL:
            return Route(there_s, back_s, chance.randrange(len(commands)), False, fault)
        if fault is Fault.LATE_CALL:
            return Route(timeout_s + chance.uniform(0.0, 2.0), back_s, len(commands), True, fault)
        if fault is Fault.SLOW:
            there_s, back_s = chance.uniform(0.0, 2.0), chance.uniform(0.0, 2.0)
        return Route(there_s, back_s, len(commands), True, fault or "")

    def gap_s(self) -> float:
        """Between two commands of one pipeline: others' calls may run there."""
        return 0.0 if self._chance.random() < 0.7 else self._chance.uniform(0.0, 0.0005)

    def breaks_at_once(self) -> bool:
        """Whether a lost exchange is seen as a broken connection, or only when its time is over."""
        return self._chance.random() < 0.7

    def _fault(self) -> Fault | None:
        if not self.is_rough:
            return None
        for fault in OF_CALLS:
            if fault in self.rates and self._chance.random() < self.rates[fault]:
                return fault
        return None
