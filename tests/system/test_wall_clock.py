"""BR-51: a Worker's own wall clock decides nothing. One that is two minutes off starts and keeps work like any other."""

from __future__ import annotations

import ast
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from fleet import at_desk
from house.reading import the_house
from inside import a_worker, at_work
from treadle.coordinator import MissionSpec, WorkSpec
from treadle.coordinator.core.missions import plan_mission
from treadle.shared.model import EventKind
from treadle.shared.store import RedisEndpoint
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker import Context

OFF_S = 120.0
NOT_ASKED = {
    "time.time",
    "time.time_ns",
    "time.localtime",
    "time.gmtime",
    "datetime.now",
    "datetime.utcnow",
    "date.today",
}
EXAMPLES = "treadle.worker.examples"
"""Handlers are their owners': what they note down is their own."""


def test_no_room_of_the_worker_asks_for_the_time_of_day() -> None:
    asked = [
        f"{room.name}:{node.lineno}: {ast.unparse(node)}"
        for room in the_house().rooms
        if room.wing == "worker" and not room.name.startswith(EXAMPLES)
        for node in ast.walk(room.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in NOT_ASKED
    ]
    assert asked == []


@pytest.mark.slow
@pytest.mark.parametrize("off_s", [-OFF_S, OFF_S])
async def test_br_51_a_worker_two_minutes_off_starts_work_at_once_and_keeps_its_leases(
    off_s: float, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is another process: its clock is right."""
    true_time, began_s = time.time, anyio.current_time()
    monkeypatch.setattr("time.time", lambda: true_time() + off_s)

    async def work(context: Context, inputs: dict[str, Any]) -> int:
        await anyio.sleep(inputs["s"])
        return context.attempt

    deadline = datetime.fromtimestamp(true_time(), UTC) + timedelta(seconds=90)
    async with at_desk(server.url) as desk:
        items = [
            WorkSpec(id="a", capability="work", inputs={"s": 1.5}, deadline=deadline, start_by_s=1),
            WorkSpec(id="b", capability="work", inputs={"s": 0.0}, start_by_s=1),
            WorkSpec(id="c", capability="work", inputs={"s": 0.0}, after=["b"]),
        ]
        mission = await desk.submit("m", *items)
        async with at_work(a_worker(RedisEndpoint(server.url), ttl_s=0.5, work=work)):
            assert await mission.results(timeout=30) == {"a": 1, "b": 1, "c": 1}
        log = await desk.log("m")
    assert anyio.current_time() - began_s < 8
    created, *_ = log
    started = [event.at_ms for event in log if event.kind is EventKind.STARTED]
    assert len(started) == 3
    assert all(at_ms - created.at_ms < 5_000 for at_ms in started)
    assert not [event for event in log if event.kind is EventKind.LAPSED]


@pytest.mark.slow
@pytest.mark.parametrize("off_s", [-OFF_S, OFF_S])
async def test_br_51_a_not_before_is_the_stores_time_and_not_the_workers(
    off_s: float, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_time = time.time
    monkeypatch.setattr("time.time", lambda: true_time() + off_s)

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        return context.attempt

    async with at_desk(server.url) as desk:
        now_ms = await desk.store.now_ms()
        spec = MissionSpec(objective="o", work=[WorkSpec(id=id, capability="work") for id in ("now", "later")])
        plan = plan_mission(spec, mission_id="m", actor="ann", now_ms=now_ms)
        times = {"now": str(now_ms), "later": "+700"}
        plan = replace(plan, items=tuple(replace(one, not_before=times[one.item]) for one in plan.items))
        async with at_work(a_worker(RedisEndpoint(server.url), ttl_s=1.0, work=work)):
            await desk.store.create(plan)
            await desk.store.wait_finished(plan.group, timeout_s=10)
        log = await desk.log("m")
    created_ms = log[0].at_ms
    started = {str(event.item): event.at_ms - created_ms for event in log if event.kind is EventKind.STARTED}
    assert started["now"] < 600, started
    assert 700 <= started["later"] < 3_000, started
