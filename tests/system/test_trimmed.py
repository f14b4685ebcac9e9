"""A Worker whose Group's log was trimmed below what it would read goes on from its slice of the Snapshot."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import AgentId, Capability, GroupId
from treadle.shared.store import Authority, Store, Take, Turn, keys, snapshots
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

GROUP = GroupId("m")


async def work(context: Context, inputs: Any) -> int:  # noqa: ARG001
    return context.attempt


async def held_by_somebody_who_died(store: Store, agent: AgentId) -> None:
    """An older session of this Agent has started one item and accepted another."""
    authority = Authority(store)
    session, _ = await authority.open_session(agent, [Capability("work")], lease_ttl_ms=60_000, nonce="n")
    take = Take(GROUP, Capability("work"), 2, 0)
    (answer,) = await authority.turns(session, [Turn(store.partition_of(GROUP), 1, (take,), slots=1, ahead=1)])
    assert len(answer.outcomes[0].grants) == 2  # type: ignore[union-attr]  # no error came
    await authority.aclose()


async def test_c10_what_a_worker_lost_comes_back_from_its_slice_of_the_snapshot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R66, S14: nothing local is left of it, and its log begins above what it would read; it does all there is to do."""
    caplog.set_level(logging.INFO, "treadle.worker")
    endpoint = FakeEndpoint()
    worker = a_worker(endpoint, work=work)
    async with Client.connect(endpoint, actor="ann") as client:
        items = [WorkSpec(id=name, capability="work") for name in "abc"]
        mission = await client.submit(MissionSpec(id=GROUP, objective="trimmed", work=items))
        store = await Store.connect(endpoint)
        try:
            await held_by_somebody_who_died(store, worker.name)
            made = await snapshots.create(store, GROUP, keep=0)
            assert made.first == made.through + 1
            async with at_work(worker):
                assert await mission.results(timeout=30) == {"a": 2, "b": 1, "c": 1}
            assert f"taken up from its Snapshot at {made.through}" in caplog.text
            assert "is halted" not in caplog.text
        finally:
            await store.aclose()


async def test_s13_a_damaged_snapshot_is_no_state_to_go_on_from(caplog: pytest.LogCaptureFixture) -> None:
    """The Group is halted in the Worker that would need it; another Group goes on."""
    endpoint = FakeEndpoint()
    worker = a_worker(endpoint, work=work)
    async with Client.connect(endpoint, actor="ann") as client:
        for name in ("m", "other"):
            items = (WorkSpec(id="a", capability="work"), WorkSpec(id="b", capability="work"))
            await client.submit(MissionSpec(id=name, objective="damaged", work=items))
        store = await Store.connect(endpoint)
        try:
            await held_by_somebody_who_died(store, worker.name)
            await snapshots.create(store, GROUP, keep=0)
            key = keys.snapshot(store.base(store.partition_of(GROUP)), GROUP)
            await store.run(lambda raw: raw.hset(key, "1", b"x" * 10))
            async with at_work(worker):
                assert await client.mission("other").results(timeout=30) == {"a": 1, "b": 1}
            assert "group m is halted here" in caplog.text
            assert "altered" in caplog.text or "replaced" in caplog.text or "not whole" in caplog.text
        finally:
            await store.aclose()
