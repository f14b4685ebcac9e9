"""Story 1. What you do: submit a Mission. What you get: the result of each of its items, once each."""

from __future__ import annotations

from typing import Any

from inside import Start
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler


@handler("count-words")
async def count_words(context: Context, inputs: dict[str, Any]) -> dict[str, int]:  # noqa: ARG001
    return {"words": len(inputs["text"].split())}


@handler("add-up")
async def add_up(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    return sum(result["words"] for result in context.results.values())


async def test_a_mission_gives_the_result_of_each_item(store: FakeEndpoint, start: Start) -> None:
    async with start("w1"), Client.connect(store, actor="ann") as client:
        mission = await client.submit(
            MissionSpec(
                objective="words of two lines",
                work=[
                    WorkSpec(id="first", capability="count-words", inputs={"text": "one two three"}),
                    WorkSpec(id="second", capability="count-words", inputs={"text": "four five"}),
                    # Runs when both are done, and has their results.
                    WorkSpec(id="sum", capability="add-up", after=["first", "second"]),
                ],
            )
        )
        assert await mission.results(timeout=5) == {"first": {"words": 3}, "second": {"words": 2}, "sum": 5}


async def test_the_same_mission_submitted_again_is_the_same_mission(store: FakeEndpoint, start: Start) -> None:
    """A submit whose answer was lost may simply be repeated, from anywhere: with an id, it is one Mission."""
    spec = MissionSpec(
        id="words-of-today",
        objective="words",
        account="acme",  # else it is the account of whoever submits, and another content
        work=[WorkSpec(id="a", capability="count-words", inputs={"text": "one two"})],
    )
    async with Client.connect(store, actor="ann") as client, Client.connect(store, actor="bob") as other:
        first, again = await client.submit(spec), await other.submit(spec)
        assert first.receipt is not None
        assert again.receipt is not None
        assert (first.receipt.repeated, again.receipt.repeated) == (False, True)
        async with start("w1"):  # what was submitted waits for a Worker to come
            assert await again.results(timeout=5) == {"a": {"words": 2}}
        assert (await first.view()).total == 1
