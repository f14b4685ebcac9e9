"""The store's server and every connection to it, on a virtual clock: what is sent runs there, whatever became of its sender.

A call is a message to the server, run in nobody's process after a delay, and an answer on the way back: so a caller may
be dead, stopped or tired of waiting by then. The commands run on fakeredis with the library's real Lua.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Self

import fakeredis
from redis.commands import AsyncCoreCommands
from redis.exceptions import ConnectionError, RedisError, TimeoutError
from sim.weather import Fault, Route, Weather
from treadle.shared.store.connection import Lineage, Seen
from treadle.shared.store.library import build
from treadle.shared.testing.clock import Process, VirtualLoop

Command = tuple[Any, ...]
Answer = Callable[[list[Any] | BaseException], None]


@dataclass(eq=False)
class _Waiter:
    """A blocking read at the server: tried again after each write, in the order they came."""

    client: SimClient
    generation: int
    attempt: Callable[[], Any]
    answer: Answer
    timer: asyncio.TimerHandle | None = None


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
        self.watch: Callable[[Process | None, Command, Any], None] = lambda *_: None
        """Told of every command that ran."""
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

    def heal(self) -> None:
        self._cut_until.clear()

    def flush_library(self) -> None:
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

    def shown(self, command: Command) -> str:
        words = [word.decode("latin-1") if isinstance(word, bytes) else str(word) for word in command[:24]]
        if words[0] == "FCALL":
            words = [self._names.get(words[1], words[1]), words[3].removesuffix("@meta"), *words[4:]]
        return " ".join(word if len(word) <= 40 else word[:37] + "..." for word in words)

    def run(self, process: Process | None, command: Command, options: dict[str, Any]) -> Any:
        """Runs one command now; its error is a value."""
        answer: Any
        try:
            answer = self.redis.execute_command(*command, **options)
        except RedisError as error:
            answer = error
        who = process.name if process else "-"
        self.note(f"{who:>10} {self.shown(command)} -> {_brief(answer)}")
        self.watch(process, command, answer)
        if command[0] in ("FCALL", "RPUSH"):
            self._serve_waiters()
        return answer

    def block(self, client: SimClient, generation: int, command: Command, answer: Answer) -> None:
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

    def _pop(self, client: SimClient, keys: Command) -> Callable[[], Any]:
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

    def abandon(self, client: SimClient) -> None:
        """A client closed its connection."""
        for waiter in [waiter for waiter in self._waiters if waiter.client is client]:
            self._drop(waiter)


def _brief(answer: Any) -> str:
    if isinstance(answer, RedisError):
        return f"{type(answer).__name__}: {str(answer)[:100]}"
    if isinstance(answer, list):
        text = " | ".join(part.decode("latin-1") if isinstance(part, bytes) else repr(part) for part in answer[:2])
        return text.replace("\n", " / ")[:160]
    return repr(answer)[:100]


class SimEndpoint:
    """One process's way to the store."""

    def __init__(self, network: Network, process: Process | None) -> None:
        self.network = network
        self.process = process

    @property
    def shown(self) -> str:
        return "simulated"

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        return SimClient(self.network, self.process, timeout_s, seen)

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:
        return SimSyncClient(self.network, self.process, timeout_s, seen)


class SimClient(AsyncCoreCommands):
    """Looks like `redis.asyncio.Redis` with one connection, made at its first command and after each failure."""

    _event_dispatcher: Any = None

    def __init__(self, network: Network, process: Process | None, timeout_s: float, seen: Seen) -> None:
        self.process = process
        self._network = network
        self._timeout_s = timeout_s
        self._seen = seen
        self._generation = 0

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        answer = (await self.exchange([(args, options)]))[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pipeline(self, *, transaction: bool = True) -> SimPipeline:
        assert not transaction, "the store uses plain pipelines only"
        return SimPipeline(self)

    async def aclose(self) -> None:
        self._close()

    def _close(self) -> None:
        self._generation = 0
        self._network.abandon(self)

    async def exchange(self, commands: Sequence[tuple[Command, dict[str, Any]]]) -> list[Any]:
        """Sends commands in one go and waits for their answers, as long as a socket's time-out lets it."""
        try:
            if self._generation != self._network.generation:
                if self._generation:
                    raise ConnectionError("the connection is broken")
                await self._connect()
            generation = self._generation
            return await self._ask(
                lambda route, answer: self._travel(commands, generation, route, answer), len(commands)
            )
        except BaseException:
            self._close()
            raise

    async def _connect(self) -> None:
        def greet(_: Route, answer: Answer) -> None:
            answer([Lineage(self._network.replid, self._network.replid)])

        generation = self._network.generation
        lineage = (await self._ask(greet, 1))[0]
        self._generation = generation
        self._seen(lineage)

    async def _ask(self, travel: Callable[[Route, Answer], None], commands: int) -> list[Any]:
        network, process = self._network, self.process
        if process is not None and process.is_dead:
            raise ConnectionError("this process is dead")
        route = network.weather.route(commands, self._timeout_s)
        if route.fault:
            network.note(f"{process.name if process else '-':>10} {route.fault}")
        future: asyncio.Future[list[Any]] = network.loop.create_future()

        def settle(answer: list[Any] | BaseException) -> None:
            if future.done():
                self._spill(answer)
            elif isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        def answered(answer: list[Any] | BaseException) -> None:
            if isinstance(answer, list) and (not route.is_answered or network.is_cut(process)):
                self._spill(answer)
                if network.is_cut(process) or not network.weather.breaks_at_once():
                    return  # the caller waits for its time-out
                answer = ConnectionError("the answer was lost")
            network.loop.call_later(route.back_s, settle, answer, context=Context())

        if not network.is_cut(process):
            network.loop.call_later(route.there_s, travel, route, answered, context=Context())
        late = network.loop.call_later(self._timeout_s, settle, TimeoutError("no answer in time"), context=Context())
        try:
            return await future
        finally:
            late.cancel()

    def _travel(
        self, commands: Sequence[tuple[Command, dict[str, Any]]], generation: int, route: Route, answer: Answer
    ) -> None:
        """At the server: runs the commands one by one, with room for others between them."""
        network = self._network
        if generation != network.generation:
            return answer(ConnectionError("the server went away"))
        command = commands[0][0]
        if command[0] == "BLPOP" or (command[0] == "XREAD" and b"BLOCK" in command):
            if not route.runs:
                return answer(ConnectionError("the call was lost"))
            return network.block(self, generation, command, answer)
        found: list[Any] = []

        def step() -> None:
            if network.generation != generation:
                return answer(ConnectionError("the server went away"))
            if len(found) < route.runs:
                found.append(network.run(self.process, *commands[len(found)]))
            if len(found) == len(commands):
                return answer(found)
            if len(found) == route.runs:
                return answer(ConnectionError("the call was lost"))
            network.loop.call_later(network.weather.gap_s(), step, context=Context())
            return None

        return step()

    def _spill(self, answer: list[Any] | BaseException) -> None:
        """An answer that nobody gets: what a BLPOP took out is gone."""
        popped = answer[0] if isinstance(answer, list) and answer else None
        if isinstance(popped, tuple) and isinstance(popped[0], bytes) and b"@inbox:" in popped[0]:
            self._network.lost_bells.add(popped[0].decode())


class SimPipeline(AsyncCoreCommands):
    """Commands that are kept until `execute`, then sent in one go."""

    _event_dispatcher: Any = None

    def __init__(self, client: SimClient) -> None:
        self._client = client
        self._commands: list[tuple[Command, dict[str, Any]]] = []

    def execute_command(self, *args: Any, **options: Any) -> Self:
        self._commands.append((args, options))
        return self

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self._commands = self._commands, []
        answers = await self._client.exchange(commands) if commands else []
        if raise_on_error:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._commands.clear()


class SimSyncClient:
    """The renewal thread's client: its calls take no virtual time, the faults are the same."""

    def __init__(self, network: Network, process: Process | None, timeout_s: float, seen: Seen) -> None:
        self._network = network
        self._process = process
        self._timeout_s = timeout_s
        self._seen = seen
        self._generation = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        network, process = self._network, self._process
        if (process is not None and process.is_dead) or network.is_cut(process):
            self._generation = 0
            raise ConnectionError("not reachable")
        if self._generation != network.generation:
            if self._generation:
                self._generation = 0
                raise ConnectionError("the connection is broken")
            self._seen(Lineage(network.replid, network.replid))
            self._generation = network.generation
        route = network.weather.route(1, self._timeout_s)
        if route.fault:
            network.note(f"{process.name if process else '-':>10} renewal: {route.fault}")
        if route.there_s + route.back_s >= self._timeout_s:
            network.loop.call_later(route.there_s, network.run, process, args, options, context=Context())
        elif route.runs:
            answer = network.run(process, args, options)
            if route.is_answered:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        self._generation = 0
        raise TimeoutError("no answer in time") if route.fault is not Fault.LOST_CALL else ConnectionError("broken")

    def close(self) -> None:
        self._generation = 0
