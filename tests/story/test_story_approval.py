"""Story: a person has to approve what is not to be undone; until then nobody starts it, and all else goes on."""

from __future__ import annotations

from typing import Any

import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, Misuse, Refused, WorkSpec
from treadle.shared.store import Store, policies
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

began: list[str] = []


async def apply(endpoint: FakeEndpoint, text: str) -> None:
    other = await Store.connect(endpoint)
    try:
        await policies.apply(other, text, actor="ana")
    finally:
        await other.aclose()


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
            "`treadle approve m/sum`, or `treadle cancel m/sum` to deny it",
        )
        with pytest.raises(Refused, match="waits for Approval"):
            await mission.retry("sum")
        with pytest.raises(Refused, match="needs no Approval"):
            await mission.approve("offer")
        assert await mission.approve("sum", reason="seen by ann")
        assert not await mission.approve("sum"), "once is enough"
        assert await mission.results(timeout=20) == {"offer": "offer", "sum": "sum"}
    assert began == ["offer", "sum"]


async def test_what_bears_the_risk_that_the_policy_names_waits_although_it_did_not_ask(
    store: FakeEndpoint, start: Start
) -> None:
    began.clear()
    work = [WorkSpec(id=risk, capability="pay", risk=risk) for risk in ("none", "low", "high")]
    spec = MissionSpec(id="m", objective="pay", work=work, open=True)
    async with Client.connect(store, actor="ann") as client, start("w1"):
        before = await client.submit(spec)
        await until(lambda: sorted(began) == ["high", "low", "none"], description="there is no policy yet")
        await apply(store, '[approval]\nrisk = "high"\n')
        again = (await client.submit(spec)).receipt
        assert again is not None
        assert again.repeated, "what is there is not judged again"
        await before.add([WorkSpec(id="more", capability="pay", risk="high")])
        (gate, *_) = (await before.why("more")).gates
        assert gate.code.value == "APPROVAL"
        assert gate.text.startswith("its risk is high; nobody has approved its execution")
        job = await client.enqueue("pay", key="job", risk="high")
        other = await client.enqueue("pay", key="other", risk="low")
        later = await client.submit(spec.model_copy(update={"id": "n", "open": False}))
        await other.result(timeout=20)
        await until(lambda: began.count("low") == 2, description="of the other Mission what bears less risk is done")
        assert "more" not in began
        assert "job" not in began
        assert began.count("high") == 1
        for mission, item in ((before, "more"), (later, "high"), (client.mission(job.mission), "job")):
            assert await mission.approve(item)
        await before.seal()
        assert await job.result(timeout=20) == "job"
        assert (await before.results(timeout=20))["more"] == "more"
        assert (await later.results(timeout=20))["high"] == "high"


async def test_a_schedule_starts_nothing_that_the_policy_might_want_approved(store: FakeEndpoint) -> None:
    async with Client.connect(store, actor="ann") as client:
        with pytest.raises(Misuse, match="risk: the policy is asked about one job"):
            await client.schedule("nightly", "pay", every=60, risk="low")
