"""The ways to the simulated server: an endpoint for each process, with clients that look like redis-py's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, Self

from redis.commands import AsyncCoreCommands
from redis.exceptions import ConnectionError, TimeoutError

from ..errors import Misuse
from ..store.connection import Lineage, Seen
from .clock import Process
from .network import Answer, Command, Network, Route

LOST_CALL = "lost_call"
"""The fault of a route on which nothing arrives."""


class NetworkEndpoint:
    """One process's way to the store."""

    def __init__(self, network: Network, process: Process | None) -> None:
        self.network = network
        self.process = process

    @property
    def shown(self) -> str:
        return "simulated"

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        return WireClient(self.network, self.process, timeout_s, seen)

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:
        return WireSyncClient(self.network, self.process, timeout_s, seen)


class WireClient(AsyncCoreCommands):
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

    def pipeline(self, *, transaction: bool = True) -> WirePipeline:
        assert not transaction, "the store uses plain pipelines only"
        return WirePipeline(self)

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
                lambda route, answer: self._travel(commands, generation, route, answer),
                [command for command, _ in commands],
            )
        except BaseException:
            self._close()
            raise

    async def _connect(self) -> None:
        def greet(_: Route, answer: Answer) -> None:
            answer([Lineage(self._network.replid, self._network.replid)])

        generation = self._network.generation
        lineage = (await self._ask(greet, [("PING",)]))[0]
        self._generation = generation
        self._seen(lineage)

    async def _ask(self, travel: Callable[[Route, Answer], None], commands: Sequence[Command]) -> list[Any]:
        network, process = self._network, self.process
        if asyncio.get_running_loop() is not network.loop:
            raise Misuse(
                "the store of this test is on a virtual clock, and can be asked on the test's own loop only: make an async "
                "fixture that asks it a plain `async def`, and await that in the test"
            )
        if process is not None and process.is_dead:
            raise ConnectionError("this process is dead")
        route = network.weather.route(process, commands, self._timeout_s)
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


class WirePipeline(AsyncCoreCommands):
    """Commands that are kept until `execute`, then sent in one go."""

    _event_dispatcher: Any = None

    def __init__(self, client: WireClient) -> None:
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


class WireSyncClient:
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
        route = network.weather.route(process, [args], self._timeout_s)
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
        raise TimeoutError("no answer in time") if route.fault != LOST_CALL else ConnectionError("broken")

    def close(self) -> None:
        self._generation = 0
