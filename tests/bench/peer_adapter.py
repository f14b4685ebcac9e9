"""This product as one of the peers of a harness that measures several queues in one run.

The harness names this file and an interpreter (BENCH_ADAPTER, BENCH_PYTHON) and its own folder (PYTHONPATH), whose `common`
holds the jobs, their evidence and the schedule of sending. Jobs are enqueued as anybody's are: a queue is an account, whose
jobs are one Group. `TREADLE_BENCH_GROUPS=100` spreads them over Missions instead.
"""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any

import common  # type: ignore[import-not-found]  # the harness' own
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import AgentId
from treadle.shared.names import token
from treadle.worker import Context, Worker, handler
from treadle.worker.loading import collect

LEASE_TTL_S = 1.0 if common.AGG else 10.0
GROUPS = int(os.environ.get("TREADLE_BENCH_GROUPS", "0"))


@handler("job")
async def job(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    await common.job(*inputs["a"])


async def enqueue(spec: dict[str, Any]) -> Any:
    """Sends what the harness asks for: one by one at a rate, else all at once."""
    run = secrets.token_hex(4)
    async with Client.connect(common.URL, actor="bench") as client:

        async def send_one(queue: str, arguments: Any) -> None:
            await client.enqueue("job", {"a": list(arguments)}, account=queue, retry=0)

        async def send_many(jobs: list[tuple[str, Any]]) -> None:
            parts: dict[str, list[WorkSpec]] = {}
            for number, (queue, arguments) in enumerate(jobs):
                name = f"{run}-{number % GROUPS}" if GROUPS else queue
                one = WorkSpec(id=f"{run}-{number}", capability="job", inputs={"a": list(arguments)}, retry=0)
                parts.setdefault(name, []).append(one)
            for name, work in parts.items():
                if GROUPS:
                    await client.submit(MissionSpec(id=name, objective="a benchmark", work=work))
                else:
                    await client.enqueue_many(work, account=name)

        return await common.drive(spec, send_one, send_many)


async def work() -> None:
    name = AgentId(token(common.WID, field="name"))
    handlers = collect(sys.modules[__name__])
    await Worker(handlers, endpoint=common.URL, name=name, slots=common.SLOTS, lease_ttl_s=LEASE_TTL_S).run()


common.run(enqueue, work)
