"""Faults between a program and its store, on any endpoint: calls that never arrive, and calls that run and whose answer
is lost.

    endpoint = FaultyEndpoint(FakeEndpoint())
    endpoint.fault = lambda trip: Fault.REPLY_LOST if trip.number == 7 else Fault.NONE
    store = await Store.connect(endpoint)

A trip is one question and its answer: a command, a function call, or a whole pipeline. After a fault the connection is
closed, as it is when a network breaks, and the next trip makes a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Self

from ..store.connection import Endpoint, Seen
from ..store.library import build


class Fault(Enum):
    """What becomes of one trip."""

    NONE = auto()
    UNSENT = auto()
    """It never reaches the store."""
    REPLY_LOST = auto()
    """It is carried out, and nobody is told."""


@dataclass(frozen=True, slots=True)
class Trip:
    """One question: its number (from 1, over all clients of the endpoint) and its commands as they were given."""

    number: int
    commands: tuple[tuple[Any, ...], ...]

    @property
    def functions(self) -> tuple[str, ...]:
        """The library's functions that it calls, in order."""
        names = {name: function for function, name in build().functions.items()}
        called: list[str] = [command[1] for command in self.commands if str(command[0]).upper() == "FCALL"]
        return tuple(names.get(name, name) for name in called)


def no_fault(trip: Trip) -> Fault:  # noqa: ARG001 - it is one of the functions that look at the trip
    """Everything arrives."""
    return Fault.NONE


class FaultyEndpoint:
    """Another endpoint, through which `fault` decides what becomes of each trip."""

    def __init__(self, inner: Endpoint, fault: Callable[[Trip], Fault] = no_fault) -> None:
        self.inner = inner
        self.fault = fault
        self.trips = 0
        self.open = 0
        """Connections that were made and not closed."""
        self.generation = 0

    @property
    def shown(self) -> str:
        return self.inner.shown

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        return _Client(self, lambda: self.inner.client(timeout_s=timeout_s, seen=seen))

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:
        return _SyncClient(self, lambda: self.inner.sync_client(timeout_s=timeout_s, seen=seen))

    def cut(self) -> None:
        """Cuts every connection that is open now: the next trip of each fails unsent, the one after it connects anew."""
        self.generation += 1

    def decide(self, commands: tuple[tuple[Any, ...], ...]) -> Fault:
        """Counts a trip and asks what becomes of it."""
        self.trips += 1
        return self.fault(Trip(self.trips, commands))


def _lost(commands: tuple[tuple[Any, ...], ...]) -> ConnectionResetError:
    return ConnectionResetError(f"the connection was cut ({commands[0][0] if commands else 'an empty pipeline'})")


class _Connection:
    """The one connection of a client, made at its first trip as a real one is."""

    def __init__(self, endpoint: FaultyEndpoint, connect: Callable[[], Any]) -> None:
        self.endpoint = endpoint
        self._connect = connect
        self._client: Any = None
        self._generation = 0

    @property
    def is_cut(self) -> bool:
        return self._client is not None and self._generation != self.endpoint.generation

    def opened(self) -> Any:
        if self._client is None:
            self._client = self._connect()
            self._generation = self.endpoint.generation
            self.endpoint.open += 1
        return self._client

    def taken(self) -> Any:
        """The client to close, or None."""
        client, self._client = self._client, None
        if client is not None:
            self.endpoint.open -= 1
        return client


class _Client(_Connection):
    """Looks like an asyncio client: any method of it is a trip."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def command(*args: Any, **named: Any) -> Any:
            shown = args if name == "execute_command" else (name.upper(), *args)
            return await self.trip((shown,), lambda client: getattr(client, name)(*args, **named))

        return command

    def pipeline(self, *, transaction: bool = True) -> _Pipeline:
        return _Pipeline(self, transaction)

    async def trip(self, commands: tuple[tuple[Any, ...], ...], ask: Callable[[Any], Awaitable[Any]]) -> Any:
        fault = self.endpoint.decide(commands)
        if fault is Fault.UNSENT or self.is_cut:
            await self.aclose()
            raise _lost(commands)
        if fault is Fault.REPLY_LOST:
            with suppress(Exception):  # a refusal is an answer, lost like any other
                await ask(self.opened())
            await self.aclose()
            raise _lost(commands)
        return await ask(self.opened())

    async def aclose(self) -> None:
        client = self.taken()
        if client is not None:
            await client.aclose()


class _Pipeline:
    """Commands kept until `execute`, then sent as one trip."""

    def __init__(self, client: _Client, transaction: bool) -> None:
        self._client = client
        self._transaction = transaction
        self._kept: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._kept.clear()

    def __getattr__(self, name: str) -> Callable[..., _Pipeline]:
        def keep(*args: Any, **named: Any) -> _Pipeline:
            self._kept.append((name, args, named))
            return self

        return keep

    async def execute(self, *, raise_on_error: bool = True) -> Any:
        kept = list(self._kept)
        commands = tuple(args if name == "execute_command" else (name.upper(), *args) for name, args, _ in kept)

        async def ask(client: Any) -> Any:
            async with client.pipeline(transaction=self._transaction) as pipe:
                for name, args, named in kept:
                    getattr(pipe, name)(*args, **named)
                return await pipe.execute(raise_on_error=raise_on_error)

        return await self._client.trip(commands, ask)


class _SyncClient(_Connection):
    """Looks like a synchronous client, without pipelines."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def command(*args: Any, **named: Any) -> Any:
            shown = (args if name == "execute_command" else (name.upper(), *args),)
            fault = self.endpoint.decide(shown)
            if fault is Fault.UNSENT or self.is_cut:
                self.close()
                raise _lost(shown)
            if fault is Fault.REPLY_LOST:
                with suppress(Exception):
                    getattr(self.opened(), name)(*args, **named)
                self.close()
                raise _lost(shown)
            return getattr(self.opened(), name)(*args, **named)

        return command

    def close(self) -> None:
        client = self.taken()
        if client is not None:
            client.close()
