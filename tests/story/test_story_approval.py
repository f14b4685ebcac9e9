"""Story: a person has to approve what is not to be undone; until then nobody starts it, and all else goes on."""

from __future__ import annotations

from typing import Any

import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, Refused, WorkSpec
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

began: list[str] = []


@handler("pay")
async def pay(context: Context, inputs: dict[str, Any]) -> str:  # noqa: ARG001
    began.append(context.item)
    return context.item


async def test_what_needs_approval_is_started_once_a_person_gave_it(store: FakeEndpoint, start: Start) -> None:
    began.clear()
    work = [
        WorkSpec(id="offer", capability="pay"),
        WorkSpec(id="sum", capability="pay", approval=True, after=["offer"]),
    ]
    async with Client.connect(store, actor="ann") as client, start("w1"):
        mission = await client.submit(MissionSpec(id="m", objective="pay", work=work))
        await until(lambda: began == ["offer"], description="what needs no Approval is done")
        (gate, *_) = (await mission.why("sum")).gates
        assert (gate.code.value, gate.change) == (
            "APPROVAL",
            "`treadle approve m/sum`, or `treadle cancel` to deny it",
        )
        with pytest.raises(Refused, match="waits for Approval"):
            await mission.retry("sum")
        with pytest.raises(Refused, match="needs no Approval"):
            await mission.approve("offer")
        assert await mission.approve("sum", reason="seen by ann")
        assert not await mission.approve("sum"), "once is enough"
        assert await mission.results(timeout=20) == {"offer": "offer", "sum": "sum"}
    assert began == ["offer", "sum"]
