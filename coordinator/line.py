"""The connections of one client: asked again where the store cannot answer, and of their own where they wait."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from treadle.shared.errors import Misuse, StoreChanged, Unavailable
from treadle.shared.model import GroupId, ItemId
from treadle.shared.policy import Policy
from treadle.shared.store import Endpoint, Store, policies
from treadle.shared.store.connection import BLOCK_MARGIN_S

from .doorbells import Doorbells

ATTEMPTS_MAX = 12
"""Of one call that finds the store unavailable: 6 to 13 s of waiting altogether."""
BACKOFF_S, BACKOFF_S_MAX = 0.05, 2.0
WAITERS_MAX = 32
"""Connections that wait at the same time; further waits take turns."""
WAIT_S = 5.0
"""How long one wait blocks its connection before it is answered all the same, with nothing."""
CROWDED_WAIT_S = 0.05
"""The same while others wait for a connection."""

_log = logging.getLogger("treadle.client")
_T = TypeVar("_T")


class Line:
    """The connections of one client: one for calls, and those on which it waits, made as they are needed."""

    def __init__(self, endpoint: str | Endpoint, prefix: str, actor: str, partitions: int | None) -> None:
        self._actor = actor
        self._endpoint, self._prefix, self._partitions = endpoint, prefix, partitions
        self._calls: Store | None = None
        self._policy: Policy | None = None
        self._waiting: set[Store] = set()
        self._idle: list[Store] = []
        self._turns = anyio.Semaphore(WAITERS_MAX)
        self._doorbells = Doorbells(self)

    @property
    def actor(self) -> str:
        return self._actor

    async def open(self) -> None:
        """Connect; Unavailable where the store cannot be reached, Misuse where it has another format or this is open."""
        if self._calls is not None:
            raise Misuse("client: it is open already; make another one with Client.connect(...)")
        self._calls = await Store.connect(self._endpoint, prefix=self._prefix, partitions=self._partitions)

    async def aclose(self) -> None:
        """Close every connection; twice is fine."""
        calls, self._calls = self._calls, None
        stores = [*self._waiting, *([calls] if calls else [])]
        self._waiting.clear()
        self._idle.clear()
        for store in stores:
            await store.aclose()

    async def ask(self, question: Callable[[Store], Awaitable[_T]]) -> _T:
        """As `Asking.ask`, on the connection for calls."""

        async def ask() -> _T:
            return await question(self._opened())

        async def adopt() -> None:
            await self._opened().adopt()

        return await repeated(ask, adopt)

    async def policy(self, *, anew: bool = False) -> Policy:
        """As `Asking.policy`."""
        if anew or self._policy is None:
            self._policy = await self.ask(policies.known)
        return self._policy

    async def wait(self, question: Callable[[Store, float], Awaitable[_T]]) -> _T:
        """As `Asking.wait`, on a connection that nothing else uses meanwhile, for at most WAIT_S."""

        async def ask() -> _T:
            async with self._turns:
                store = await self._borrow()
                crowded = self._turns.statistics().tasks_waiting > 0
                try:
                    answer = await question(store, CROWDED_WAIT_S if crowded else WAIT_S)
                except BaseException:  # cut off in the middle, it is in doubt
                    self._waiting.discard(store)
                    await store.aclose()
                    raise
                if store in self._waiting:
                    self._idle.append(store)
                return answer

        return await repeated(ask, None)

    async def wait_end(self, group: GroupId, item: ItemId | None) -> None:
        """As `Asking.wait_end`."""
        await self._doorbells.wait(group, item)

    async def _borrow(self) -> Store:
        partitions = self._opened().partitions
        if self._idle:
            return self._idle.pop()
        store = await Store.connect(
            self._endpoint,
            prefix=self._prefix,
            partitions=partitions,
            timeout_s=WAIT_S + BLOCK_MARGIN_S,
            known=self._opened().id,
        )
        self._waiting.add(store)
        return store

    def _opened(self) -> Store:
        if self._calls is None:
            raise Misuse("client: it is not open; write `async with Client.connect(...) as client:`")
        return self._calls


async def repeated(ask: Callable[[], Awaitable[_T]], adopt: Callable[[], Awaitable[object]] | None) -> _T:
    """Ask until there is an answer, at most ATTEMPTS_MAX times, waiting longer each time, never in step with others."""
    other_server = False
    for attempt in range(ATTEMPTS_MAX):
        try:
            if other_server and adopt is not None:
                await adopt()
                other_server = False
            return await ask()
        except (Unavailable, StoreChanged) as problem:
            if attempt == ATTEMPTS_MAX - 1:
                raise
            other_server = other_server or isinstance(problem, StoreChanged)
            _log.info("asking again: %s", problem)
        await anyio.sleep(random.uniform(0.5, 1.0) * min(BACKOFF_S_MAX, BACKOFF_S * 2**attempt))
    raise AssertionError("the last attempt returns or raises")
