"""Story 5. A Worker is not heard of any more: its lease runs out, and another goes on from what was saved last.

Whether it has died or only cannot be reached, nobody can tell. So it must not matter: what it still does is refused.
"""

from __future__ import annotations

from typing import Any

import anyio
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.testing.faults import Fault, FaultyEndpoint, no_fault
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

told: dict[str, bool] = {}
"""By Worker, whether a handler of it that was cancelled knew that its lease was lost."""


@handler("steps")
async def steps(context: Context, inputs: dict[str, Any]) -> list[str]:
    walked: list[str] = context.checkpoint_state.get("walked", [])
    try:
        for _ in range(len(walked), inputs["steps"]):
            walked = [*walked, context.worker]
            await context.checkpoint({"walked": walked})
            if context.worker == "unlucky" and len(walked) == 3:
                await anyio.sleep_forever()  # here it stands when the cable is pulled
    except anyio.get_cancelled_exc_class():
        told[context.worker] = context.cancelled
        raise
    return walked


async def test_the_work_of_a_worker_that_is_not_heard_of_goes_on_elsewhere(store: FakeEndpoint, start: Start) -> None:
    told.clear()
    cable = FaultyEndpoint(store)
    async with Client.connect(store, actor="ann") as client:
        mission = await client.submit(
            MissionSpec(objective="a walk", work=[WorkSpec(id="a", capability="steps", inputs={"steps": 5})])
        )
        async with start("unlucky", through=cable):
            saved = 0
            async for event in mission.events():
                saved += event.kind is EventKind.PROGRESS_SAVED
                if saved == 3:
                    break
            cable.fault = lambda _: Fault.UNSENT
            async with start("lucky"):
                walked = await mission.results(timeout=5)
            assert walked == {"a": ["unlucky"] * 3 + ["lucky"] * 2}
            # By its own clock the lease is over as well: it stops without hearing a word.
            await until(lambda: told == {"unlucky": True}, description="the handler is cancelled, and knows why")

            cable.fault = no_fault
            again = await client.submit(
                MissionSpec(objective="a short walk", work=[WorkSpec(id="b", capability="steps", inputs={"steps": 1})])
            )
            assert await again.results(timeout=5) == {"b": ["unlucky"]}, "it is back, and as good as any other"
        kinds = [event.kind async for event in mission.events()]
    assert kinds.count(EventKind.LAPSED) == 1
    assert kinds.count(EventKind.RESULT_ACCEPTED) == 1
