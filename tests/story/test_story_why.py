"""Story: why does it wait? The Workers that could run an item say so themselves, as soon as they are asked."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, Refused, WorkSpec
from treadle.shared.model import AgentId
from treadle.shared.store import Store, policies
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, Worker, handler
from treadle.worker.loading import collect

began: list[str] = []
gone_on: set[str] = set()


@pytest.fixture(autouse=True)
def _anew() -> None:
    began.clear()
    gone_on.clear()


@handler("long")
async def long(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    began.append(context.item)
    while "all" not in gone_on:  # noqa: ASYNC110 - a run that is told from outside when to end
        await anyio.sleep(0.01)


def mission(id: str, *items: str, weight: float = 1) -> MissionSpec:
    work = [WorkSpec(id=item, capability="long") for item in items]
    return MissionSpec(id=id, objective=id, account="acme", weight=weight, work=work)


async def codes(client: Client, mission: str, item: str) -> list[str]:
    return [gate.code.value for gate in (await client.mission(mission).why(item)).gates]


async def test_a_worker_says_that_others_come_first_and_not_who(store: FakeEndpoint, start: Start) -> None:
    async with Client.connect(store, actor="ann") as client, start("w1", slots=1):
        await client.submit(mission("served", "a", "b"))
        await until(lambda: bool(began), description="one item fills the only slot")
        await client.submit(mission("secret", "a", weight=10))
        behind = ["CAPACITY", "FAIR_SHARE"]
        with anyio.fail_after(5):
            while await codes(client, "served", "b") != behind:  # noqa: ASYNC110 - as soon as it was served a moment longer
                await anyio.sleep(0.01)
        found = await client.mission("served").why("b")
        assert (found.asked, found.answered) == (1, 1)
        assert [gate.code.value for gate in found.gates] == behind
        assert "secret" not in repr(found)
        assert await codes(client, "secret", "a") == ["CAPACITY"], "the newcomer is next"
        assert await codes(client, "served", "a") == ["RUNNING"]
        gone_on.add("all")
        for id in ("served", "secret"):
            await client.mission(id).results(timeout=20)


async def test_a_worker_that_works_for_others_only_says_so(store: FakeEndpoint) -> None:
    worker = Worker(
        collect(sys.modules[__name__]), endpoint=store, name=AgentId("w1"), groups="theirs/*", lease_ttl_s=0.5
    )
    async with Client.connect(store, actor="ann") as client, anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.ready.wait()
        await client.submit(mission("ours", "a"))
        (gate,) = (await client.mission("ours").why("a")).gates
        assert gate.code == "NOT_SERVED"
        assert gate.change == "a Worker whose --groups matches ours"
        worker.stop()


async def test_a_revoked_worker_that_is_the_only_one_is_no_silence(store: FakeEndpoint, start: Start) -> None:
    async with Client.connect(store, actor="ann") as client, start("w1"):
        ours = await client.submit(mission("ours", "a", "b"))
        await until(lambda: bool(began), description="it runs something")
        await ours.revoke("w1")
        (gate, *_) = (await ours.why("b")).gates
        assert gate.code == "KEPT_OUT"
        assert gate.text == "w1 offers long and is kept out of its Mission, no other live Worker does"
        await ours.cancel()


async def test_where_nobody_is_there_or_nobody_answers_that_is_said(store: FakeEndpoint) -> None:
    async with Client.connect(store, actor="ann") as client:
        ours = await client.submit(mission("ours", "a"))
        assert await codes(client, "ours", "a") == ["NO_WORKER"]
        with pytest.raises(Refused, match='mission "ours" has no item "b"'):
            await ours.why("b")
        with pytest.raises(Refused, match='mission "absent" is not in this store'):
            await client.mission("absent").why("a")
        await ours.cancel()


async def apply(endpoint: FakeEndpoint, text: str) -> None:
    other = await Store.connect(endpoint)
    try:
        await policies.apply(other, text, actor="ana")
    finally:
        await other.aclose()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            "[[missions]]\nmatch = 'acme/ours'\nslots = 1\n",
            "its Mission has as much running as the policy grants it slots",
        ),
        (
            "[[accounts]]\nmatch = 'acme'\nslots = 1\n",
            "its account has as much running as the policy grants it slots",
        ),
        (
            "[[missions]]\nmatch = 'acme/ours'\nrate = '1/h'\n",
            "its Mission has had as many starts in this window as the policy grants it",
        ),
        (
            "[[accounts]]\nmatch = 'acme'\nrate = '1/h'\n",
            "its account has had as many starts in this window as the policy grants it",
        ),
    ],
)
async def test_a_quota_that_is_used_up_is_said_to_be_the_missions_or_the_accounts(
    policy: str, text: str, store: FakeEndpoint, start: Start
) -> None:
    await apply(store, policy)
    async with Client.connect(store, actor="ann") as client, start("w1", slots=4):
        ours = await client.submit(mission("ours", "a", "b"))
        await until(lambda: began == ["a"], description="the first has all that is granted")
        with anyio.fail_after(5):
            while [gate.text for gate in (await ours.why("b")).gates] != [text]:  # noqa: ASYNC110 - once it has heard of that
                await anyio.sleep(0.01)
        (gate,) = (await ours.why("b")).gates
        assert gate.code == "QUOTA"
        assert gate.to_s is None
        gone_on.add("all")
        await ours.cancel()


async def test_what_only_the_wide_worker_could_run_is_unschedulable_once_that_has_left(
    store: FakeEndpoint, start: Start
) -> None:
    wide = WorkSpec(id="wide", capability="long", slots=3)
    async with Client.connect(store, actor="ann") as client, start("narrow", slots=2):
        await client.pause("capability:long")
        async with start("large", slots=4):
            ours = await client.submit(MissionSpec(id="ours", objective="wide", account="acme", work=[wide]))
            assert ours.receipt is not None
            assert ours.receipt.unschedulable == {}
            assert "UNSCHEDULABLE" not in await codes(client, "ours", "wide"), "one Worker is too small, another is not"
        await client.resume("capability:long")
        (gate,) = (await ours.why("wide")).gates
        assert gate.code == "UNSCHEDULABLE"
        assert gate.text == "it needs 3 slots at once, the largest live Worker that offers long has 2"
        assert gate.change == "start a Worker with --slots 3 or more"
        await ours.cancel()
