"""The store's server on a virtual clock: what is sent runs there, whatever became of its sender.

A call is a message to the server, run in nobody's process after a delay, and an answer on the way back: so a caller may
be dead, stopped or tired of waiting by then. The commands run on fakeredis with the library's real Lua. `wires.py` has
the ways to it; what becomes of each exchange is the weather's to say.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Protocol, cast

import fakeredis
from redis.exceptions import ConnectionError, RedisError

from ..store.library import build
from .clock import Process, VirtualLoop

Command = tuple[Any, ...]
Answer = Callable[[list[Any] | BaseException], None]


@dataclass(frozen=True, slots=True)
class Route:
    """What becomes of one exchange."""

    there_s: float
    """Until its first command runs."""
    back_s: float
    """From its last command to the answer."""
    runs: int
    """How many of its commands run."""
    is_answered: bool
    fault: str = ""
    """What went wrong on the way, for the trace; '' for nothing."""


class Weather(Protocol):
    """What decides how every exchange goes."""

    def route(self, process: Process | None, commands: Sequence[Command], timeout_s: float) -> Route:
        """What becomes of commands that a process sends in one go and waits so long for."""
        ...

    def gap_s(self) -> float:
        """Between two commands of one pipeline: others' calls may run there."""
        ...

    def breaks_at_once(self) -> bool:
        """Whether a lost exchange is seen as a broken connection, or only when its time is over."""
        ...


class Caller(Protocol):
    """One connection, seen from the server."""

    process: Process | None


@dataclass(eq=False)
class _Waiter:
    """A blocking read at the server: tried again after each write, in the order they came."""

    client: Caller
    generation: int
    attempt: Callable[[], Any]
    answer: Answer
    timer: asyncio.TimerHandle | None = None


def _unwatched(_process: Process | None, _command: Command, _answer: Any) -> None:
    """Is told of each command, and does nothing."""


class Network:
    """The one server, and how far each process is from it."""

    def __init__(self, loop: VirtualLoop, weather: Weather, chance: random.Random) -> None:
        self.loop = loop
        self.weather = weather
        self.server = fakeredis.FakeServer()
        self.redis: Any = fakeredis.FakeRedis(server=self.server)
        self.replid = "server-1"
        self.generation = 1
        self.trace: list[str] = []
        self.watch: Callable[[Process | None, Command, Any], None] = _unwatched
        """Told of every command that ran."""
        self.unnoted: set[Process] = set()
        """Whose commands leave no line in the trace: those of who only looks on."""
        self.lost_bells: set[str] = set()
        """Inboxes from which something was popped that nobody got."""
        self.heard_bells: list[tuple[str, Process | None]] = []
        """Every pop of an inbox, with who asked."""
        self._chance = chance
        self._names = {name: function for function, name in build().functions.items()}
        self._waiters: list[_Waiter] = []
        self._cut_until: dict[Process, float] = {}

    # --- faults ---

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {text}")

    def cut(self, process: Process, for_s: float) -> None:
        """Lets nothing pass between a process and the server for a while."""
        self._cut_until[process] = self.loop.time() + for_s

    def heal(self, process: Process | None = None) -> None:
        """Ends the cut of a process, of all where none is named."""
        if process is None:
            self._cut_until.clear()
        else:
            self._cut_until.pop(process, None)

    def flush_library(self) -> None:
        """Makes the server forget the function library."""
        self.redis.function_flush()

    def change_server(self) -> None:
        """Breaks every connection; who connects again meets another server with the same data."""
        self.generation += 1
        self.replid = f"server-{self.generation}"
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._finish(waiter, ConnectionError("the server went away"))

    def lose_tokens(self) -> None:
        """Deletes a list of wake tokens, if there is one."""
        lists = sorted(key for key in self.redis.keys("*@wake:*"))
        if lists:
            self.redis.delete(self._chance.choice(lists))

    def is_cut(self, process: Process | None) -> bool:
        return process is not None and self._cut_until.get(process, 0.0) > self.loop.time()

    def left(self, process: Process) -> None:
        """A process died: the server closes its connections."""
        for waiter in [waiter for waiter in self._waiters if waiter.client.process is process]:
            self._drop(waiter)

    # --- what runs at the server ---

    def function(self, command: Command) -> str:
        """The library's function that a command calls; '' where it calls none."""
        return self._names.get(str(command[1]), str(command[1])) if command[0] == "FCALL" else ""

    def shown(self, command: Command) -> str:
        """A command as the trace has it."""
        words = [word.decode("latin-1") if isinstance(word, bytes) else str(word) for word in command[:24]]
        if words[0] == "FCALL":
            words = [self.function(command), words[3].removesuffix("@meta"), *words[4:]]
        return " ".join(word if len(word) <= 40 else word[:37] + "..." for word in words)

    def run(self, process: Process | None, command: Command, options: dict[str, Any]) -> Any:
        """Runs one command now; its error is a value."""
        answer: Any
        try:
            answer = self.redis.execute_command(*command, **options)
        except RedisError as error:
            answer = error
        if process not in self.unnoted:
            who = process.name if process else "-"
            self.note(f"{who:>10} {self.shown(command)} -> {_brief(answer)}")
        self.watch(process, command, answer)
        if command[0] in ("FCALL", "RPUSH"):
            self._serve_waiters()
        return answer

    def block(self, client: Caller, generation: int, command: Command, answer: Answer) -> None:
        """Runs a BLPOP or a blocking XREAD: answered at once, or when there is something, or at its time-out."""
        if command[0] == "BLPOP":
            attempt, timeout_s = self._pop(client, command[1:-1]), float(command[-1])
        else:
            attempt, timeout_s = self._read(command), float(command[command.index(b"BLOCK") + 1]) / 1000
        waiter = _Waiter(client, generation, attempt, answer)
        found = attempt()
        if found is not None:
            answer([found])
            return
        waiter.timer = self.loop.call_later(timeout_s, self._finish, waiter, [None], context=Context())
        self._waiters.append(waiter)

    def _pop(self, client: Caller, keys: Command) -> Callable[[], Any]:
        names = [key if isinstance(key, bytes) else str(key).encode() for key in keys]
        database = self.server.dbs[0]

        def attempt() -> Any:
            for name in names:
                if name in database:
                    entry = self.redis.lpop(name.decode())
                    who = client.process.name if client.process else "-"
                    self.note(f"{who:>10} BLPOP {name.decode()} -> {entry!r}")
                    if b"@inbox:" in name:
                        self.heard_bells.append((name.decode(), client.process))
                    if entry is not None:
                        return (name, entry)
            return None

        return attempt

    def _read(self, command: Command) -> Callable[[], Any]:
        at = command.index(b"BLOCK")
        plain = command[:at] + command[at + 2 :]

        def attempt() -> Any:
            return self.redis.execute_command(*plain) or None

        return attempt

    def _serve_waiters(self) -> None:
        for waiter in list(self._waiters):
            found = waiter.attempt()
            if found is not None:
                self._finish(waiter, [found])

    def _finish(self, waiter: _Waiter, answer: list[Any] | BaseException) -> None:
        self._drop(waiter)
        waiter.answer(answer)

    def _drop(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if waiter.timer is not None:
            waiter.timer.cancel()

    def abandon(self, client: Caller) -> None:
        """A client closed its connection."""
        for waiter in [waiter for waiter in self._waiters if waiter.client is client]:
            self._drop(waiter)


def _brief(answer: Any) -> str:
    if isinstance(answer, RedisError):
        return f"{type(answer).__name__}: {str(answer)[:100]}"
    if isinstance(answer, list):
        parts = cast("list[object]", answer)[:2]
        text = " | ".join(part.decode("latin-1") if isinstance(part, bytes) else repr(part) for part in parts)
        return text.replace("\n", " / ")[:160]
    return repr(answer)[:100]
