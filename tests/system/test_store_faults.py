"""A store that is there and cannot answer: demoted, loading, busy. Workers wait for it, and nothing is counted as a failure."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
import pytest
import redis
from fleet import Desk, Fleet, Member, chain, sleeper, until
from ledger import faults_of, history_of, runs_apart, runs_of
from treadle.shared.model import EventKind
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

K = EventKind
WAITS = re.compile("waiting for the store: .*", re.MULTILINE)


def waits_of(member: Member) -> list[str]:
    return WAITS.findall(member.log_text())


async def works_on(fleet: Fleet, desk: Desk, mission: str) -> None:
    """That every loop of every Worker is alive: each is woken, takes, renews past its TTL, saves and ends work."""
    work = [sleeper(f"s{number}", 2.5 * fleet.ttl_s) for number in range(fleet.slots * len(fleet.members))]
    submitted = await desk.submit(mission, *work)
    results = await submitted.results(timeout=20)
    assert set(results.values()) == {1}, fleet.tell()
    used = {line.worker for line in fleet.lines() if line.mission == mission}
    assert used == {member.name for member in fleet.members}


async def test_br_27_a_server_that_is_a_replica_for_two_seconds_fails_nothing_and_stops_no_loop(
    fleet: Fleet, desk: Desk
) -> None:
    fleet.ttl_s = 2.0
    work = [chain(f"i{number}", steps=40, step_s=0.06, again_s=0.02) for number in range(3)]
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: len(fleet.lines(what="step")) > 10, description="they work", of=tuple(fleet.members))
    with redis.Redis.from_url(desk.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await anyio.sleep(2.0)
        client.execute_command("REPLICAOF", "NO", "ONE")
    assert set(await mission.results(timeout=30)) == {one.id for one in work}, fleet.tell()
    await desk.store.adopt()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    assert not await desk.of_kind("m", K.FAILED)
    for member in fleet.members:
        assert member.child.poll() is None
        assert any("cannot answer now" in line for line in waits_of(member)), member.tail()
        assert not member.said("ERROR"), member.tail()
    await works_on(fleet, desk, "n")


@asynccontextmanager
async def loading(server: EmbeddedServer, folder: Path, seconds: float) -> AsyncIterator[str]:
    """A socket in front of the server that answers LOADING for so long, and is the server from then on."""
    socket = folder / "loading"
    until_s = anyio.current_time() + seconds
    listener = await anyio.create_unix_listener(socket)

    async def serve(client: anyio.abc.ByteStream) -> None:
        async with client:
            try:
                while anyio.current_time() < until_s:
                    raw = await client.receive()
                    if anyio.current_time() >= until_s:
                        return  # the connection is cut; the next one reaches the server
                    count = len(re.findall(rb"\*\d+\r\n", raw))
                    await client.send(b"-LOADING Redis is loading the dataset in memory\r\n" * count)
                async with await anyio.connect_unix(server.socket_path) as behind, anyio.create_task_group() as tasks:
                    tasks.start_soon(pump, client, behind, tasks.cancel_scope)
                    tasks.start_soon(pump, behind, client, tasks.cancel_scope)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def pump(source: anyio.abc.ByteStream, sink: anyio.abc.ByteStream, scope: anyio.CancelScope) -> None:
        try:
            async for raw in source:
                await sink.send(raw)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            scope.cancel()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"unix://{socket}?db=0"
        tasks.cancel_scope.cancel()


async def test_br_31_a_server_that_loads_its_data_is_waited_for(
    fleet: Fleet, desk: Desk, server: EmbeddedServer, place: Path
) -> None:
    """For longer than a server that is not there would be."""
    loads_s = 5.0
    async with loading(server, place / "fleet", loads_s) as url:
        fleet.url = url
        member = fleet.start()
        mission = await desk.submit("m", chain("a", steps=3, step_s=0.01))
        await until(lambda: waits_of(member), description="it waits, and says so", of=(member,))
        assert "LOADING" in waits_of(member)[0] or "loading the dataset" in waits_of(member)[0]
        await fleet.ready()
        await mission.results(timeout=30)
        await works_on(fleet, desk, "n")
        assert 1 <= len(waits_of(member)) <= 5, "seldom enough to read"
        assert not member.said("ERROR|Traceback"), member.tail()
        member.kill()


async def test_br_43_a_server_held_in_a_script_for_a_second_is_asked_again_and_fails_nothing(
    fleet: Fleet, desk: Desk
) -> None:
    fleet.ttl_s = 4.0
    work = [chain(f"i{number}", steps=40, step_s=0.05) for number in range(3)]
    for _ in range(2):
        fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: len(fleet.lines(what="step")) > 10, description="they work", of=tuple(fleet.members))
    with redis.Redis.from_url(desk.url) as client:
        client.config_set("busy-reply-threshold", 100)
        held = anyio.current_time()
        await anyio.to_thread.run_sync(client.eval, "local e = os.clock() + 1 while os.clock() < e do end", 0)
        assert anyio.current_time() - held >= 1
    assert set(await mission.results(timeout=20)) == {one.id for one in work}
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history) == [], fleet.tell()
    assert {run.number for run in runs_of(history.events)} == {1}, "nothing was started again"
    assert not await desk.of_kind("m", K.FAILED)
    for member in fleet.members:
        assert any("BUSY" in line for line in waits_of(member)), member.tail()
        assert member.child.poll() is None
    await works_on(fleet, desk, "n")
