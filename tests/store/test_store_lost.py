"""A store that is gone, or another one, is never an empty one to who knew it (S24)."""

from __future__ import annotations

import pytest
from builders import GROUP
from store.world import PREFIX, World, a_take
from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.errors import StoreChanged, StoreLost
from treadle.shared.model import GroupId, ItemId
from treadle.shared.store import Store, keys

G = GroupId(GROUP)


async def emptied(world: World) -> None:
    world.audited = False
    await world.raw.flushall()


async def test_s24_who_knew_a_store_reads_nothing_into_its_absence(world: World) -> None:
    await world.mission()
    await emptied(world)
    for reading in (
        lambda: world.store.mission(G),
        world.store.missions,
        lambda: world.store.items(G),
        lambda: world.store.item(G, ItemId("a")),
        lambda: world.store.read_log(G),
        lambda: world.store.wait_log(G, after=9, timeout_s=0.01),
    ):
        with pytest.raises(StoreLost, match="it has no record any more; its server was emptied"):
            await reading()
    assert await world.raw.keys("*") == []


async def test_s24_who_knew_a_store_does_not_make_it_again(world: World) -> None:
    hand = await world.hand()
    await emptied(world)
    with pytest.raises(StoreChanged, match="opened on server none"):
        await hand.turn(a_take(), slots=1)
    with pytest.raises(StoreLost):
        await world.store.adopt()
    with pytest.raises(StoreLost):
        await Store.connect(world.endpoint, prefix=PREFIX, known=world.store.id)
    assert await world.raw.keys("*") == []


@pytest.mark.parametrize("partitions", [1, 16])
async def test_s24_a_store_that_somebody_else_made_in_its_place_is_another_one(world: World, partitions: int) -> None:
    await emptied(world)
    other = await Store.connect(world.endpoint, prefix=PREFIX, partitions=partitions)
    assert other.id != world.store.id
    before = await world.dump()
    with pytest.raises(StoreLost, match=f"it is another one now \\(id {other.id}, was {world.store.id}\\)"):
        await world.store.adopt()
    with pytest.raises(StoreLost):
        await world.store.mission(G)
    assert await world.dump() == before
    await other.aclose()


async def test_a_store_is_known_by_its_id_to_all_who_open_it(world: World) -> None:
    again = await Store.connect(world.endpoint, prefix=PREFIX, known=world.store.id)
    assert again.id == world.store.id
    assert await world.raw.hget(keys.store_record(PREFIX), "id") == again.id.encode()
    await again.aclose()


async def test_s24_a_client_raises_whatever_it_is_asked(world: World) -> None:
    async with Client.connect(world.endpoint, actor="ana", prefix=PREFIX) as client:
        mission = await client.submit(MissionSpec(id="m", objective="o", work=[WorkSpec(id="a", capability="index")]))
        await emptied(world)
        with pytest.raises(StoreLost):
            await mission.view()
        with pytest.raises(StoreLost):
            await mission.results(timeout=5)
        with pytest.raises(StoreLost):
            await client.submit(MissionSpec(id="n", objective="o", work=[WorkSpec(id="a", capability="index")]))
        with pytest.raises(StoreLost):
            await client.enqueue("index", {})
    assert await world.raw.keys("*") == []
