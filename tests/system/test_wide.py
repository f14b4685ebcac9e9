"""Wide items in real processes: they start beside endless narrow ones, and though the Worker that kept slots for one dies."""

from __future__ import annotations

import pytest
from fleet import Desk, Fleet, sleeper, until
from treadle.coordinator import Mission
from treadle.shared.model import EventKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

K = EventKind
RUN_S = 1.0
ITEMS = 400


async def a_stream(fleet: Fleet, desk: Desk) -> Mission:
    """More than the slots do in the test; their ends are spread."""
    stream = await desk.submit("stream", *(sleeper(f"n{n}", RUN_S / 2 + n % 5 * RUN_S / 10) for n in range(ITEMS)))
    await until(lambda: len(fleet.lines(what="begin")) > 8, description="it flows", of=tuple(fleet.members))
    return stream


async def until_kept(desk: Desk, fleet: Fleet) -> None:
    async def is_kept() -> bool:
        return [gate.code.value for gate in (await desk.client.mission("wide").why("w")).gates] == ["RESERVED"]

    await until(is_kept, description="a Worker keeps slots for it", of=tuple(fleet.members))


async def test_wide_items_start_one_after_the_other_beside_an_endless_stream_of_narrow_ones(
    fleet: Fleet, desk: Desk
) -> None:
    for name in ("one", "two"):
        fleet.start(name, slots=4)
    await fleet.ready()
    stream = await a_stream(fleet, desk)
    wide = await desk.submit("wide", *(sleeper(f"w{n}", 0.2, slots=4) for n in range(3)))
    assert len(await wide.results(timeout=60)) == 3
    begun = fleet.lines(what="begin")
    assert len([line for line in begun if line.mission == "stream"]) < ITEMS, "the stream was there all the time"
    await stream.cancel()


async def test_when_the_worker_that_keeps_slots_is_killed_another_goes_on(fleet: Fleet, desk: Desk) -> None:
    first = fleet.start("one", slots=4)
    await fleet.ready()
    stream = await a_stream(fleet, desk)
    wide = await desk.submit("wide", sleeper("w", 0.2, slots=4))
    await until_kept(desk, fleet)
    first.kill()
    fleet.start("two", slots=4)
    assert len(await wide.results(timeout=60)) == 1
    assert fleet.lines("w", "begin")[-1].worker == "two"
    await stream.cancel()
