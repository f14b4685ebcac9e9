"""Missions that grow: items added by anybody, each once, in the store's order; and what ends their growth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from store.by_hand import HandWorker
from store.world import PREFIX, World
from treadle.coordinator import Client, Mission, MissionFailed, MissionSpec, WorkSpec
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import EventKind, ItemState, MissionState
from treadle.shared.names import name_of
from treadle.shared.testing.faults import Fault, Trip, no_fault


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


@pytest.fixture
async def hand(world: World) -> HandWorker:
    return await HandWorker.open(world.store)


async def grown(client: Client, *work: WorkSpec, **fields: Any) -> Mission:
    return await client.submit(MissionSpec(id="nightly", objective="index", work=work, open=True, **fields))


def item(id_: str, **fields: Any) -> WorkSpec:
    return WorkSpec(**{"id": id_, "capability": "index", **fields})


async def test_it_grows_ends_when_sealed_and_gives_every_result(client: Client, hand: HandWorker) -> None:
    mission = await grown(client)
    assert (await mission.view()).is_open
    added = await mission.add([item("b", after=["a"]), item("a")])
    assert (added.created, added.repeated, added.no_worker, added.unschedulable) == (2, 0, (), {})
    for _ in range(2):
        await hand.end_next(mission)
    assert (await mission.add([item("c", after=["a", "b"])])).created == 1
    await hand.end_next(mission)
    with pytest.raises(
        TimeoutError, match="3 of 3 items are verified, 0 failed; it is open, and ends after `seal` only"
    ):
        await mission.results(timeout=0)
    await mission.seal()
    await mission.seal()
    assert await mission.results(timeout=5) == {name: {"done": name} for name in ("a", "b", "c")}
    kinds = [event.kind async for event in mission.events()]
    assert kinds.count(EventKind.MISSION_SEALED) == 1
    assert kinds[-1] is EventKind.MISSION_APPROVED


async def test_two_clients_add_at_once_and_each_item_is_there_once_in_the_store_s_order(
    client: Client, world: World
) -> None:
    """BR-39: ids that publishers made were refused under load; here the store counts, and a lost reply adds nothing twice."""
    mission = await grown(client, item("first"))
    losses = 40

    def lose(trip: Trip) -> Fault:
        nonlocal losses
        if losses and "add" in trip.functions and trip.number % 3 == 0:
            losses -= 1
            return Fault.REPLY_LOST
        return Fault.NONE

    world.endpoint.fault = lose
    async with Client.connect(world.endpoint, actor="bob", prefix=PREFIX) as other:

        async def add(one: Client, name: str) -> None:
            handle = one.mission("nightly")
            for start in range(0, 1_000, 50):
                await handle.add([item(f"{name}{index}", inputs={"n": index}) for index in range(start, start + 50)])

        async with anyio.create_task_group() as group:
            group.start_soon(add, client, "ann-")
            group.start_soon(add, other, "bob-")
    world.endpoint.fault = no_fault
    assert losses < 40
    names = list(await mission.items())
    assert sorted(names) == sorted(["first", *(f"{who}{index}" for who in ("ann-", "bob-") for index in range(1_000))])
    events = await world.log("nightly")
    authorized = [name_of(event.item) for event in events if event.kind is EventKind.AUTHORIZED and event.item]
    assert authorized == names
    for who in ("ann-", "bob-"):
        mine = [name for name in names if name.startswith(who)]
        assert mine == [f"{who}{index}" for index in range(1_000)]
    assert {event.by for event in events if event.kind is EventKind.AUTHORIZED} == {"ann", "bob"}


async def test_an_item_added_again_is_there_once_and_other_content_is_refused(client: Client) -> None:
    mission = await grown(client, item("a"))
    again = await mission.add([item("a"), item("b")])
    assert (again.created, again.repeated) == (1, 1)
    said = (
        r'^item "b" is in mission "nightly" with other content; give it unchanged to have it counted once, or give this'
    )
    with pytest.raises(Refused, match=said) as caught:
        await mission.add([item("c"), item("b", retry=0)])
    assert caught.value.code == "ACTION_ID_COLLISION"
    assert list(await mission.items()) == ["a", "b"]


async def test_more_than_a_call_takes_goes_in_several(client: Client, world: World) -> None:
    mission = await grown(client)
    before = world.endpoint.trips
    added = await mission.add(item(f"i{index}") for index in range(600))
    assert (added.created, world.endpoint.trips - before) == (600, 3)
    assert list(await mission.items()) == [f"i{index}" for index in range(600)]
    assert (await mission.add([])).created == 0


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (
            [item("b", after=["zz"])],
            'item "b": after: names an item that is neither in mission "nightly" nor in this call',
        ),
        ([item("b", after=["b"])], 'work[0] (id "b"): after: "b" is the item itself'),
        ([item("b", after=["c"]), item("c", after=["b"])], 'work[0] (id "b"): after: cycle b -> c -> b'),
        ([item("b"), item("b")], 'work[1] (id "b"): id: is also that of work[0]'),
        ([item("b", inputs={"n": 2**64})], 'work[0] (id "b"): inputs.n: 18446744073709551616 is outside'),
    ],
)
async def test_what_cannot_be_added_is_named_and_nothing_is_written(
    client: Client, work: list[WorkSpec], said: str
) -> None:
    mission = await grown(client, item("a"))
    with pytest.raises(Misuse) as caught:
        await mission.add(work)
    assert str(caught.value).startswith(said)
    assert list(await mission.items()) == ["a"]


async def test_a_mission_that_does_not_grow_says_so(client: Client, hand: HandWorker) -> None:
    whole = await client.submit(MissionSpec(id="whole", objective="index", work=[item("a")]))
    with pytest.raises(Refused, match=r'^mission "whole" does not grow: it was not submitted with open=True, or it is'):
        await whole.add([item("b")])
    await whole.seal()  # it has been from the beginning
    await hand.end_next(whole)
    with pytest.raises(Refused, match=r'^mission "whole" has ended and cannot be added to any more$'):
        await whole.add([item("b")])
    sealed = await grown(client, item("a"))
    await sealed.seal()
    with pytest.raises(Refused, match=r'^mission "nightly" does not grow'):
        await sealed.add([item("b")])
    with pytest.raises(Refused, match=r'^mission "nope" is not in this store'):
        await client.mission("nope").add([item("b")])


async def test_what_failed_is_tried_again_while_it_is_open(client: Client, hand: HandWorker) -> None:
    mission = await grown(client, item("a", retry=0))
    await hand.end(await hand.take(mission), fails="no such file")
    assert (await mission.items())["a"].state is ItemState.FAILED
    await mission.retry("a")
    await hand.end_next(mission)
    await mission.seal()
    assert await mission.results(timeout=5) == {"a": {"done": "a"}}


async def test_an_item_is_failed_by_its_owner_with_evidence(client: Client) -> None:
    mission = await grown(client, item("a"), item("b"))
    await mission.fail("a", "the customer withdrew it")
    await mission.fail("a", "the customer withdrew it")
    with pytest.raises(Refused, match=r'^item "a" of mission "nightly" is failed and cannot fail any more$'):
        await mission.fail("a", "another reason")
    await mission.fail("b", {"type": "Withdrawn", "text": "no more", "ticket": 7})
    await mission.seal()
    with pytest.raises(MissionFailed, match="a: Failed: the customer withdrew it; b: Withdrawn: no more") as caught:
        await mission.results(timeout=5)
    assert caught.value.state is MissionState.FAILED
    with pytest.raises(Misuse, match=r"^evidence: 20,\d+ bytes when packed, at most 16,384"):
        await mission.fail("a", "x" * 20_000)
    with pytest.raises(Refused, match=r'^item "zz" of mission "nightly" is not there; check its id$'):
        await mission.fail("zz", "x")
    with pytest.raises(Refused, match=r"cannot be tried again any more: its Mission has ended$"):
        await mission.retry("a")


async def test_only_what_failed_or_is_parked_is_tried_again(client: Client) -> None:
    mission = await grown(client, item("a"))
    with pytest.raises(Refused, match=r'^item "a" of mission "nightly" is offered: only what failed or is parked can'):
        await mission.retry("a")


@pytest.mark.parametrize("lost", ["seal", "cancel", "fail_item", "retry"])
async def test_a_command_whose_reply_is_lost_is_done_once(
    client: Client, world: World, hand: HandWorker, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    mission = await grown(client, item("a", retry=0), item("b"))
    await hand.end(await hand.take(mission), fails="no such file")
    losses = 2

    def lose(trip: Trip) -> Fault:
        nonlocal losses
        if losses and lost in trip.functions:
            losses -= 1
            return Fault.REPLY_LOST
        return Fault.NONE

    world.endpoint.fault = lose
    await mission.retry("a")
    await mission.fail("a", "no")
    await mission.cancel_item("b")
    await mission.seal()
    world.endpoint.fault = no_fault
    assert losses == 0
    kinds = [event.kind for event in await world.log("nightly")]
    counts = [kinds.count(kind) for kind in (EventKind.MISSION_SEALED, EventKind.FAILED, EventKind.CANCELLED)]
    assert counts == [1, 2, 1]
    assert [event.get("cause") for event in await world.log("nightly") if event.kind is EventKind.OFFERED] == [
        *("created", "created", "retried")
    ]


async def test_a_large_mission_whose_replies_are_lost_is_there_whole_and_once(
    client: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.coordinator.line.BACKOFF_S", 0.0)
    left = ["create", "add", "add", "seal", "add"]

    def lose(trip: Trip) -> Fault:
        if left and left[0] in trip.functions:
            left.pop(0)
            return Fault.REPLY_LOST
        return Fault.NONE

    world.endpoint.fault = lose
    work = [item(f"i{n}", after=[f"i{n - 1}"] if n % 7 else []) for n in range(1_000)]
    spec = MissionSpec(id="large", objective="index", work=list(reversed(work)))
    mission = await client.submit(spec)
    world.endpoint.fault = no_fault
    assert left in ([], ["add"])
    assert sorted(await mission.items()) == sorted(one.id for one in work)
    events = await world.log("large")
    assert [event.kind for event in events].count(EventKind.MISSION_SEALED) == 1
    again = await client.submit(spec)
    assert again.receipt is not None
    assert again.receipt.repeated


NAMES = [
    "łódź",
    "写真 17",
    "\N{ROCKET}\N{ZERO WIDTH JOINER}x",
    "\u202eabc\u202c",
    "a\nb\x00\x1b[31m",
    "{p}:a/b %2F",
    " ",
]


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_in_any_script_comes_back_as_it_was(world: World, name: str) -> None:
    async with Client.connect(world.endpoint, actor=name, prefix=PREFIX) as client:
        mission = await client.submit(MissionSpec(id=name, objective=name + ".", work=[item(name)], account=name))
        view = await mission.view()
        assert (view.mission, view.owner, view.account, view.objective) == (name, name, name, name + ".")
        assert list(await mission.items()) == [name]
        with pytest.raises(Refused) as caught:
            await mission.add([item("b")])
        assert str(caught.value).isprintable()
        assert await mission.cancel(name) is MissionState.CANCELLED
