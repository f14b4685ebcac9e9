"""What hypothesis' state machines of this folder stand on: a store in memory on a clock that they move, step by step.

A machine is one class and two tests: a short round whose examples are always the same, and a long one of `make test`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar
from unittest import mock

import fakeredis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine
from store.audit import audit
from store.world import FrozenClock, World, opened
from treadle.shared.testing.store import FakeEndpoint

T = TypeVar("T")
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
QUICK = settings(max_examples=15, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=_SLOW)
"""Two or three seconds."""
DEEP = settings(max_examples=80, stateful_step_count=60, deadline=None, suppress_health_check=_SLOW)
"""About a minute, other examples each time."""


class StoreMachine(RuleBasedStateMachine):
    """Holds the world and the clock; at the end the whole store is audited."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FrozenClock()
        self._patch = mock.patch("time.time", self.clock)
        self._patch.start()
        self._stack = AsyncExitStack()
        self.world: World = self.do(self._open())

    async def _open(self) -> World:
        server = fakeredis.FakeServer()
        raw = fakeredis.FakeAsyncRedis(server=server)
        self._stack.push_async_callback(raw.aclose)
        return await self._stack.enter_async_context(opened("fakeredis", FakeEndpoint(server), raw, self.clock))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    async def due(self, kinds: str) -> dict[str, int]:
        """The due entries of some kinds, with their times."""
        rows = await self.world.raw.zrange(self.world.key("@due"), 0, -1, withscores=True)
        return {member.decode(): int(score) for member, score in rows if chr(member[0]) in kinds}

    def teardown(self) -> None:
        try:
            self.do(audit(self.world))
        finally:
            self.do(self._stack.aclose())
            self._patch.stop()
            self.loop.close()
