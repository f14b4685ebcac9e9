"""A log is read from where its reader stands, however often the wait for more is over (BR-37)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest
import redis
import redis.asyncio
from builders import a_new_item, a_new_mission
from treadle.coordinator import Client
from treadle.shared.model import Event, EventKind, GroupId
from treadle.shared.store import Store, commands

pytestmark = pytest.mark.slow

LASTS_S = 2.0
PERIOD_S = 0.001
WAITS_S = 0.005


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[list[str]]:
    """Every XREAD that the server is sent, from here to the end of the block."""
    seen: list[str] = []
    mark = "all of it was seen"
    with redis.Redis.from_url(url, socket_timeout=10) as client, client.monitor() as monitor:

        def listen() -> None:
            for said in monitor.listen():
                if mark in said["command"]:
                    return
                if said["command"].upper().startswith("XREAD"):
                    seen.append(said["command"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, listen)
            try:
                yield seen
            finally:
                with redis.Redis.from_url(url) as other:
                    other.echo(mark)


async def publish(store: Store, group: GroupId) -> int:
    """Add an item each millisecond, or as fast as the machine can; the last Event's sequence."""
    began, number = time.monotonic(), 0
    while (now := time.monotonic() - began) < LASTS_S:
        due = int(now / PERIOD_S) - number + 1
        items = [replace(a_new_item(f"i{number + n}"), digest=f"d{number + n}") for n in range(min(due, 4))]
        await commands.add(store, group, items, actor="ana")
        number += len(items)
        breath_s = 3 * WAITS_S if number % 50 < len(items) else 0.0  # now and then the reader's wait is over first
        await anyio.sleep(max(breath_s, number * PERIOD_S - (time.monotonic() - began)))
    await commands.seal(store, group, actor="ana")
    view = await store.mission(group)
    assert view is not None
    assert view.total == number
    return view.last_seq


async def test_br_37_a_reader_whose_wait_is_over_all_the_time_receives_what_was_published_in_order(
    real_url: str,
) -> None:
    """A publisher at about 1 kHz, a reader whose wait ends each 5 ms, and one of the SDK beside it.

    The tail is not looked up even once: a reader begins at a sequence it knows.
    """
    received: list[Event] = []
    told: list[Event] = []
    published = 0
    async with watched(real_url) as reads, Client.connect(real_url, actor="ana") as client:
        writer, reader = await Store.connect(real_url), await Store.connect(real_url)
        group = (await writer.create(replace(a_new_mission("m"), items=(), open=True))).group
        times_out = 0

        async def read() -> None:
            nonlocal times_out
            while not published or len(received) < published:
                found = await reader.wait_log(group, after=len(received), timeout_s=WAITS_S)
                times_out += not found
                received.extend(found)

        async def keep_awake() -> None:
            """A server that nobody talks to ends a wait late: its clock is its traffic."""
            async with redis.asyncio.Redis.from_url(real_url) as idle:
                while not published:
                    await idle.ping()
                    await anyio.sleep(PERIOD_S)

        async def follow() -> None:
            async for event in client.mission("m").events():
                told.append(event)
                if event.kind is EventKind.MISSION_SEALED:
                    return

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                tasks.start_soon(follow)
                tasks.start_soon(keep_awake)
                published = await publish(writer, group)
        await writer.aclose()
        await reader.aclose()
    assert [event.seq for event in received] == list(range(1, published + 1))
    assert told == received
    assert published > 500, "this machine published next to nothing"
    assert times_out > 5, "its waits were over while nothing was there"
    assert len(reads) > 50
    assert not [read for read in reads if "$" in read.rpartition("STREAMS")[2]]
