"""Story 2. `context.checkpoint(state)` makes progress durable, and is where a Worker that must stop lets go of the work."""

from __future__ import annotations

from typing import Any

from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

done: list[tuple[str, int]] = []
"""Which Worker did which page: what a handler does to the world."""


@handler("pages")
async def pages(context: Context, inputs: dict[str, Any]) -> str:
    first = context.checkpoint_state.get("next", 0)
    for page in range(first, inputs["pages"]):
        done.append((context.worker, page))
        context.progress(page + 1, inputs["pages"])
        await context.checkpoint({"next": page + 1})
    return f"attempt {context.attempt} began with page {first}"


async def test_a_stopped_worker_gives_the_work_back_and_the_next_one_goes_on_from_there(
    store: FakeEndpoint, start: Start
) -> None:
    done.clear()
    async with Client.connect(store, actor="ann") as client:
        work = WorkSpec(id="book", capability="pages", inputs={"pages": 100})
        mission = await client.submit(MissionSpec(objective="read a book", work=[work]))
        async with start("morning"):
            await until(lambda: len(done) > 3, description="some pages are read")
        # The block's end stopped it, as SIGTERM stops a process: it left the book at a safe point.
        read = len(done)
        assert 3 < read < 100
        async with start("evening"):
            assert await mission.results(timeout=5) == {"book": f"attempt 2 began with page {read}"}
        assert [page for _, page in done] == list(range(100)), "no page was read twice, none was left out"
        assert {worker for worker, _ in done} == {"morning", "evening"}
        kinds = [event.kind async for event in mission.events()]
    assert kinds.count(EventKind.CHECKPOINTED) == 1, "what the first Worker left behind"
    assert EventKind.FAILED not in kinds, "being stopped is no failure"
