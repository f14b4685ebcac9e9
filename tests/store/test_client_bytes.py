"""The store holds bytes: a client that would read them as text is refused or put right, and never found out later (BR-63)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from store.by_hand import HandWorker
from treadle.coordinator import Client, Mission, MissionSpec, SyncClient, WorkSpec
from treadle.shared.errors import Misuse
from treadle.shared.model import EventKind
from treadle.shared.store import Held, RenewalDoor, Store

BYTES = {"raw": b"\xff\xfe\x00", "text": "łódź"}
MADE: list[Callable[[], Any]] = [
    lambda: redis.asyncio.Redis(decode_responses=True),
    lambda: redis.asyncio.Redis(protocol=3),
    lambda: redis.Redis(decode_responses=True),
    lambda: fakeredis.FakeAsyncRedis(decode_responses=True),
    lambda: fakeredis.FakeRedis(),
]


@pytest.mark.parametrize("connect", [Client.connect, SyncClient.connect], ids=["client", "sync client"])
@pytest.mark.parametrize("make", MADE)
def test_br_63_a_ready_made_client_is_refused_at_construction_with_what_to_pass_instead(
    make: Callable[[], Any], connect: Callable[[Any], object]
) -> None:
    with pytest.raises(Misuse, match=r"^url: .*is no address; pass the URL, redis://"):
        connect(make())


@pytest.mark.slow
@pytest.mark.parametrize("option", ["protocol=3", "decode_responses=True", "encoding=utf-16", "encoding_errors=strict"])
async def test_br_63_a_url_that_asks_for_text_or_for_resp3_gives_a_store_that_works(option: str, real_url: str) -> None:
    """All that reads is tried: calls, pictures, logs, waits, and the renewal thread's own connection."""
    store = await Store.connect(f"{real_url}&{option}")
    try:
        async with Client.connect(real_url, actor="ann") as plain:
            work = WorkSpec(id="a", capability="index", inputs=BYTES)
            mission = await plain.submit(MissionSpec(id="m", objective="bytes", work=[work]))
            worker = await HandWorker.open(store)
            assert await worker.authority.wait(worker.session, tokens=True, timeout_s=0.1) is not None
            await worker.authority.aclose()
            await end_first(store, worker, mission)
            events = await store.wait_log(mission.group, after=0, timeout_s=1)
            assert events[-1].kind is EventKind.MISSION_APPROVED
            assert await store.wait_log(mission.group, after=len(events), timeout_s=0.01) == []
            assert await store.read_log(mission.group) == events
            assert (await store.wait_finished(mission.group, timeout_s=1)).verified == 1
            assert await mission.results(timeout=1) == {"a": BYTES}
            assert [item.item for item in await store.items(mission.group, bodies=True)] == ["a"]
    finally:
        await store.aclose()


async def end_first(store: Store, worker: HandWorker, mission: Mission) -> None:
    grant = await worker.take(mission)
    assert grant.lease is not None
    door = RenewalDoor(store, worker.session)
    held = Held(grant.partition, grant.group, grant.item, grant.ownership_epoch, grant.lease.lease_id)
    try:
        assert door.renew(grant.partition, [held])[1] == ["OK"]
    finally:
        door.close()
    assert (await worker.end(grant, BYTES)).code == "OK"
