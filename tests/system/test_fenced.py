"""What the renewal thread did not expect fences its Worker: its handlers are told why, and nothing more is sent."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from fleet import whole_log
from inside import a_worker
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.errors import Corrupt
from treadle.shared.model import EventKind, ItemState
from treadle.shared.store import RenewalDoor, Store
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

K = EventKind


@pytest.mark.parametrize("error", [ValueError("no such reply"), Corrupt("three codes for two leases")])
async def test_an_unexpected_reply_to_a_renewal_ends_the_worker_and_is_never_only_logged(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = FakeEndpoint()
    told: list[tuple[bool, str]] = []
    begun = anyio.Event()

    async def work(context: Context, inputs: dict[str, Any]) -> int:  # noqa: ARG001
        def renew(*_: object) -> Any:
            raise error

        monkeypatch.setattr(RenewalDoor, "renew", renew)
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            told.append((context.cancelled, context.why_stopped))
        return 1

    async with Client.connect(endpoint, actor="ann") as client:
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="work")]))
        with anyio.fail_after(10), pytest.raises((ExceptionGroup, Corrupt)) as raised:
            await a_worker(endpoint, ttl_s=0.4, work=work).run()
        assert raised.value is error or raised.group_contains(ValueError, match="no such reply")
        assert begun.is_set()
        assert told == [(True, f"lease lost (session over: {error})")]
        store = await Store.connect(endpoint)
        (left,) = await store.items(mission.group)
        kinds = [event.kind for event in await whole_log(store, "m")]
        await store.aclose()
    assert left.state is ItemState.ACTIVE, "what it held lapses by itself: nothing was sent any more"
    assert kinds[-1] is K.STARTED
