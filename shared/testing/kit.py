"""One test's house in memory: a server, a virtual clock, and who takes part. The fixtures of `plugin.py` stand on it.

    kit = Kit(seed=7)
    kit.run(a_coroutine())      # all the virtual time it takes passes at once
    kit.close()

Every connection belongs to a seat: a Worker is a process of its own, the test and its clients sit at "client".
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import Misuse
from ..store.library import lua_files
from .chance import Chance, logs_noted
from .clock import Process, VirtualLoop, patched_clocks
from .network import Command, Network, Route
from .threads import threads_counted
from .wires import NetworkEndpoint

PREFIX = "treadle"
PARTITIONS = 2
"""Few, because each is looked at in every sweep; more than one, because some promises hold inside one only."""
CLIENT = "client"
"""The seat of the test itself: of `treadle_client`, and of every client that is connected to `treadle_store`."""
TRACE_SHOWN = 40
LINE_CHARS = 180
_UNCOUNTED = frozenset({"renew", "tick", "watch", "adopt", "open_store"})
_READS = re.compile(r"^-- flags: .*\bno-writes\b", re.MULTILINE)
_T = TypeVar("_T")


class WorkerBroke(AssertionError):
    """A Worker ended by an error of its own: in production its process would be gone."""


@dataclass(eq=False)
class Seat:
    """One who takes part, under the name by which `faults` finds it."""

    name: str
    process: Process
    is_worker: bool
    capabilities: tuple[str, ...] = ()
    runs: list[str] = field(default_factory=list)
    """The handler runs that go on here, as MISSION/ITEM."""
    is_over: bool = False
    """It has ended by itself: it was stopped, replaced, or broke."""
    error: BaseException | None = None
    is_cut: bool = False
    paused_until_s: float = 0.0

    @property
    def is_alive(self) -> bool:
        return not self.is_over and not self.process.is_dead

    @property
    def shown(self) -> str:
        state = "killed" if self.process.is_dead else "ended" if self.is_over else "alive"
        more = [word for word, holds in (("paused", self.process.is_paused), ("cut off", self.is_cut)) if holds]
        return f"{self.name} ({', '.join(more if more and self.is_alive else [state])})"


@dataclass
class _Loss:
    """A reply that is to be lost: that of the `left`-th next call of one who is `of`."""

    after: int
    of: str | None
    left: int


class Losses:
    """How exchanges go here: at once and well, but for the replies that are to be lost."""

    def __init__(self, chance: random.Random, function: Callable[[Command], str]) -> None:
        self.waiting: list[_Loss] = []
        self.lost: list[str] = []
        self._chance = chance
        self._function = function
        self._uncounted = _UNCOUNTED | {
            file.removesuffix(".lua") for file, text in lua_files().items() if _READS.search(text)
        }

    def lose(self, after: int, of: str | None) -> None:
        self.waiting.append(_Loss(after, of, after))

    def unreached(self) -> list[str]:
        """The losses that were asked for and never came, as they were asked for."""
        return [
            f"faults.lose_reply(after={loss.after}{'' if loss.of is None else f', of={loss.of!r}'}) never came: "
            f"{loss.after - loss.left} such calls were made"
            for loss in self.waiting
        ]

    def route(self, process: Process | None, commands: Sequence[Command], timeout_s: float) -> Route:  # noqa: ARG002 - all come in time
        """Everything arrives; the answer does not come back where that was asked for."""
        there_s, back_s = self._chance.uniform(0.0001, 0.001), self._chance.uniform(0.0001, 0.001)
        lost = process is not None and self._strikes(process.name, commands)
        return Route(there_s, back_s, len(commands), not lost, "lost_reply" if lost else "")

    def gap_s(self) -> float:
        return 0.0 if self._chance.random() < 0.7 else self._chance.uniform(0.0, 0.0005)

    def breaks_at_once(self) -> bool:
        return True

    def _strikes(self, name: str, commands: Sequence[Command]) -> bool:
        fenced = [word for word in map(self._function, commands) if word and word not in self._uncounted]
        if not fenced:
            return False
        struck = False
        for loss in list(self.waiting):
            if loss.of in (None, name):
                loss.left -= 1
                if loss.left == 0:
                    self.waiting.remove(loss)
                    struck = True
        if struck:
            self.lost.append(f"{fenced[0]} of {name}")
        return struck


class Gate:
    """Lets only so many handler runs begin."""

    LOOK_S = 1.0
    """How often one that is held looks whether it is over."""

    def __init__(self) -> None:
        self.begun = 0
        self._most: int | None = None
        self._opened = asyncio.Event()

    def open(self, most: int | None) -> None:
        """From here on `most` more runs may begin; None for any number."""
        self._most = None if most is None else self.begun + most
        self._opened.set()
        self._opened = asyncio.Event()

    async def enter(self, is_over: Callable[[], bool]) -> None:
        """Returns once a run may begin, or need not because it is over."""
        while self._most is not None and self.begun >= self._most:
            if is_over():
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), self.LOOK_S)
        self.begun += 1


class StoreInMemory(NetworkEndpoint):
    """The store of one test, as whoever sits at "client" reaches it; it stands where a URL would."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.network, kit.client_seat(CLIENT).process)
        self._kit = kit

    @property
    def shown(self) -> str:
        return "in memory"

    def named(self, name: str) -> NetworkEndpoint:
        """The same store for a client of a name of its own, which `faults` can cut off alone. Misuse: a Worker's name."""
        return NetworkEndpoint(self.network, self._kit.client_seat(name).process)

    @property
    def now_s(self) -> float:
        """The store's time, in seconds since the Unix epoch; `time.time()` in the test is the same."""
        return self.network.loop.wall_time()


class Kit:
    """The house of one test."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # To the whole second, so that everything below one depends on the seed only.
        self.loop = VirtualLoop(seed=seed, epoch_s=float(int(time.time())), threads=True)
        chance = random.Random(seed)
        self.losses = Losses(random.Random(chance.getrandbits(64)), lambda command: self.network.function(command))
        self.network = Network(self.loop, self.losses, random.Random(chance.getrandbits(64)))
        self.gate = Gate()
        self.seats: dict[str, Seat] = {}
        """The newest of each name."""
        self._by_process: dict[Process, Seat] = {}
        self._chance = Chance(chance.getrandbits(64))
        self._seeds = chance
        self._around: list[Callable[[], AbstractContextManager[Any]]] = []
        self._at_end = ExitStack()
        self.store = StoreInMemory(self)

    # --- who takes part ---

    def seat(self, name: str, *, is_worker: bool, capabilities: tuple[str, ...] = ()) -> Seat:
        """A new seat; the newest one of a name is the one that is meant by it."""
        other = self.seats.get(name)
        if other is not None and other.is_worker != is_worker:
            raise Misuse(f"name: {name!r} is a {'Worker' if other.is_worker else 'client'} in this test already")
        process = self.loop.process(name)
        process.on_death = lambda: self.network.left(process)
        made = Seat(name, process, is_worker, capabilities)
        self.seats[name] = self._by_process[process] = made
        return made

    def here(self) -> Seat:
        """The seat of the process whose step this is."""
        process = Process.current()
        if process is None:
            raise AssertionError("no process of the kit runs now")
        return self._by_process[process]

    def client_seat(self, name: str) -> Seat:
        """The seat of the clients of a name."""
        seat = self.seats.get(name) or self.seat(name, is_worker=False)
        if seat.is_worker:
            raise Misuse(f"name: {name!r} is a Worker in this test; a client needs a name of its own")
        return seat

    @property
    def workers(self) -> list[Seat]:
        """Every Worker that was started, oldest first."""
        return [seat for seat in self._by_process.values() if seat.is_worker]

    @property
    def running(self) -> list[str]:
        """The handler runs that go on in processes that live."""
        return [run for seat in self.workers if seat.is_alive for run in seat.runs]

    def raise_broken(self) -> None:
        """Raises where a Worker has ended by an error."""
        for seat in self.workers:
            if seat.error is not None:
                error, seat.error = seat.error, None
                raise WorkerBroke(f"Worker {seat.name!r} ended by {type(error).__name__}: {error}") from error

    # --- running ---

    def around(self, manager: Callable[[], AbstractContextManager[Any]]) -> None:
        """Holds one more context manager whenever the loop runs from here on."""
        self._around.append(manager)

    def at_end(self, action: Callable[[], None]) -> None:
        """Is done when all that ran is ended, last first."""
        self._at_end.callback(action)

    def drawn_seed(self) -> int:
        """A seed for somebody's own dice."""
        return self._seeds.getrandbits(32)

    def run(self, work: Coroutine[Any, Any, _T], *, logs_only_here: bool = False) -> _T:
        """Runs `work` to its end on the virtual clock."""
        with ExitStack() as stack:
            stack.enter_context(patched_clocks(self.loop))
            stack.enter_context(self._chance.drawn())
            stack.enter_context(threads_counted(self.loop))
            stack.enter_context(logs_noted(self.network.note, only=logs_only_here))
            for manager in self._around:
                stack.enter_context(manager())
            return self.loop.run_until_complete(work)

    def close(self) -> None:
        """Ends everything that is left, as a dead one: nothing of it reaches the store any more."""
        try:
            with patched_clocks(self.loop), threads_counted(self.loop), logs_noted(self.network.note, only=True):
                self.loop.bury()
                self.loop.run_until_complete(asyncio.sleep(0))  # anyio's threads end one step after their task
        finally:
            self.network.redis.close()
            self.loop.close()
            self._at_end.close()

    def story(self) -> str:
        """How to see this run again, and the last that happened in it."""
        trace = self.network.trace[-TRACE_SHOWN:]
        return "\n".join(
            [
                f"seed {self.seed}; again: --treadle-seed {self.seed}",
                f"the last {len(trace)} of {len(self.network.trace)} lines (virtual seconds, who, what):",
                *(line.replace("\n", " / ")[:LINE_CHARS] for line in trace),
            ]
        )
