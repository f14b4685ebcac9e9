"""Blocked work on real processes: slots, restarts of everything, and kills while a question is open."""

from __future__ import annotations

import anyio
import pytest
from fleet import Desk, Fleet, asker, sleeper, until
from treadle.coordinator import Mission
from treadle.shared.model import EventKind, ItemState
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

K = EventKind


async def blocked(mission: Mission, *items: str) -> None:
    async def are() -> bool:
        views = await mission.items()
        return all(views[item].state is ItemState.BLOCKED for item in items)

    await until(are, description=f"{items} are blocked")


async def test_l12_a_slot_is_free_within_a_second_of_a_block_and_goes_on_soon_after_the_answer(
    fleet: Fleet, desk: Desk
) -> None:
    member = fleet.start(slots=1)
    await fleet.ready(member)
    mission = await desk.submit("m", *(asker(f"q{number}") for number in range(4)), sleeper("x", 0.1))
    await blocked(mission, *(f"q{number}" for number in range(4)))
    log = await desk.log("m")
    blocks = [event for event in log if event.kind is K.BLOCKED]
    starts = [event for event in log if event.kind is K.STARTED]
    for block in blocks[:-1]:
        follower = next(start for start in starts if start.seq > block.seq)
        assert follower.at_ms - block.at_ms <= 1000
    for number in range(4):
        assert await mission.unblock(f"q{number}", number) is ItemState.QUEUED
    results = await mission.results(timeout=30)
    assert [results[f"q{number}"]["resolution"] for number in range(4)] == [0, 1, 2, 3]
    log = await desk.log("m")
    for event in (event for event in log if event.kind is K.UNBLOCKED):
        again = next(
            start for start in log if start.kind is K.STARTED and start.item == event.item and start.seq > event.seq
        )
        assert again.at_ms - event.at_ms <= 5000, "a sweep"


async def test_br_17_everything_dies_while_an_item_is_blocked_and_the_answer_finds_it(
    fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    """BR-17: Workers are killed and the server is restarted on its log; the reason stands there, and no slot was held."""
    first = fleet.start("w1", slots=1)
    await fleet.ready(first)
    mission = await desk.submit("m", asker("q"))
    await blocked(mission, "q")
    first.kill()
    await anyio.sleep(1.1)  # the server syncs its file each second
    await anyio.to_thread.run_sync(server.restart)
    second = fleet.start("w2", slots=1)
    await fleet.ready(second)
    view = (await mission.items())["q"]
    assert view.blocked is not None
    assert (view.blocked.reason, view.blocked.needs) == ("q?", {"of": "q"})
    state = await mission.unblock("q", "yes")
    assert state in (ItemState.QUEUED, ItemState.OFFERED), (
        "its owner's session may be silent for a while before it is over"
    )
    results = await mission.results(timeout=20)
    assert results["q"] == {"resolution": "yes", "saved": {"asked": "q"}}
    assert len(fleet.lines(what="asks")) == 1, "what was saved before the question is not done again"
