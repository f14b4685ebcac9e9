"""Story: some work needs more than a slot. A Worker says what it has; an item starts where and while that is free."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, Misuse, WorkSpec
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Blocked, Context, handler

running: set[str] = set()
done: list[str] = []
most_at_once: list[int] = []
told: set[str] = set()
GPU = {"gpu": 1}


@pytest.fixture(autouse=True)
def _anew() -> None:
    for kept in (running, told):
        kept.clear()
    for listed in (done, most_at_once):
        listed.clear()


@handler("train")
async def train(context: Context, inputs: dict[str, Any]) -> None:
    """It runs until its item is told to end, in the way that its inputs say."""
    running.add(context.item)
    most_at_once.append(sum(item.startswith("gpu") for item in running))
    try:
        await anyio.sleep(0.01)
        while inputs.get("waits") and not told & {context.item, "all"}:  # noqa: ASYNC110 - told from outside when to end
            await anyio.sleep(0.005)
        match inputs.get("ends"):
            case "failing":
                raise ValueError("out of memory")
            case "blocked" if context.resolution is None:
                raise Blocked("which learning rate")
            case "late":
                await anyio.sleep(60)
            case _:
                done.append(context.item)
    finally:
        running.discard(context.item)


def work(id: str, *, resources: dict[str, int] | None = None, **of: Any) -> WorkSpec:
    inputs: dict[str, Any] = {name: of.pop(name) for name in ("waits", "ends") if name in of}
    return WorkSpec(id=id, capability="train", inputs=inputs, resources=resources or {}, **of)


async def test_as_many_run_at_once_as_there_is_free_for_and_what_needs_none_goes_on(
    store: FakeEndpoint, start: Start
) -> None:
    items = [work(f"gpu-{n}", resources=GPU) for n in range(9)] + [work(f"plain-{n}") for n in range(9)]
    async with Client.connect(store, actor="ann") as client, start("w1", slots=6, resources={"gpu": 2}):
        mission = await client.submit(MissionSpec(id="m", objective="train", work=items))
        await mission.results(timeout=20)
    assert max(most_at_once) == 2
    assert sorted(done) == sorted(item.id for item in items)


async def test_it_is_given_back_at_every_end_of_a_run(store: FakeEndpoint, start: Start) -> None:
    items = [
        work("gpu-done", resources=GPU),
        work("gpu-fails", resources=GPU, ends="failing", retry=0),
        work("gpu-late", resources=GPU, ends="late", timeout_s=0.05, retry=0),
        work("gpu-asks", resources=GPU, ends="blocked"),
        work("gpu-cancelled", resources=GPU, waits=True),
        work("gpu-last", resources=GPU, urgency="routine"),
    ]
    async with Client.connect(store, actor="ann") as client, start("w1", slots=3, resources=GPU):
        mission = await client.submit(MissionSpec(id="m", objective="train", work=items))
        await until(lambda: "gpu-cancelled" in running, description="the one that ends by no means has its turn")
        await mission.cancel_item("gpu-cancelled")
        await until(lambda: "gpu-last" in done, description="each end has given back what the next one needs")
        await mission.unblock("gpu-asks", resolution=0.1)
        await until(lambda: "gpu-asks" in done, description="what was blocked starts again with what it needs")
    assert max(most_at_once) == 1


async def test_those_of_many_missions_in_all_partitions_have_their_turns(store: FakeEndpoint, start: Start) -> None:
    async with Client.connect(store, actor="ann") as client, start("w1", slots=4, resources=GPU):
        missions = [
            await client.submit(
                MissionSpec(
                    id=f"m{n}",
                    objective="train",
                    work=[work(f"gpu-{n}-{k}", resources=GPU) for k in range(3)] + [work(f"plain-{n}")],
                )
            )
            for n in range(12)
        ]
        for mission in missions:
            await mission.results(timeout=20)
    assert max(most_at_once) == 1
    assert len(done) == 48


async def test_a_worker_without_it_takes_the_rest_and_why_says_what_is_missing(
    store: FakeEndpoint, start: Start
) -> None:
    items = [work("gpu-1", resources=GPU, urgency="critical"), work("a"), work("b")]
    async with Client.connect(store, actor="ann") as client:
        async with start("plain", slots=2):
            mission = await client.submit(MissionSpec(id="m", objective="train", work=items))
            assert mission.receipt is not None
            assert mission.receipt.lacking == {"train": {"gpu": 0}}
            await until(lambda: sorted(done) == ["a", "b"], description="what stands behind it goes on")
            (gate,) = (await mission.why("gpu-1")).gates
            assert gate.code == "UNSCHEDULABLE"
            assert gate.text == "it needs gpu=1, no live Worker that offers train has all of it (at most gpu=0)"
            assert gate.change == "start a Worker with --resources gpu=1 or more"
        async with start("strong", slots=2, resources=GPU):
            await mission.results(timeout=20)


async def test_where_it_is_in_use_why_says_so(store: FakeEndpoint, start: Start) -> None:
    items = [work("gpu-1", resources=GPU, waits=True), work("gpu-2", resources=GPU)]
    async with Client.connect(store, actor="ann") as client, start("w1", slots=2, resources=GPU):
        mission = await client.submit(MissionSpec(id="m", objective="train", work=items))
        await until(lambda: "gpu-1" in running, description="the only one is in use")
        gates = (await mission.why("gpu-2")).gates
        assert [gate.code.value for gate in gates] == ["RESOURCES"]
        assert gates[0].text == "the Worker that could run it is without gpu=1 free now"
        told.add("all")
        await mission.results(timeout=20)


async def test_a_schedule_has_none(store: FakeEndpoint) -> None:
    async with Client.connect(store, actor="ann") as client:
        with pytest.raises(Misuse, match="resources: a schedule's jobs have none in this version"):
            await client.schedule("nightly", "train", every=60, resources=GPU)
