"""Versions of capabilities in the store (R27): where an item stands, who takes it, and who is told that nobody can."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import Hand, World
from treadle.coordinator.core.gates import Code, explain
from treadle.shared.model import Event, EventKind, ItemId
from treadle.shared.store import pictures
from treadle.shared.versions import does


async def a_hand(world: World, version: str, name: str = "worker-1") -> Hand:
    return await world.hand(name, "index", f"index~{version}", nonce=version)


async def asking_for(world: World, *versions: str) -> None:
    items = (a_new_item(f"i{n}", capability=f"index~{version}") for n, version in enumerate(versions))
    await world.mission(GROUP, *items)


async def authorized(world: World) -> Event:
    return next(event for event in await world.log() if event.kind is EventKind.AUTHORIZED)


async def test_r27_an_item_is_pinned_to_its_version_and_taken_by_a_worker_that_has_it(world: World) -> None:
    await asking_for(world, "1.2.0")
    assert (await authorized(world)).get("capability") == "index~1.2.0"
    hand = await a_hand(world, "1.4.0")
    assert await hand.take() == [], "what asks for a version does not stand among what asks for none"
    (grant,) = await hand.take(capability="index~1")
    assert (grant.capability, grant.version) == ("index", "1.2.0")
    view = await world.store.item(GROUP, ItemId("i0"))
    assert view is not None
    assert (view.capability, view.version) == ("index", "1.2.0")


async def test_what_needs_a_later_version_is_passed_over_and_what_comes_behind_is_taken(world: World) -> None:
    await asking_for(world, "1.5.0", "1.4.1", "1.4.0", "1.0.9")
    hand = await a_hand(world, "1.4.0")
    assert [grant.item for grant in await hand.take(most=9, capability="index~1")] == ["i2", "i3"]
    later = await a_hand(world, "1.10.0", "worker-2")
    assert [grant.item for grant in await later.take(most=9, capability="index~1")] == ["i0", "i1"]


@pytest.mark.parametrize("asked", ["1.4.2", "1.4.3", "1.3.9", "1.10.0", "2.0.0"])
@pytest.mark.parametrize("registered", ["1.4.2", "1.10.0", "2.0.1"])
async def test_the_store_and_python_agree_on_what_will_do(registered: str, asked: str, world: World) -> None:
    await asking_for(world, asked)
    hand = await a_hand(world, registered)
    taken = await hand.take(capability=f"index~{asked.partition('.')[0]}")
    assert bool(taken) is does(f"index~{registered}", f"index~{asked}")


async def test_a_receipt_says_which_version_no_worker_has(world: World) -> None:
    await a_hand(world, "1.4.0")
    for version, missing in (("1.4.0", ()), ("1.4.1", ("index~1.4.1",)), ("2.0.0", ("index~2.0.0",))):
        receipt = await world.store.create(a_new_mission(f"m-{version}", a_new_item(capability=f"index~{version}")))
        assert receipt.no_worker == missing


async def test_why_says_which_version_no_worker_has(world: World) -> None:
    await asking_for(world, "1.5.0")
    await a_hand(world, "1.4.0")
    facts = await pictures.why(world.store, GROUP, ItemId("i0"))
    assert facts is not None
    (gate,) = explain(facts)
    assert (gate.code, gate.text) == (Code.NO_WORKER, "no live Worker offers index 1.5.0 or a later 1.x")
    await a_hand(world, "1.5.0", "worker-2")
    facts = await pictures.why(world.store, GROUP, ItemId("i0"))
    assert facts is not None
    assert [gate.code for gate in explain(facts)] == [Code.NEXT]


async def test_a_worker_is_asked_by_name_only_for_a_version_that_it_has(world: World) -> None:
    await world.mission(GROUP, a_new_item(capability="index~2.0.0", offer="named:worker-1 0"))
    assert await (await a_hand(world, "1.4.0")).take(capability=">worker-1") == []
    assert len(await (await a_hand(world, "2.1.0")).take(capability=">worker-1")) == 1


async def test_a_pause_of_a_capability_holds_every_version_of_it_and_its_end_wakes_them(world: World) -> None:
    await asking_for(world, "1.2.0")
    hand = await a_hand(world, "1.4.0")
    await world.store.call("pause", 0, ("pause", "c:index", "ana", "-"))
    assert await hand.take(capability="index~1") == []
    (wakes,) = [key for key in (await world.dump()) if "@wake:" in key] or [""]
    if wakes:
        await world.raw.delete(wakes)
    await world.store.call("pause", 0, ("resume", "c:index", "ana", "-"))
    assert [key for key in (await world.dump()) if "@wake:" in key], "somebody who can is woken"
    assert len(await hand.take(capability="index~1")) == 1


async def test_nothing_is_left_of_a_version_when_the_last_session_that_has_it_ends(world: World) -> None:
    hand = await a_hand(world, "1.4.0")
    assert set(await world.raw.hkeys(world.key("@caps"))) == {b"index", b"index~1"}
    await hand.close()
    assert await world.raw.hkeys(world.key("@caps")) == []
