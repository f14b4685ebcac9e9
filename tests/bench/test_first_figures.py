"""First figures: submit, drain, latency, idle, on one embedded server, with CPU and commands per item. `make bench`.

Absolute times wander on shared machines: compare CPU per item, and rows of one run. Nothing here asserts a time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
import redis
from treadle.shared import codec
from treadle.shared.model import AgentId, Capability, GroupId, ItemId, MissionId, NewItem, NewMission
from treadle.shared.store import Store
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker import Context, Handler, Worker

ITEMS = 4_000
SHAPES = ((1, 256), (16, 250), (40, 100), (400, 10), (2_000, 2))
LATENCY_SAMPLES, LATENCY_GAP_S = 200, 0.02
IDLE_S = 5.0
STARTED: dict[str, float] = {}
NOOP, STAMP = Capability("noop"), Capability("stamp")


async def noop(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    return None


async def stamp(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    STARTED[context.mission] = time.monotonic()


HANDLERS = {NOOP: Handler(NOOP, "1.0.0", noop), STAMP: Handler(STAMP, "1.0.0", stamp)}


@dataclass(frozen=True)
class Counters:
    """What the server and this process have used so far."""

    server_s: float
    commands: int
    reads: int
    own_s: float
    wall_s: float

    @classmethod
    def now(cls, admin: redis.Redis) -> Counters:
        info = admin.info()
        return cls(
            info["used_cpu_user"] + info["used_cpu_sys"],
            info["total_commands_processed"],
            info["total_reads_processed"],
            time.process_time(),
            time.monotonic(),
        )

    def row(self, after: Counters, items: int) -> str:
        each = 1e6 / items
        return (
            f"{items / (after.wall_s - self.wall_s):8,.0f}/s   server {(after.server_s - self.server_s) * each:5.0f} us   "
            f"client {(after.own_s - self.own_s) * each:5.0f} us   "
            f"commands {(after.commands - self.commands) / items:6.2f}   reads {(after.reads - self.reads) / items:5.2f}"
        )


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    server = EmbeddedServer().start()
    yield server
    server.stop()


@pytest.fixture
def admin(server: EmbeddedServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(server.url)
    yield client
    client.close()


def mission(number: int, items: int, capability: Capability) -> NewMission:
    group = GroupId(f"bench-{number}")
    inputs = codec.pack({"i": 1}, field="inputs", limit=64)
    work = tuple(NewItem(ItemId(f"i{i}"), capability, inputs) for i in range(items))
    return NewMission(MissionId(group), group, "digest", "bench", "a benchmark", "acme", 1.0, "standard", 0, work)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("groups", "each"), SHAPES)
async def test_submit_and_drain(server: EmbeddedServer, admin: redis.Redis, groups: int, each: int) -> None:
    store = await Store.connect(server.url, timeout_s=10)
    items = groups * each
    memory = admin.info("memory")["used_memory"]
    before = Counters.now(admin)
    for number in range(groups):
        await store.create(mission(number, each, NOOP))
    submitted = Counters.now(admin)
    per_item = (admin.info("memory")["used_memory"] - memory) / items
    worker = Worker(HANDLERS, endpoint=server.url, name=AgentId("bench"), slots=16)
    started = Counters.now(admin)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        for number in range(groups):
            view = await store.wait_finished(GroupId(f"bench-{number}"), timeout_s=200)
            assert view.verified == each
        ended = Counters.now(admin)
        worker.stop()
    await store.aclose()
    print(f"\n{groups:5d} Groups x {each:3d}  submit {before.row(submitted, items)}   {per_item:5.0f} bytes an item")
    print(f"{'':17s}  drain  {started.row(ended, items)}")


async def test_latency_and_idle(server: EmbeddedServer, admin: redis.Redis) -> None:
    store = await Store.connect(server.url, timeout_s=10)
    worker = Worker(HANDLERS, endpoint=server.url, name=AgentId("bench"), slots=16)
    sent: dict[str, float] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.ready.wait()
        for number in range(LATENCY_SAMPLES):
            sent[f"bench-{number}"] = time.monotonic()
            await store.create(mission(number, 1, STAMP))
            await anyio.sleep(LATENCY_GAP_S)
        await store.wait_finished(GroupId(f"bench-{LATENCY_SAMPLES - 1}"), timeout_s=20)
        before = Counters.now(admin)
        await anyio.sleep(IDLE_S)
        after = Counters.now(admin)
        worker.stop()
    await store.aclose()
    delays = sorted(1000 * (STARTED[name] - at) for name, at in sent.items())
    assert len(delays) == LATENCY_SAMPLES
    p99 = delays[int(0.99 * len(delays))]
    print(f"\nsubmit to start: p50 {statistics.median(delays):.1f} ms, p99 {p99:.1f} ms, worst {delays[-1]:.1f} ms")
    idle = (after.own_s - before.own_s) / (after.wall_s - before.wall_s)
    commands = (after.commands - before.commands) / (after.wall_s - before.wall_s)
    print(f"idle Worker: {100 * idle:.1f} % CPU, {commands:.0f} commands/s, functions' own included")
