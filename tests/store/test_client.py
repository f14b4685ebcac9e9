"""The SDK on a store: submit is durable and repeatable, events end, results come or the reasons do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
import redis.exceptions
from servers import LEGS, binary_of
from store.by_hand import CAPABILITY, connected
from treadle.coordinator import Client, Mission, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.answers import Receipt
from treadle.shared.errors import Corrupt, Misuse, Refused, StoreLost, Unavailable
from treadle.shared.model import Event, EventKind, GroupId, MissionState
from treadle.shared.store import Endpoint, Store, keys
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.store import FakeEndpoint


@pytest.fixture(params=["fakeredis", *LEGS])
def endpoint(request: pytest.FixtureRequest) -> Iterator[str | Endpoint]:
    if request.param == "fakeredis":
        yield FakeEndpoint()
        return
    server = EmbeddedServer(binary=binary_of(request.param)).start()
    yield server.url
    server.stop()


def spec(id_: str | None = "nightly", objective: str = "index", **fields: Any) -> MissionSpec:
    first = WorkSpec(id="a", capability=CAPABILITY, inputs={"n": 1})
    second = WorkSpec(id="b/2", capability=CAPABILITY, after=["a"])
    return MissionSpec(id=id_, objective=objective, work=[first, second], **fields)


def receipt_of(mission: Mission) -> Receipt:
    assert mission.receipt is not None
    return mission.receipt


async def test_submit_work_results(endpoint: str | Endpoint) -> None:
    async with aclosing(connected(endpoint)) as opened:
        client, worker = await anext(opened)
        mission = await client.submit(spec())
        assert (receipt_of(mission).repeated, receipt_of(mission).no_worker) == (False, ())
        for _ in range(2):
            await worker.end_next(mission)
        assert await mission.results(timeout=5) == {"a": {"done": "a"}, "b/2": {"done": "b%2F2"}}
        assert await client.mission("nightly").results() == await mission.results(timeout=0)
        kinds = [event.kind async for event in mission.events()]
        assert kinds[0] is EventKind.MISSION_CREATED
        assert kinds[-1] is EventKind.MISSION_APPROVED
        last = (await mission.view()).last_seq
        assert [event.seq async for event in mission.events(after=last - 2)] == [last - 1, last]
        assert [event async for event in mission.events(after=last)] == []


async def test_a_failed_mission_raises_with_the_reasons(endpoint: str | Endpoint) -> None:
    async with aclosing(connected(endpoint)) as opened:
        client, worker = await anext(opened)
        mission = await client.submit(spec())
        await worker.end_next(mission, fails=True)
        with pytest.raises(MissionFailed, match='mission "nightly" failed: a: ValueError: no such file') as caught:
            await mission.results(timeout=5)
        assert [one.item for one in caught.value.failures] == ["a"]
        assert caught.value.state is MissionState.FAILED
        assert [event.kind async for event in mission.events()][-1] is EventKind.MISSION_TERMINATED


async def test_waiting_holds_nothing_up_and_hears_of_the_end(endpoint: str | Endpoint) -> None:
    async with aclosing(connected(endpoint)) as opened:
        client, worker = await anext(opened)
        mission = await client.submit(spec())
        seen: list[Event] = []
        results: list[dict[str, Any]] = []

        async def follow() -> None:
            async for event in mission.events():
                seen.append(event)

        async def wait() -> None:
            results.append(await mission.results(timeout=30))

        with anyio.fail_after(4):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(wait)
                group.start_soon(follow)
                while not seen:
                    await anyio.lowlevel.checkpoint()
                await client.submit(spec("other"))
                for _ in range(2):
                    await worker.end_next(mission)
        assert len(results) == 3
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))


async def test_results_time_out_exactly_and_say_how_far_it_is(endpoint: str | Endpoint) -> None:
    async with aclosing(connected(endpoint)) as opened:
        client, worker = await anext(opened)
        mission = await client.submit(spec())
        await worker.end_next(mission)
        began = anyio.current_time()
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.2 s: 1 of 2 items are verified"):
            await mission.results(timeout=0.2)
        assert 0.2 <= anyio.current_time() - began < 1.5


async def test_the_same_again_is_the_first_receipt_and_other_content_is_refused(endpoint: str | Endpoint) -> None:
    async with aclosing(connected(endpoint)) as opened:
        client, _ = await anext(opened)
        first = receipt_of(await client.submit(spec()))
        again = receipt_of(await client.submit(spec()))
        assert (again.created_ms, again.repeated) == (first.created_ms, True)
        with pytest.raises(Refused, match='mission "nightly" is in the store with other content') as caught:
            await client.submit(spec(objective="another"))
        assert caught.value.code == "ACTION_ID_COLLISION"
        made = [await client.submit(spec(None)) for _ in range(2)]
        assert made[0].id != made[1].id
        view = await made[0].view()
        assert (view.owner, view.account, view.total) == ("ann", "ann", 2)


async def test_an_unknown_mission_is_said(endpoint: str | Endpoint) -> None:
    async with Client.connect(endpoint) as client:
        mission = client.mission("nope")
        for ask in (mission.view, mission.results, lambda: anext(mission.events())):
            with pytest.raises(Refused, match='mission "nope" is not in this store') as caught:
                await ask()
            assert caught.value.code == "GROUP_NOT_FOUND"


async def test_a_cursor_ahead_of_the_log_is_said(endpoint: str | Endpoint) -> None:
    async with Client.connect(endpoint) as client:
        mission = await client.submit(spec())
        with pytest.raises(Misuse, match=r"^after: 99, must be 0 to 4"):
            await anext(mission.events(after=99))


async def test_no_worker_is_warned_about_once(endpoint: str | Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with Client.connect(endpoint) as client:
        receipts = [receipt_of(await client.submit(spec(None))) for _ in range(3)]
    assert {receipt.no_worker for receipt in receipts} == {(CAPABILITY,)}
    assert len([record for record in caplog.records if "no live Worker offers index" in record.getMessage()]) == 1


async def test_a_warning_names_a_few_capabilities_and_counts_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with Client.connect(FakeEndpoint()) as client:
        for mission in range(3):
            work = [WorkSpec(id=f"i{n}", capability=f"c{mission}.{n:03}") for n in range(500)]
            await client.submit(MissionSpec(id=f"m{mission}", objective="many", work=work))
    lines = [one.getMessage() for one in caplog.records if "NO_WORKER" in one.getMessage()]
    assert lines == [
        f'mission "m{mission}": no live Worker offers c{mission}.000, c{mission}.001, c{mission}.002, c{mission}.003, '
        f"c{mission}.004 and 495 more; its items wait (NO_WORKER) until one does"
        for mission in range(2)
    ], "after a thousand names nothing is said any more"


class LossyEndpoint(FakeEndpoint):
    """Loses the reply of the first `losses` calls of a function that ran."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self.losses = losses
        self.arms = ""

    def client(self, **named: Any) -> Any:
        made = super().client(**named)
        execute = made.execute_command

        async def lossy(*command: Any, **options: Any) -> Any:
            answer = await execute(*command, **options)
            if self.arms and self.losses and command[0] == "FCALL" and self.arms in str(command[1]):
                self.losses -= 1
                raise redis.exceptions.ConnectionError("connection reset")
            return answer

        made.execute_command = lossy
        return made


async def test_a_lost_reply_is_repeated_and_nothing_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    endpoint = LossyEndpoint(losses=3)
    async with Client.connect(endpoint) as client:
        endpoint.arms = "create"
        mission = await client.submit(spec())
        assert endpoint.losses == 0
        assert receipt_of(mission).repeated
        assert (await mission.view()).last_seq == 4


async def test_a_store_that_never_answers_is_unavailable_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    endpoint = LossyEndpoint(losses=1000)
    async with Client.connect(endpoint) as client:
        endpoint.arms = "create"
        with pytest.raises(Unavailable) as caught:
            await client.submit(spec())
        assert endpoint.losses == 1000 - 12
        assert caught.value.__notes__ == [
            "submit: it may have arrived; submitted again with id='nightly' it is there once"
        ]
        endpoint.arms = "add"
        with pytest.raises(Unavailable) as caught:
            await client.enqueue("index", key="a")
        assert caught.value.__notes__ == ["enqueue: it may have arrived; enqueued again with key='a' it is there once"]
        endpoint.losses = 0
        assert receipt_of(await client.submit(spec())).repeated
        job = await client.enqueue("index", key="a")
        assert job.receipt is not None
        assert job.receipt.repeated


@pytest.mark.parametrize("ended", [False, True])
async def test_events_that_are_gone_from_the_log_are_said_not_waited_for(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.coordinator.line.WAIT_S", 0.1)
    async with aclosing(connected(FakeEndpoint())) as opened:
        client, worker = await anext(opened)
        mission = await client.submit(spec())
        for _ in range(2 if ended else 0):
            await worker.end_next(mission)
        store = worker.authority.store
        key = keys.log(store.base(receipt_of(mission).partition), mission.group)
        await store.run(lambda raw: raw.delete(key))
        last = (await mission.view()).last_seq
        with anyio.fail_after(5):
            with pytest.raises(Corrupt, match=f"it ends at or before 0, but {last} were written"):
                await anext(mission.events())


async def test_s24_the_connection_of_a_client_that_is_opened_after_flushall_makes_no_other_store_there() -> None:
    """The one that waits is opened later than the one that calls."""
    endpoint = FakeEndpoint()
    store = await Store.connect(endpoint, partitions=4)
    async with Client.connect(endpoint) as client:
        await store.run(lambda raw: raw.flushall())
        with pytest.raises(StoreLost):
            await client._line.wait(lambda waiting, _: waiting.wait_finished(GroupId("m"), timeout_s=0))
    assert await store.run(lambda raw: raw.keys("*")) == []
    await store.aclose()
