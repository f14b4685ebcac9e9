"""How many items that have not ended an account and a Mission may have: bounds that a submission brings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import GROUP, a_new_item, a_new_mission, a_raw_item
from servers import LEGS
from store.world import World, a_fail, a_submit
from treadle.shared.errors import Refused
from treadle.shared.model import GroupId, NewItem, Queued
from treadle.shared.store import commands
from treadle.shared.store.counting import recount
from treadle.shared.store.repairing import repair
from treadle.shared.store.verifying import verify


async def unfinished(world: World, account: str = "acme") -> int:
    return sum((await world.store.unfinished(account)).values())


async def submitted(world: World, mission: str, number: int, queued: Queued, *, account: str = "acme") -> bool:
    items = (a_new_item(f"i{one:03}") for one in range(number))
    try:
        await world.store.create(a_new_mission(mission, *items, account=account), queued=queued)
    except Refused as refused:
        if refused.code != "QUOTA_EXCEEDED":
            raise
        return False
    return True


@pytest.mark.parametrize("leg", LEGS)
async def test_an_account_has_no_more_unfinished_items_than_its_bound_over_all_its_missions(world: World) -> None:
    bound = Queued(account=5)
    assert await submitted(world, "m-1", 3, bound)
    before = await world.dump()
    with pytest.raises(
        Refused, match=r"account=acme unfinished=3 coming=3 bound=5 \(submit them once enough have ended"
    ):
        await world.store.create(a_new_mission("m-2", *(a_new_item(item) for item in "abc")), queued=bound)
    assert await world.dump() == before, "nothing was written"
    assert await submitted(world, "m-2", 2, bound)
    assert await submitted(world, "m-3", 4, bound, account="beta"), "another account has a number of its own"
    assert (await unfinished(world), await unfinished(world, "beta")) == (5, 4)


async def test_a_mission_has_no_more_unfinished_items_than_its_bound(world: World) -> None:
    assert not await submitted(world, "m-1", 3, Queued(mission=2))
    open_one = replace(a_new_mission("m-1"), items=(), open=True)
    await world.store.create(open_one, queued=Queued(mission=2))

    async def add(*items: NewItem) -> tuple[int, int]:
        added = await commands.add(world.store, open_one.group, items, actor="ana", queued=Queued(mission=2))
        return added.created, added.repeated

    assert await add(a_new_item("a", digest="a"), a_new_item("b", digest="b")) == (2, 0)
    with pytest.raises(Refused, match="mission=m-1 unfinished=2 coming=1 bound=2") as refused:
        await add(a_new_item("c"))
    assert refused.value.code == "QUOTA_EXCEEDED"
    assert await add(a_new_item("a", digest="a")) == (0, 1), "what is there already is none that comes"
    hand = await world.hand()
    await hand.do(a_submit(await hand.started("m-1")))
    assert await add(a_new_item("c")) == (1, 0)


async def test_a_submission_repeated_at_the_bound_gets_its_first_receipt(world: World) -> None:
    assert await submitted(world, "m-1", 3, Queued(account=3))
    assert await submitted(world, "m-1", 3, Queued(account=3))
    assert await submitted(world, "m-1", 3, Queued(account=0)), "whatever the policy says by now"
    assert await unfinished(world) == 3


async def test_every_end_of_an_item_makes_room_and_a_retry_takes_it(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item, retry="0 1 1") for item in "abcd"))
    hand = await world.hand()
    a, b, c = await hand.take(most=3)
    assert await unfinished(world) == 4, "what runs has not ended"
    await hand.turn(a_submit(a), a_fail(b))
    assert await unfinished(world) == 2
    await commands.retry(world.store, GROUP, b.item, actor="ana", action="1")
    assert await unfinished(world) == 3
    await commands.cancel(world.store, GROUP, c.item, actor="ana", reason="no")
    assert await unfinished(world) == 2
    await commands.cancel(world.store, GROUP, None, actor="ana", reason="no")
    await world.authority.tick(0)
    assert await unfinished(world) == 0
    assert b"q:acme" not in await world.raw.hgetall(world.key("@tally")), "none is no field"


async def test_a_failure_that_will_be_tried_again_is_no_end(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", retry="3 1000 1000"))
    hand = await world.hand()
    await hand.do(replace(a_fail(await hand.started()), retryable=True))
    assert await unfinished(world) == 1


async def test_a_load_is_judged_as_a_whole_when_it_begins(world: World) -> None:
    assert not await submitted(world, "big", 600, Queued(account=599))
    assert await world.store.missions() == []
    assert await submitted(world, "big", 600, Queued(account=600))
    assert await unfinished(world) == 600


async def test_a_load_that_was_never_sealed_gives_its_room_back(world: World) -> None:
    mission = ("big", "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "load", 300, "- - 0")
    await world.store.call("create", 0, mission)
    await world.store.call("add", 0, ("big", 1, "ana", "- - 0", *a_raw_item()))
    assert await unfinished(world) == 1
    if world.clock is None:
        return  # an hour is long
    await world.pass_ms(3_600_001)
    for _ in range(3):
        await world.authority.tick(0)
    assert await world.raw.hgetall(world.key("@tally")) == {}


@pytest.mark.parametrize("partitions", [4])
async def test_items_in_other_partitions_count_too(world: World) -> None:
    names = [f"m-{number}" for number in range(8)]
    assert len({world.store.partition_of(name) for name in names}) > 1
    for name in names:
        assert await submitted(world, name, 1, Queued(account=8))
    assert not await submitted(world, "m-9", 1, Queued(account=8))
    open_one = replace(a_new_mission("open"), items=(), open=True)
    group = (await world.store.create(open_one, queued=Queued(account=8))).group
    with pytest.raises(Refused, match="unfinished=8 coming=1 bound=8"):
        await commands.add(world.store, group, [a_new_item()], actor="ana", queued=Queued(account=8))


@pytest.mark.parametrize("kept", ["7", "0", "odd"])
async def test_a_number_that_is_not_what_the_missions_have_is_found_by_verify_and_put_right_by_repair(
    kept: str, world: World
) -> None:
    await submitted(world, "m-1", 3, Queued())
    await submitted(world, "m-2", 2, Queued())
    await submitted(world, "m-3", 2, Queued(), account="beta")
    group = GroupId("m-1")
    assert (await verify(world.store, group)).differences == ()
    before = await world.dump()
    await world.raw.hset(world.key("@tally"), "q:acme", kept)
    for name in ("m-1", "m-2"):
        (found,) = (await verify(world.store, GroupId(name))).differences
        assert (found.where, found.what, found.expected, found.found) == ("@tally", "q:acme", "5", kept)
    assert (await verify(world.store, GroupId("m-3"))).differences == ()
    await repair(world.store, group, actor="ana", reason="asked")
    assert (await verify(world.store, group)).differences == ()
    assert await world.dump() == before


async def test_what_moves_while_it_is_counted_is_counted_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await submitted(world, "m-1", 3, Queued())
    await world.raw.hset(world.key("@tally"), "q:acme", "9")
    call, group = world.store.call, GroupId("m-1")

    async def with_another_before(function: str, *of: Any) -> Any:
        monkeypatch.undo()
        assert function == "recount"
        await submitted(world, "m-2", 2, Queued())
        return await call(function, *of)

    monkeypatch.setattr(world.store, "call", with_another_before)
    await recount(world.store, group)
    assert await unfinished(world) == 5
