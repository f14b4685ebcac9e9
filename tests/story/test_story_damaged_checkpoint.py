"""Story. Two Checkpoints are kept: what is not what was saved is never given to a handler."""

from __future__ import annotations

import logging
from typing import Any

import fakeredis
import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context, handler

LONG = "x" * 100
"""Long enough for keys of their own."""
SAVES = 3
began: list[dict[str, Any]] = []
"""What each run of the handler was given."""


@handler("pages")
async def pages(context: Context, inputs: dict[str, Any]) -> int:
    del inputs
    began.append(dict(context.checkpoint_state))
    first = int(context.checkpoint_state.get("page", 0))
    if context.resolution is None:
        for page in range(first + 1, first + 1 + SAVES):
            await context.checkpoint({"page": page, "long": LONG})
    if context.resolution != "finish":
        raise Blocked("go on?")
    return first


def damage(store: FakeEndpoint, *names: str, lost: bool) -> None:
    client = fakeredis.FakeRedis(server=store.server)
    for name in names:
        (key,) = client.keys(f"*:{name}:book")
        if lost:
            client.delete(key)
        else:
            client.set(key, b"\x80")


async def asked(mission: Mission) -> None:
    async def is_blocked() -> bool:
        return (await mission.items())["book"].state is ItemState.BLOCKED

    await until(is_blocked, description="it is blocked")


async def a_book(client: Client) -> Mission:
    began.clear()
    work = [WorkSpec(id="book", capability="pages")]
    mission = await client.submit(MissionSpec(id="m", objective="read a book", work=work))
    await asked(mission)
    return mission


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "checkpoint_damaged" in record.getMessage()]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "changed"])
async def test_where_the_newest_checkpoint_is_damaged_the_one_before_it_serves(
    lost: bool, store: FakeEndpoint, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client.connect(store, actor="ann") as client, start("w"):
        mission = await a_book(client)
        damage(store, "ck1", lost=lost)
        with caplog.at_level(logging.ERROR, "treadle.worker"):
            await mission.unblock("book", "again")
            await until(lambda: len(began) == 2, description="it runs again")
            await asked(mission)
        (line,) = said(caplog)
        assert "m/book: checkpoint_damaged: Checkpoint 3 is" in line
        assert began[1]["page"] == 2
        caplog.clear()
        await mission.unblock("book", "finish")
        assert await mission.results(timeout=5) == {"book": 2}
        assert said(caplog) == [], "the block stored what it went on from as Checkpoint 4"
        blocks = [event async for event in mission.events() if event.kind is EventKind.BLOCKED]
        assert [event.get("number") for event in blocks] == ["3", "4"]


async def test_where_both_are_damaged_the_item_is_parked_and_a_person_has_it_done_anew(
    store: FakeEndpoint, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client.connect(store, actor="ann") as client, start("w"):
        mission = await a_book(client)
        damage(store, "ck0", "ck1", lost=False)

        async def is_parked() -> bool:
            return (await mission.items())["book"].held == "CHECKPOINT"

        await mission.unblock("book", "finish")
        await until(is_parked, description="it is parked")
        assert len(said(caplog)) == 2
        assert len(began) == 1, "no handler saw any of it"
        await mission.retry("book")
        assert await mission.results(timeout=5) == {"book": 0}
        assert began[1] == {}
