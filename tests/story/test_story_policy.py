"""Story: the policy decides who may ask for what, and a Worker goes by a new one from its next decision on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fleet import until
from inside import Start
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.coordinator.core.missions import plan_mission
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import GroupId
from treadle.shared.store import Store, keys, pictures, policies
from treadle.shared.testing.faults import Fault, FaultyEndpoint, Trip
from treadle.shared.testing.store import FakeEndpoint
from treadle.worker import Context, handler

at_once: list[int] = []
running: set[str] = set()


@handler("piece")
async def piece(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    running.add(context.item)
    at_once.append(len(running))
    await anyio.sleep(0.02)
    running.discard(context.item)


def spec(id: str, pieces: int, **of: Any) -> MissionSpec:
    work = [WorkSpec(id=f"p{number}", capability="piece") for number in range(pieces)]
    return MissionSpec(id=id, objective=id, account="acme", work=work, **of)


async def apply(endpoint: FakeEndpoint, text: str) -> None:
    store = await Store.connect(endpoint)
    try:
        await policies.apply(store, text, actor="ana")
    finally:
        await store.aclose()


async def test_a_worker_goes_by_a_new_policy_from_its_next_decision_on(store: FakeEndpoint, start: Start) -> None:
    at_once.clear()
    async with Client.connect(store, actor="ann") as client, start("w1", slots=4):
        await (await client.submit(spec("wide", 12))).results(timeout=20)
        assert max(at_once) == 4
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 1\n")
        at_once.clear()
        await (await client.submit(spec("narrow", 6))).results(timeout=20)
        assert max(at_once[1:]) == 1, "the first may have been taken as the policy came"
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 6\n")
        at_once.clear()
        await (await client.submit(spec("wider", 18))).results(timeout=20)
        assert 5 <= max(at_once) <= 6


ends: dict[str, anyio.Event] = {}


@handler("until-told")
async def until_told(context: Context, inputs: dict[str, Any]) -> None:  # noqa: ARG001
    ends[context.item] = anyio.Event()
    await ends[context.item].wait()


async def recorded(store: Store) -> int:
    """The slots of the Worker, as the store knows them."""
    _, (one,) = await pictures.workers(store)
    return one.slots


async def test_more_slots_are_used_by_what_is_as_wide_and_the_store_knows_of_them(
    store: FakeEndpoint, start: Start
) -> None:
    by_hand = await Store.connect(store)
    async with Client.connect(store, actor="ann") as client, start("w1", slots=1):
        work = [WorkSpec(id="p", capability="piece", slots=3)]
        wide = await client.submit(MissionSpec(id="wide", objective="o", account="acme", work=work))
        assert wide.receipt is not None
        assert wide.receipt.unschedulable == {"piece": 1}
        assert {gate.code for gate in (await wide.why("p")).gates} == {"UNSCHEDULABLE"}
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 3\n")
        await wide.results(timeout=20)
        assert await recorded(by_hand) == 3
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 2\n")
        await until(lambda: is_recorded(by_hand, 2), description="the store knows of two")
        again = await client.submit(MissionSpec(id="again", objective="o", account="acme", work=work))
        assert again.receipt is not None
        assert again.receipt.unschedulable == {"piece": 2}
    await by_hand.aclose()


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.REPLY_LOST])
async def test_slots_that_could_not_be_told_at_once_are_told_again(
    fault: Fault, store: FakeEndpoint, start: Start
) -> None:
    faults = 3

    def once_or_twice(trip: Trip) -> Fault:
        nonlocal faults
        if faults == 0 or "resize" not in trip.functions:
            return Fault.NONE
        faults -= 1
        return fault

    by_hand = await Store.connect(store)
    async with start("w1", slots=1, through=FaultyEndpoint(store, once_or_twice)):
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 3\n")
        await until(lambda: faults == 0, description="three calls are lost")
        await until(lambda: is_recorded(by_hand, 3), description="the store knows of three slots")
    await by_hand.aclose()


async def is_recorded(store: Store, slots: int) -> bool:
    return await recorded(store) == slots


async def test_fewer_slots_than_are_used_drain(store: FakeEndpoint, start: Start) -> None:
    ends.clear()
    by_hand = await Store.connect(store)
    work = [WorkSpec(id=name, capability="until-told") for name in "abc"]
    async with Client.connect(store, actor="ann") as client, start("w1", slots=2):
        mission = await client.submit(MissionSpec(id="m", objective="o", account="acme", work=work))
        await until(lambda: len(ends) == 2, description="two run")
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 1\n")
        await until(lambda: is_recorded(by_hand, 1), description="the store knows of one slot")
        first, second = ends
        ends[first].set()

        async def is_verified() -> bool:
            return (await mission.view()).verified == 1

        await until(is_verified, description="one of them has ended")
        await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 1\n[disclosure]\n")
        assert len(ends) == 2, "its slot is not there any more"
        ends[second].set()
        await until(lambda: len(ends) == 3, description="the third has the slot that is left")
        for event in ends.values():
            event.set()
        await mission.results(timeout=20)
    await by_hand.aclose()


async def test_a_mission_s_quota_of_slots_holds_from_the_policy_on(store: FakeEndpoint, start: Start) -> None:
    at_once.clear()
    await apply(store, "[[missions]]\nmatch = 'acme/capped'\nslots = 2\n")
    async with Client.connect(store, actor="ann") as client, start("w1", slots=4):
        await anyio.lowlevel.checkpoint()
        await (await client.submit(spec("capped", 12))).results(timeout=20)
    assert max(at_once) == 2


async def test_a_class_and_a_weight_are_what_the_policy_grants(store: FakeEndpoint) -> None:
    async with Client.connect(store, actor="ann") as client:
        with pytest.raises(Misuse, match='"urgent" is no class of the policy; use one of standard'):
            await client.submit(spec("m-1", 1, priority_class="urgent"))
        text = "classes.urgent.weight = 8\n[[accounts]]\nmatch = 'acme'\nclasses = ['urgent']\n"
        await apply(store, text)
        first = await client.submit(spec("m-1", 1, priority_class="urgent"))
        with pytest.raises(Misuse, match='does not grant "standard" to account "acme"; use one of urgent'):
            await client.submit(spec("m-2", 1))
        await apply(store, "")
        again = await client.submit(spec("m-1", 1, priority_class="urgent"))
        assert first.receipt is not None
        assert again.receipt is not None
        assert again.receipt.repeated, "what is there keeps its receipt"
        with pytest.raises(Misuse, match="weight: 11, but the policy grants"):
            await client.submit(spec("m-3", 1, weight=11.0))


async def test_more_items_than_an_account_may_have_are_refused_whole(store: FakeEndpoint) -> None:
    await apply(store, "[[accounts]]\nmatch = 'acme'\nqueued = 5\n")
    async with Client.connect(store, actor="ann") as client:
        await client.submit(spec("m-1", 4))
        with pytest.raises(
            Refused, match='account "acme" has 4 items that have not ended, and 2 more would be'
        ) as refused:
            await client.submit(spec("m-2", 2))
        assert refused.value.code == "QUOTA_EXCEEDED"
        await client.submit(spec("m-3", 1))


Door = Callable[[Client, str], Awaitable[object]]


async def add(client: Client, id: str) -> object:
    return await client.mission("grows").add([WorkSpec(id=id, capability="piece")])


async def enqueue(client: Client, id: str) -> object:
    return await client.enqueue("piece", account="acme", key=id)


async def enqueue_many(client: Client, id: str) -> object:
    return await client.enqueue_many([WorkSpec(id=id, capability="piece")], account="acme")


async def submit(client: Client, id: str) -> object:
    return await client.submit(spec(id, 1))


@pytest.mark.parametrize("door", [submit, add, enqueue, enqueue_many])
async def test_at_every_door_what_an_account_may_have_is_held_to(door: Door, store: FakeEndpoint) -> None:
    await apply(store, "[[accounts]]\nmatch = 'acme'\nqueued = 2\n")
    async with Client.connect(store, actor="ann") as client:
        await client.submit(spec("grows", 2, open=True))
        with pytest.raises(Refused) as refused:
            await door(client, "more")
        assert refused.value.code == "QUOTA_EXCEEDED"
        said = str(refused.value)
        assert 'account "acme" has 2 items that have not ended, and 1 more would be over the 2 that the policy' in said
        assert "try again once enough have ended" in said
        await apply(store, "[[accounts]]\nmatch = 'acme'\nqueued = 3\n")
        await door(client, "more")


@pytest.mark.parametrize("door", [add, enqueue, enqueue_many])
async def test_a_client_goes_by_a_policy_that_was_applied_since_it_read_the_last_one(
    door: Door, store: FakeEndpoint
) -> None:
    async with Client.connect(store, actor="ann") as client:
        await client.submit(spec("grows", 2, open=True))
        await door(client, "one")
        await apply(store, "[[missions]]\nmatch = 'acme/*'\nqueued = 1\n")
        with pytest.raises(
            Refused, match=r'mission "(grows|jobs:acme)" has [13] items? that ha(s|ve) not ended'
        ) as refused:
            await door(client, "two")
        assert refused.value.code == "QUOTA_EXCEEDED"
        await door(client, "one")
        await apply(store, "")
        await door(client, "two")


async def test_a_policy_that_a_worker_cannot_read_is_said_and_the_one_before_stays(
    store: FakeEndpoint, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    at_once.clear()
    await apply(store, "[[workers]]\nmatch = 'w*'\nslots = 1\n")
    async with Client.connect(store, actor="ann") as client, start("w1", slots=4):
        await (await client.submit(spec("before", 4))).results(timeout=20)
        by_hand = await Store.connect(store)
        key = keys.policy(by_hand.prefix)
        await by_hand.call_org(
            "set_policy", key, (1, "d", "ana", "-", "[[workers]]\nmatch = '*'\nslots = 3\n[federation]\n")
        )
        await policies.note_everywhere(by_hand, 2)
        at_once.clear()
        await by_hand.create(
            plan_mission(spec("after", 6), mission_id="after", actor="ann", now_ms=await by_hand.now_ms())
        )
        await by_hand.wait_finished(GroupId("after"), timeout_s=20)
        await by_hand.aclose()
    assert max(at_once) == 1
    assert "version 2 of the policy is not followed, the one before stays" in caplog.text
