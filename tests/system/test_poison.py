"""Items that no Worker can read: parked with reason and digest of what stands there; nothing else is held up (BR-55)."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from fleet import until, whole_log
from inside import a_worker, at_work
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.model import EventKind, GroupId, ItemId
from treadle.shared.store import Store, keys
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context

K = EventKind
GROUP = GroupId("m")
NOT_PACKED = b"\xc1 what nobody packed"
DEEP = b"\x91" * 200
BAD_TIME = codec.pack({"timeout_s": "soon"}, field="contract", limit=1_000)


@pytest.mark.parametrize(
    ("field", "raw", "said"),
    [
        ("in", NOT_PACKED, "inputs of m/a"),
        ("in", DEEP, "inputs of m/a"),
        ("ct", NOT_PACKED, "contract of m/a"),
        ("ct", codec.pack([1], field="contract", limit=1_000), "contract of m/a: .*no fields by their names"),
        ("ct", BAD_TIME, "contract of m/a: its time-out is 'soon', no number of seconds"),
    ],
    ids=["inputs", "deep inputs", "contract", "contract that is a list", "contract with a bad time-out"],
)
async def test_br_55_an_item_that_cannot_be_read_is_parked_with_the_digest_and_all_others_are_done(
    field: str, raw: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = FakeEndpoint()

    async def work(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
        return context.item

    caplog.set_level(logging.ERROR)
    async with Client.connect(endpoint, actor="ann") as client:
        store = await Store.connect(endpoint)
        work_ = [WorkSpec(id=id, capability="work", inputs={"n": 1}, retry=3) for id in ("a", "b", "c")]
        mission = await client.submit(MissionSpec(id="m", objective="o", work=work_))
        base = store.base(store.partition_of(GROUP))
        await store.run(lambda redis: redis.hset(keys.item(base, GROUP, ItemId("a")), field, raw))
        async with at_work(a_worker(endpoint, work=work)):

            async def is_parked() -> bool:
                return any(event.kind is K.PARKED for event in await whole_log(store, "m"))

            await until(is_parked, description="it is parked")

            async def are_done() -> bool:
                return (await mission.view()).verified == 2

            await until(are_done, description="b and c are done")
            other = await client.submit(MissionSpec(id="n", objective="o", work=[work_[1]]))
            assert await other.results(timeout=5) == {"b": "b"}, "the Worker lives"
        log = await whole_log(store, "m")
        (parked,) = [event for event in log if event.kind is K.PARKED]
        assert (parked.item, parked.get("reason"), parked.get("lost_runs")) == ("a", "POISON", "0")
        assert not [event for event in log if event.kind in (K.FAILED, K.LAPSED)]
        why = await mission.why("a")
        assert "cannot be read as they stand in the store" in str(why), why
        await store.aclose()
    (told,) = [record.getMessage() for record in caplog.records if "m/a" in record.getMessage()]
    pattern = said if "no " in said else f"{said}: .*it is parked; what stands there has .*digest {codec.digest(raw)}"
    assert re.search(pattern, told), told
