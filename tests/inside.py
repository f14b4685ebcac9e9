"""Workers inside the test's own process, on a store in memory, and an endpoint that dies with its Worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
from treadle.shared.model import AgentId, Capability
from treadle.shared.names import token
from treadle.shared.store import Endpoint
from treadle.shared.store.connection import Seen
from treadle.worker import Handler, Worker

READY_WITHIN_S = 30.0
Start = Callable[..., AbstractAsyncContextManager[Worker]]
"""How a story starts a Worker (`tests/story/conftest.py`)."""


def a_worker(endpoint: Endpoint, /, name: str = "one", *, ttl_s: float = 0.4, **offers: Any) -> Worker:
    """A Worker of plain functions by capability (`name="..."`, `slots=2` and other terms of a Worker apart)."""
    functions = {key: offers.pop(key) for key, value in list(offers.items()) if callable(value)}
    handlers = {Capability(key): Handler(Capability(key), "1.0.0", value) for key, value in functions.items()}
    return Worker(handlers, endpoint=endpoint, name=AgentId(token(name, field="name")), lease_ttl_s=ttl_s, **offers)


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncIterator[None]:
    """Workers that are ready, and stopped and gone afterwards."""
    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.run)
        with anyio.fail_after(READY_WITHIN_S):
            for worker in workers:
                await worker.ready.wait()
        try:
            yield
        finally:
            for worker in workers:
                worker.stop()


class Mortal:
    """An endpoint that carries out `lives` commands, those of a pipeline one by one, and not one more.

    The last one's reply never comes either: its process is dead by then. What waits on it waits for ever.
    """

    def __init__(self, inner: Endpoint, lives: int) -> None:
        self.inner = inner
        self.lives = lives
        self.dead = anyio.Event()
        self.shown = inner.shown

    def client(self, *, timeout_s: float, seen: Seen) -> Any:
        return _Client(self, self.inner.client(timeout_s=timeout_s, seen=seen))

    def sync_client(self, *, timeout_s: float, seen: Seen) -> Any:
        return _SyncClient(self, self.inner.sync_client(timeout_s=timeout_s, seen=seen))

    def spend(self, wanted: int) -> int:
        """How many of so many commands are still carried out."""
        granted = min(wanted, self.lives)
        self.lives -= granted
        if self.lives == 0:
            self.dead.set()
        return granted


class _Client:
    def __init__(self, endpoint: Mortal, client: Any) -> None:
        self._endpoint, self._client = endpoint, client

    async def aclose(self) -> None:
        await self._client.aclose()

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def command(*args: Any, **named: Any) -> Any:
            answer = await getattr(self._client, name)(*args, **named) if self._endpoint.spend(1) else None
            return await self.answered(answer)

        return command

    def pipeline(self, *, transaction: bool) -> _Pipeline:
        del transaction
        return _Pipeline(self._endpoint, self, self._client)

    async def answered(self, answer: Any) -> Any:
        if self._endpoint.dead.is_set():
            await anyio.sleep_forever()
        return answer


class _Pipeline:
    def __init__(self, endpoint: Mortal, client: _Client, inner: Any) -> None:
        self._endpoint, self._client, self._inner = endpoint, client, inner
        self._kept: list[tuple[str, tuple[Any, ...]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._kept.clear()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self._kept.append((name, args))

    async def execute(self, *, raise_on_error: bool = True) -> Any:
        granted = self._kept[: self._endpoint.spend(len(self._kept))]
        answer = None
        if granted:
            async with self._inner.pipeline(transaction=False) as pipe:
                for name, args in granted:
                    getattr(pipe, name)(*args)
                answer = await pipe.execute(raise_on_error=raise_on_error)
        return await self._client.answered(answer)


class _SyncClient:
    def __init__(self, endpoint: Mortal, client: Any) -> None:
        self._endpoint, self._client = endpoint, client

    def close(self) -> None:
        self._client.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def command(*args: Any, **named: Any) -> Any:
            answer = getattr(self._client, name)(*args, **named) if self._endpoint.spend(1) else None
            if self._endpoint.dead.is_set():
                raise ConnectionResetError("this process is dead")
            return answer

        return command
