"""A store is opened and Missions are created in it: open_store, adopt, create, read, watch, and the pictures."""

from __future__ import annotations

import anyio
import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import PREFIX, World, a_fail, a_save, a_submit, a_take
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import GroupId, ItemId, ItemState, MissionState, Urgency
from treadle.shared.store import Store, keys


async def test_a_new_store_says_its_format_and_partitions_and_keeps_them(world: World) -> None:
    record = await world.raw.hgetall(keys.store_record(PREFIX))
    assert record == {b"version": b"1", b"partitions": b"1", b"id": record[b"id"]}
    for asked in (None, 1):
        again = await Store.connect(world.endpoint, prefix=PREFIX, partitions=asked)
        assert again.partitions == 1
        await again.aclose()
    assert await world.raw.hgetall(keys.store_record(PREFIX)) == record


async def test_a_store_has_sixteen_partitions_where_nobody_says_how_many(world: World) -> None:
    other = await Store.connect(world.endpoint, prefix="other")
    assert other.partitions == 16
    await other.aclose()
    for key in await world.raw.keys("other:*"):
        await world.raw.delete(key)


async def test_opening_a_store_again_changes_nothing_in_it(world: World) -> None:
    before = await world.dump()
    again = await Store.connect(world.endpoint, prefix=PREFIX)
    await again.adopt()
    await again.aclose()
    assert await world.dump() == before


async def test_a_store_of_another_format_is_refused_with_what_to_do(world: World) -> None:
    await world.raw.hset(keys.store_record(PREFIX), "version", "2")
    with pytest.raises(Misuse, match=r"format version 2, this program speaks 1.*TREADLE_PREFIX"):
        await Store.connect(world.endpoint, prefix=PREFIX)


@pytest.mark.parametrize("asked", [2, 256])
async def test_another_number_of_partitions_is_refused_with_what_to_do(world: World, asked: int) -> None:
    before = await world.dump()
    with pytest.raises(Misuse, match=f"TREADLE_PARTITIONS: {asked}.*created with 1.*leave the setting out"):
        await Store.connect(world.endpoint, prefix=PREFIX, partitions=asked)
    assert await world.dump() == before


@pytest.mark.parametrize("asked", [0, -1, 257])
async def test_an_impossible_number_of_partitions_is_refused_before_anything_is_written(
    world: World, asked: int
) -> None:
    before = await world.dump()
    with pytest.raises(Misuse, match=f"TREADLE_PARTITIONS: {asked}, must be 1 to 256"):
        await Store.connect(world.endpoint, prefix="new", partitions=asked)
    assert await world.dump() == before


async def test_a_mission_is_created_with_its_events_and_what_waits_for_nothing_is_offered(world: World) -> None:
    items = (a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a", "b"]))
    receipt = await world.store.create(a_new_mission("m-1", *items))
    assert (receipt.mission, receipt.items, receipt.repeated, receipt.no_worker) == ("m-1", 3, False, ("index",))
    assert await world.kinds() == [
        "mission.created",
        *("work.authorized", "work.offer.created"),
        *("work.authorized", "work.offer.created"),
        "work.authorized",
    ]
    states = [(item.item, item.state, item.dependencies_left) for item in await world.store.items(receipt.group)]
    assert states == [("a", ItemState.OFFERED, 0), ("b", ItemState.OFFERED, 0), ("c", ItemState.OPEN, 2)]
    view = await world.store.mission(receipt.group)
    assert view is not None
    assert (view.state, view.total, view.verified, view.created_ms) == (MissionState.ACTIVE, 3, 0, receipt.created_ms)


async def test_the_receipt_names_capabilities_that_no_live_worker_offers(world: World) -> None:
    hand = await world.hand("worker-1", "index", "merge")
    items = (a_new_item("a"), a_new_item("b", capability="audit"), a_new_item("c", capability="merge"))
    assert (await world.store.create(a_new_mission("m-1", *items))).no_worker == ("audit",)
    await hand.close()
    assert (await world.store.create(a_new_mission("m-1", *items))).no_worker == ("index", "audit", "merge")


@pytest.mark.parametrize("ended", [False, True])
async def test_a_mission_submitted_again_is_answered_with_its_first_receipt(world: World, ended: bool) -> None:
    mission = a_new_mission()
    first = await world.store.create(mission)
    hand = await world.hand()
    if ended:
        await hand.do(a_submit(await hand.started()))
    await world.pass_ms(5)
    before = await world.dump()
    again = await world.store.create(mission)
    assert again.repeated
    assert (again.group, again.partition, again.created_ms, again.items) == (
        first.group,
        first.partition,
        first.created_ms,
        first.items,
    )
    assert await world.dump() == before


async def test_long_bodies_stand_beside_the_item_and_short_ones_in_it(world: World) -> None:
    short, edge, long = b"s" * 64, b"e" * 65, b"\x00\xff" * 300_000
    items = [a_new_item(name, inputs=body) for name, body in (("s", short), ("e", edge), ("l", long))]
    group = await world.mission("m-1", *items)
    wanted = [(group, ItemId(name), "in") for name in ("s", "e", "l", "unknown")]
    assert await world.authority.read(0, wanted) == [short, edge, long, None]
    assert [await world.raw.exists(world.key(f"m-1:in:{name}")) for name in ("s", "e", "l")] == [0, 1, 1]


async def test_an_empty_body_is_not_an_absent_one(world: World) -> None:
    group = await world.mission("m-1", a_new_item(inputs=b""))
    assert await world.authority.read(0, [(group, ItemId("a"), "in"), (group, ItemId("a"), "rs")]) == [b"", None]


async def test_any_number_of_bodies_is_read_64_a_call(world: World) -> None:
    names = [f"i{n}" for n in range(130)]
    group = await world.mission("m-1", *(a_new_item(name, inputs=name.encode()) for name in names))
    found = await world.authority.read(0, [(group, ItemId(name), "in") for name in names])
    assert found == [name.encode() for name in names]


async def test_a_shorter_checkpoint_leaves_nothing_of_a_longer_one_behind(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    for number, state in ((1, b"x" * 1000), (2, b"z" * 999), (3, b"short"), (4, b"too"), (5, b"y" * 2000)):
        assert (await hand.do(a_save(grant, number, state))).code == "OK"
        name = keys.checkpoint_name(number)
        assert await world.authority.read(0, [(grant.group, grant.item, name)]) == [state]
        assert await world.raw.exists(world.key(f"m-1:{name}:a")) == (len(state) > 64)


async def test_results_and_evidence_are_shown_with_the_items(world: World) -> None:
    group = await world.mission("m-1", a_new_item("a"), a_new_item("b"), a_new_item("c"))
    hand = await world.hand()
    one, two, three = await hand.take(most=3)
    await hand.turn(a_submit(one, b"r" * 100), a_submit(two, b"short"), a_fail(three, b"why" * 50))
    found = {item.item: (item.state, item.result, item.failure) for item in await world.store.items(group, bodies=True)}
    assert found == {
        one.item: (ItemState.VERIFIED, b"r" * 100, b""),
        two.item: (ItemState.VERIFIED, b"short", b""),
        three.item: (ItemState.FAILED, None, b"why" * 50),
    }
    assert {item.result for item in await world.store.items(group)} == {None}


async def test_items_are_given_in_one_fixed_order(world: World) -> None:
    now = await world.store.now_ms()
    items = [
        a_new_item("routine", urgency=Urgency.ROUTINE),
        a_new_item("b-normal"),
        a_new_item("a-normal"),
        a_new_item("important", business_impact=9),
        a_new_item("high", urgency=Urgency.HIGH),
        a_new_item("critical", urgency=Urgency.CRITICAL),
        a_new_item("due-soon", deadline_ms=now + 60_000),
        a_new_item("overdue", deadline_ms=now - 60_000),
    ]
    await world.mission("m-1", *items)
    hand = await world.hand()
    given = [grant.item for grant in await hand.take(most=8)]
    assert given == ["critical", "overdue", "due-soon", "high", "important", "a-normal", "b-normal", "routine"]


GPU = (("gpu", 2), ("license-x", 1))


async def test_a_place_in_the_order_says_how_wide_an_item_is_when_its_run_is_over_and_what_it_needs(
    world: World,
) -> None:
    items = (
        a_new_item("a", width=4, timeout_ms=1500, urgency=Urgency.CRITICAL),
        a_new_item("b", width=2, urgency=Urgency.HIGH, resources=GPU),
        a_new_item("c", timeout_ms=20, resources=GPU),
        a_new_item("d", urgency=Urgency.ROUTINE),
    )
    await world.mission("m-1", *items)
    hand = await world.hand(slots=4, resources=GPU)
    heads: list[tuple[object, ...]] = []
    for _ in items:
        (entry,) = (await world.authority.look({0: 0}, [items[0].capability]))[0].entries
        heads.append((entry.head_item, entry.head_width, entry.head_timeout_ms, entry.head_needs))
        await hand.turn(a_take(most=1), slots=4, resources=GPU)
    assert heads == [("a", 4, 1500, ()), ("b", 2, 0, GPU), ("c", 1, 20, GPU), ("d", 1, 0, ())]


async def test_missions_are_listed_and_one_that_is_not_there_is_none(world: World) -> None:
    for name in ("m-1", "m-2", "m-3"):
        await world.mission(name)
        await world.pass_ms(2)
    assert [view.group for view in await world.store.missions()] == ["m-1", "m-2", "m-3"]
    assert await world.store.mission(GroupId("nowhere")) is None
    assert await world.store.items(GroupId("nowhere")) == []


async def test_a_waiting_client_is_rung_when_the_mission_ends(world: World) -> None:
    group = await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    waiting = await Store.connect(world.endpoint, prefix=PREFIX)
    ended: list[MissionState] = []

    async def wait() -> None:
        ended.append((await waiting.wait_finished(group, timeout_s=30)).state)

    async def is_watched() -> bool:
        return bool(await world.raw.exists(world.key("m-1:wait")))

    began_s = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await world.eventually(is_watched, "the client is registered")
        await hand.do(a_submit(grant))
    assert ended == [MissionState.APPROVED]
    assert anyio.current_time() - began_s < 2, "it was rung, and did not merely look again"
    assert not await is_watched()
    await waiting.aclose()


async def test_a_client_that_waits_for_an_ended_mission_is_answered_at_once(world: World) -> None:
    group = await world.mission()
    hand = await world.hand()
    await hand.do(a_fail(await hand.started()))
    before = await world.dump()
    assert (await world.store.wait_finished(group, timeout_s=30)).state is MissionState.FAILED
    assert await world.dump() == before


async def test_waiting_ends_at_its_time_out_with_the_mission_as_it_is(world: World) -> None:
    group = await world.mission()
    began_s = anyio.current_time()
    assert (await world.store.wait_finished(group, timeout_s=0.05)).state is MissionState.ACTIVE
    assert await world.store.wait_log(group, after=3, timeout_s=0.05) == []
    assert 0.08 < anyio.current_time() - began_s < 3


async def test_waiting_longer_than_the_sockets_time_out_is_waiting_and_no_lost_reply(world: World) -> None:
    group = await world.mission()
    hasty = await Store.connect(world.endpoint, prefix=PREFIX, timeout_s=0.3)
    assert (await hasty.wait_finished(group, timeout_s=0.6)).state is MissionState.ACTIVE
    assert await hasty.wait_log(group, after=3, timeout_s=0.6) == []
    await hasty.aclose()


async def test_a_mission_that_is_not_there_cannot_be_waited_for(world: World) -> None:
    with pytest.raises(Refused, match="nowhere") as caught:
        await world.store.wait_finished(GroupId("nowhere"), timeout_s=1)
    assert caught.value.code == "GROUP_NOT_FOUND"


async def test_a_reader_of_the_log_gets_new_events_as_soon_as_there_are_some(world: World) -> None:
    group = await world.mission()
    hand = await world.hand()
    reading = await Store.connect(world.endpoint, prefix=PREFIX)
    found: list[str] = []

    async def read() -> None:
        found.extend(event.kind.value for event in await reading.wait_log(group, after=3, timeout_s=30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.lowlevel.checkpoint()
        await hand.turn(a_take(GROUP), slots=1)
    assert found == ["work.offer.accepted", "work.started"]
    await reading.aclose()
