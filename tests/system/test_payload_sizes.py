"""How large things may be: what is too large is refused with its size and the limit, before anything is written (BR-65)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fakeredis
import pytest
from inside import a_worker, at_work
from store.world import Dump, dump
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import EventKind
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

MIB = 1 << 20


def inputs_of(packed: int) -> dict[str, bytes]:
    """Inputs that come to so many bytes when packed."""
    head = len(codec.pack({"b": b"x" * MIB}, field="inputs", limit=2 * MIB)) - MIB
    return {"b": b"x" * (packed - head)}


def spec(id: str, inputs: Mapping[str, Any] | None = None, capability: str = "work") -> MissionSpec:
    return MissionSpec(id=id, objective="sizes", work=[WorkSpec(id="a", capability=capability, inputs=inputs or {})])


async def stored(endpoint: FakeEndpoint) -> Dump:
    async with fakeredis.FakeAsyncRedis(server=endpoint.server) as client:
        return await dump(client)


async def test_br_65_inputs_are_taken_up_to_the_limit_and_one_byte_more_writes_nothing() -> None:
    """What ended Missions keep is bounded by time alone; what their logs keep, by bytes too."""
    endpoint = FakeEndpoint()
    sizes = {"a-megabyte": 1_000_000, "less-one": codec.INPUTS_MAX - 1, "limit": codec.INPUTS_MAX}
    async with Client.connect(endpoint, actor="ann") as client:
        for id, size in sizes.items():
            await client.submit(spec(id, inputs_of(size)))
        before = await stored(endpoint)
        for submit in (
            lambda: client.submit(spec("more", inputs_of(codec.INPUTS_MAX + 1))),
            lambda: client.enqueue("work", inputs_of(codec.INPUTS_MAX + 1), key="more"),
        ):
            with pytest.raises(Misuse, match=r"inputs: 1,048,577 bytes when packed, at most 1,048,576"):
                await submit()
        assert await stored(endpoint) == before
        seen: list[int] = []

        async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
            seen.append(len(codec.pack(inputs, field="inputs", limit=2 * MIB)))
            return 0

        async with at_work(a_worker(endpoint, work=work)):
            for id in sizes:
                await client.mission(id).results(timeout=20)
    assert sorted(seen) == sorted(sizes.values())


@pytest.mark.parametrize(
    ("what", "size", "limit"),
    [("result", 50 * MIB, codec.RESULT_MAX), ("checkpoint", 20 * MIB, codec.CHECKPOINT_MAX)],
)
async def test_br_65_a_result_or_a_checkpoint_that_is_too_large_fails_its_item_and_is_written_nowhere(
    what: str, size: int, limit: int
) -> None:
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> Any:  # noqa: ARG001
        if what == "checkpoint":
            await context.checkpoint({"state": b"x" * size})
        return b"x" * size

    async with at_work(a_worker(endpoint, ttl_s=5.0, work=work)), Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(
            MissionSpec(id="m", objective="sizes", work=[WorkSpec(id="a", capability="work", retry=0)])
        )
        with pytest.raises(MissionFailed) as failed:
            await mission.results(timeout=20)
        kinds = [event.kind async for event in mission.events()]
    (failure,) = failed.value.failures
    assert failure.type == "Misuse"
    assert f"bytes when packed, at most {limit:,}" in failure.text
    assert f": {size // 10**6}," in failure.text, "its size is said, which is that of the packed value"
    assert EventKind.PROGRESS_SAVED not in kinds
    assert EventKind.SUBMITTED not in kinds
    kept = sum(len(repr(content)) for _, content in (await stored(endpoint)).values())
    assert kept < 100_000
