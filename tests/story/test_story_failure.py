"""Story 3. A handler that cannot do the work says why, and whoever waits for the Mission gets the reasons."""

from __future__ import annotations

from typing import Any

import pytest
from inside import Start
from treadle.coordinator import Client, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.model import ItemState
from treadle.shared.store import Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, Fail, handler


@handler("fetch")
async def fetch(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
    if inputs["url"].startswith("ftp:"):
        raise Fail(f"{inputs['url']} is no address this Worker can fetch", retryable=False)
    return str({"https://example.org/": "a page"}[inputs["url"]])


@handler("print")
async def print_(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
    return len(context.results)


async def test_a_failed_mission_raises_with_every_items_reason(store: FakeEndpoint, start: Start) -> None:
    urls = {"good": "https://example.org/", "odd": "ftp://example.org/", "gone": "https://example.org/nothing"}
    # An accident is tried again, unless it is said that it is not; a Fail never is.
    work = [WorkSpec(id=id, capability="fetch", inputs={"url": url}, retry=0) for id, url in urls.items()]
    work.append(WorkSpec(id="print", capability="print", after=list(urls)))
    async with start("w1"), Client.connect(store, actor="ann") as client:
        mission = await client.submit(MissionSpec(id="pages", objective="print pages", work=work))
        with pytest.raises(MissionFailed) as failed:
            await mission.results(timeout=5)
        # Said on purpose, with Fail, or raised by accident: both are Evidence, by item.
        reasons = {failure.item: (failure.type, failure.text) for failure in failed.value.failures}
        assert reasons == {
            "odd": ("Fail", "ftp://example.org/ is no address this Worker can fetch"),
            "gone": ("KeyError", "'https://example.org/nothing'"),
        }
        assert 'mission "pages" failed: odd: Fail: ftp://example.org/ is no address' in str(failed.value)

        # The Worker goes on: the failure is the item's, not its own.
        again = await client.submit(MissionSpec(objective="print one", work=[work[0]]))
        assert await again.results(timeout=5) == {"good": "a page"}

    # What did not fail is kept, and what could not start any more was cancelled.
    reader = await Store.connect(store)
    states = {str(view.item): view.state for view in await reader.items(mission.group)}
    await reader.aclose()
    assert (states["good"], states["odd"]) == (ItemState.VERIFIED, ItemState.FAILED)
    assert states["print"] is ItemState.CANCELLED
