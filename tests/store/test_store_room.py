"""Room: slots that an item does not fit, a server that is full, bodies that do not go into one answer."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item, a_new_mission
from servers import LEGS
from store.world import PREFIX, Hand, World, a_submit, a_take
from treadle.shared.errors import Backpressure
from treadle.shared.model import Capability, GroupId, ItemId, Urgency
from treadle.shared.store import Store

MIB = 1 << 20


async def test_narrow_items_behind_a_head_too_wide_are_all_started(world: World) -> None:
    wide = a_new_item("wide", width=4, urgency=Urgency.HIGH)
    await world.mission(GROUP, wide, *(a_new_item(f"n{number}") for number in range(5)))
    hand = await world.hand()
    started: list[str] = []
    for most in (2, 2, 1):
        grants = await hand.take(most=2, slots=2)
        assert len(grants) == most
        started += [grant.item for grant in grants]
        await hand.turn(*(a_submit(grant) for grant in grants))
    assert started == [f"n{number}" for number in range(5)]
    outcome = await hand.do(a_take(), slots=2)
    assert (outcome.code, outcome.grants) == ("PASSED", ())
    entry = (await world.authority.look({0: 0}, [Capability("index")]))[0].entries[0]
    assert entry.takeable == 1, "what was skipped is left over, in the directory"
    assert [grant.item for grant in await hand.take(slots=4)] == ["wide"]


async def test_what_was_skipped_is_left_over_beside_what_was_taken_before_and_behind_it(world: World) -> None:
    items = [("a", 1), ("b", 4), ("c", 1), ("d", 4), ("e", 1), ("f", 1)]
    await world.mission(GROUP, *(a_new_item(name, width=width) for name, width in items))
    hand = await world.hand()
    assert [grant.item for grant in await hand.take(most=8, slots=3)] == ["a", "c", "e"]
    assert [grant.item for grant in await hand.take(most=8, slots=9)] == ["b", "d", "f"]


# --- a full server ---


@pytest.mark.parametrize("leg", [pytest.param(leg, marks=pytest.mark.slow) for leg in LEGS], indirect=True)
async def test_a_full_server_lets_those_in_who_finish_the_work(world: World) -> None:
    await world.mission()
    mission = GroupId(GROUP)
    before = await world.raw.config_get("maxmemory")
    await world.raw.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(Backpressure):
            await world.store.create(a_new_mission("another"))
        store = await Store.connect(world.endpoint, prefix=PREFIX)
        try:
            hand: Hand = await world.hand()
            await world.authority.poke(hand.session)
            assert (await hand.do(a_submit(await hand.started()))).code == "OK"
            assert (await store.wait_finished(mission, timeout_s=5)).verified == 1
            assert [item.result for item in await store.items(mission, bodies=True)] == [b"result"]
        finally:
            await store.aclose()
        with pytest.raises(Backpressure):
            await Store.connect(world.endpoint, prefix="new")
    finally:
        await world.raw.config_set("maxmemory", before["maxmemory"])


async def test_a_store_that_is_there_is_opened_without_a_write(world: World) -> None:
    before = await world.dump()
    store = await Store.connect(world.endpoint, prefix=PREFIX)
    await store.aclose()
    assert await world.dump() == before


# --- answers of a bounded size ---


async def test_long_bodies_are_read_a_mebibyte_a_call_and_all_of_them(world: World) -> None:
    bodies = {"a": b"a" * MIB, "b": b"b" * MIB, "c": b"c", "d": b"d" * (MIB // 2), "e": b"e" * MIB}
    await world.mission(GROUP, *(a_new_item(name, inputs=inputs) for name, inputs in bodies.items()))
    wanted = [(GroupId(GROUP), ItemId(name), "in") for name in (*bodies, "nothing")]
    assert await world.authority.read(0, wanted) == [*bodies.values(), None]
    flat = [part for triple in wanted for part in triple]
    answers = []
    while flat:
        reply = (await world.store.call("read", 0, flat))[1:]
        answers.append(len(reply))
        flat = flat[3 * len(reply) :]
    assert answers == [1, 1, 3, 1]
