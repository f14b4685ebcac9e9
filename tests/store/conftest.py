"""The legs of the store suite, and what must be true after each of its tests."""

from __future__ import annotations

import gc
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import fakeredis
import pytest
import redis.asyncio
from owned_keys import names
from servers import LEGS, emptied
from store.audit import audit
from store.world import PREFIX, FrozenClock, World, opened
from treadle.shared.store import RedisEndpoint
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.faults import FaultyEndpoint
from treadle.shared.testing.store import FakeEndpoint

STAYS, EXPIRES = names(expiring=False), names(expiring=True)
"""What may stand without an expiry, and with one, by what follows the tag: nothing else may (docs/keys.md)."""
KEY = re.compile(rf"{PREFIX}:\{{(org|[0-9.]+)\}}:(.+)", re.DOTALL)


@pytest.fixture(scope="session", autouse=True)
def _imports_are_no_leaks() -> None:
    """What is there before the first of these tests need not be looked at after each of them: 40 ms a test less."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["fakeredis", *(pytest.param(leg, marks=pytest.mark.slow) for leg in LEGS)])
def leg(request: pytest.FixtureRequest) -> str:
    """fakeredis in every run, each real server in `make test`."""
    return str(request.param)


@pytest.fixture
def clock(leg: str, monkeypatch: pytest.MonkeyPatch) -> FrozenClock | None:
    """The frozen clock of the fakeredis leg; a real server's time is its own."""
    if leg != "fakeredis":
        return None
    frozen = FrozenClock()
    monkeypatch.setattr("time.time", frozen)
    return frozen


@pytest.fixture
async def raw(leg: str, running: Callable[[str], EmbeddedServer]) -> AsyncIterator[Any]:
    """A plain client of an empty server."""
    if leg == "fakeredis":
        client: Any = fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer())
    else:
        client = redis.asyncio.Redis.from_url(emptied(running(leg)), protocol=2)
    yield client
    await client.aclose()


@pytest.fixture
async def endpoint(leg: str, running: Callable[[str], EmbeddedServer], raw: Any) -> AsyncIterator[FaultyEndpoint]:
    """The address of the store; every connection to it must be closed when the test is over."""
    if leg == "fakeredis":
        inner: Any = FakeEndpoint(raw.connection_pool.connection_kwargs["server"])
    else:
        inner = RedisEndpoint(running(leg).url)
    faulty = FaultyEndpoint(inner)
    yield faulty
    assert faulty.open == 0, f"{faulty.open} connections were left open"
    if leg != "fakeredis":

        async def is_alone() -> bool:
            return len(await raw.client_list()) == 1

        await World.eventually(is_alone, "the server has no connection left but the test's own")


@pytest.fixture
def partitions() -> int:
    """How many partitions the world has; a test that needs more overrides it."""
    return 1


@pytest.fixture
async def world(
    leg: str, endpoint: FaultyEndpoint, raw: Any, clock: FrozenClock | None, partitions: int
) -> AsyncIterator[World]:
    """A new store. Afterwards all its keys tell one story, none is left that nobody knows of, and none without an end that
    should have one."""
    async with opened(leg, endpoint, raw, clock, partitions=partitions) as made:
        yield made
        if made.audited:
            await audit(made)
        for key, (kind, _) in (await made.dump()).items():
            found = KEY.fullmatch(key)
            assert found, f"{key!r} is no key of this store"
            allowed = EXPIRES if kind.endswith(", expires") else STAYS
            assert allowed.fullmatch(found[2]), f"{key!r} ({kind}) is on no list of keys"
