"""A store in memory for each story, and Workers that stop when it is told."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from inside import Start
from treadle.shared.model import AgentId
from treadle.shared.store import Endpoint
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Worker
from treadle.worker.loading import collect


@pytest.fixture
def store() -> FakeEndpoint:
    """Where Missions and Workers meet: the same function library as on a server, on fakeredis."""
    return FakeEndpoint()


@pytest.fixture
def start(request: pytest.FixtureRequest, store: FakeEndpoint) -> Start:
    """`async with start("w1", slots=2):` - a Worker of the handlers that stand in the story's own file."""
    handlers = collect(sys.modules[request.module.__name__])

    @asynccontextmanager
    async def started(
        name: str,
        *,
        slots: int = 1,
        resources: dict[str, int] | None = None,
        through: Endpoint | None = None,
        ttl_s: float = 0.5,
    ) -> AsyncIterator[Worker]:
        worker = Worker(
            handlers,
            endpoint=through or store,
            name=AgentId(name),
            slots=slots,
            resources=resources,
            lease_ttl_s=ttl_s,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await worker.ready.wait()
            yield worker
            worker.stop()

    return started
