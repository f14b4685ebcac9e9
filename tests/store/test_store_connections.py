"""BR-47: a wait that is cancelled gives its connection back, and leaves no answer behind for the next one to take."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
import redis
from store.world import World
from treadle.shared.model import AgentId, Capability
from treadle.shared.store import Authority
from treadle.shared.store.connection import Link
from treadle.shared.testing.faults import FaultyEndpoint

TIMES = 100


def in_use(link: Link) -> int:
    """How many connections of a link's pool are taken."""
    client = link._client.opened()  # the client behind the one that counts trips
    return len(client.connection_pool._in_use_connections)


async def answers_are_its_own(link: Link) -> None:
    """That each question gets its own answer, at once."""
    with anyio.fail_after(2):
        for number in range(20):
            said = await link.run(lambda client, number=number: client.echo(f"{number}"))  # type: ignore[misc]
            assert said == f"{number}".encode()


async def test_a_hundred_cancelled_blocking_reads_leak_no_connection(
    endpoint: FaultyEndpoint, raw: Any, leg: str
) -> None:
    chance = random.Random(1)
    link = Link(endpoint, timeout_s=10)
    await link.run(lambda client: client.ping())
    for _ in range(TIMES):
        with anyio.move_on_after(chance.uniform(0, 0.003)):
            await link.run(lambda client: client.blpop(["nothing"], timeout=5))
    assert in_use(link) == 0
    await answers_are_its_own(link)
    if (
        leg != "fakeredis"
    ):  # there a cancelled read goes on and takes the entry: its connection is no socket that closes
        await raw.rpush("nothing", "for the living")
        assert await link.run(lambda client: client.blpop(["nothing"], timeout=5)) == (b"nothing", b"for the living")
    await link.aclose()


async def test_a_hundred_cancelled_pipelines_leak_no_connection(endpoint: FaultyEndpoint) -> None:
    chance = random.Random(2)
    link = Link(endpoint, timeout_s=10)

    async def pipeline(client: Any) -> Any:
        async with client.pipeline(transaction=False) as pipe:
            for number in range(20):
                pipe.echo(f"p{number}")
            return await pipe.execute()

    await link.run(pipeline)
    for _ in range(TIMES):
        with anyio.move_on_after(chance.uniform(0, 0.002)):
            await link.run(pipeline)
    assert in_use(link) == 0
    await answers_are_its_own(link)
    await link.aclose()


async def test_a_worker_that_gives_up_waiting_a_hundred_times_has_one_connection_and_hears_what_comes(
    world: World, raw: Any
) -> None:
    authority = Authority(world.store)
    session, _ = await authority.open_session(AgentId("w"), [Capability("x")], lease_ttl_ms=60_000, nonce="n")
    for _ in range(TIMES):
        with anyio.move_on_after(0.001):
            await authority.wait(session, tokens=True, timeout_s=5)
    if world.is_real:  # as above
        assert len(await raw.client_list()) <= 3, "the store's, the one that waits, the test's own"
        await authority.poke(session)
        with anyio.fail_after(2):
            assert await authority.wait(session, tokens=True, timeout_s=5) is None
    await authority.close_session(session)
    await authority.aclose()


async def test_a_connection_that_cannot_be_closed_politely_in_time_is_closed(
    endpoint: FaultyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server stands still, or this process did: all that was asked had its answer before."""
    link = Link(endpoint, timeout_s=10)
    await answers_are_its_own(link)
    (connection,) = link._client.opened().connection_pool._available_connections
    disconnect = connection.disconnect

    async def late(**how: Any) -> None:
        await disconnect(**how)
        raise redis.exceptions.TimeoutError("Timed out closing connection after 1.0")

    monkeypatch.setattr(connection, "disconnect", late)
    await link.aclose()
    monkeypatch.undo()
    await answers_are_its_own(link)
    await link.aclose()
