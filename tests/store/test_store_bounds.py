"""The worst case of each function (design.md 3.4), counted in commands inside the library and not in milliseconds.

fakeredis does not count: there a worst case must only come to its end, with nothing too long for `unpack`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TypeVar

import pytest
from builders import GROUP, a_new_item
from store.world import Hand, World, a_fail, a_save, a_submit, a_take
from treadle.shared.model import Grant, GroupId, ItemId
from treadle.shared.store import Operation

T = TypeVar("T")
NOT_INSIDE = frozenset({"fcall", "info", "config|resetstat", "client|setinfo", "ping"})


async def counted(world: World, call: Callable[[], Awaitable[T]], *, at_most: int) -> T:
    """Make a call that may run so many commands inside the library."""
    if not world.is_real:
        return await call()
    await world.raw.config_resetstat()
    answer = await call()
    stats = await world.raw.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): said["calls"] for name, said in stats.items()}
    found = {name: number for name, number in calls.items() if name not in NOT_INSIDE}
    assert 0 < sum(found.values()) <= at_most, found
    return answer


async def a_full_mission(world: World) -> GroupId:
    return await world.mission(GROUP, *(a_new_item(f"i{number:03}") for number in range(256)))


async def holding_256(world: World, *, ttl_ms: int = 60_000) -> tuple[Hand, list[Grant]]:
    await a_full_mission(world)
    hand = await world.hand(ttl_ms=ttl_ms, nonce="holder")
    return hand, [grant for _ in range(4) for grant in await hand.take(most=64)]


async def test_256_items_are_created_in_one_call(world: World) -> None:
    await counted(world, lambda: a_full_mission(world), at_most=3 * 256 + 30)
    assert len(await world.log()) == 1 + 2 * 256


async def test_256_items_of_which_each_waits_for_all_before_it_are_loaded_a_thousand_dependencies_a_call(
    world: World,
) -> None:
    """32,640 dependencies: a call that brought them all would hold the server up (design.md 3.4)."""
    names = [f"i{number:03}" for number in range(256)]
    items = [a_new_item(name, after=names[:number]) for number, name in enumerate(names)]
    await counted(world, lambda: world.mission(GROUP, *items), at_most=40 * 4 * 256)
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    for _ in range(4):
        await world.authority.tick(0)
    assert [grant.item for grant in await hand.take(most=9)] == ["i001"]


async def test_256_leases_lapse_in_one_tick(world: World) -> None:
    await holding_256(world, ttl_ms=2_000)
    await world.pass_ms(2_001)
    _, due = await counted(world, lambda: world.authority.tick(0), at_most=6 * 256)
    assert due == 256
    assert (await world.kinds()).count("work.lease_lapsed") == 256
    assert (await world.authority.tick(0))[1] == 0


async def test_256_due_entries_of_256_groups_are_one_tick(world: World) -> None:
    for number in range(256):
        await world.mission(f"g{number:03}", a_new_item(start_by_s=1))
    hand = await world.hand()
    for start in range(0, 256, 64):
        await hand.turn(*(a_take(f"g{number:03}") for number in range(start, start + 64)), ahead=64)
    await world.pass_ms(1_001)
    _, due = await counted(world, lambda: world.authority.tick(0), at_most=12 * 256)
    assert due == 256


async def test_no_more_than_256_entries_are_carried_out_whatever_is_asked(world: World) -> None:
    await holding_256(world, ttl_ms=1_000)
    await world.mission("one-more")
    other = await world.hand("worker-2", ttl_ms=1_000)
    await other.take("one-more")
    await world.pass_ms(1_001)
    assert (await world.authority.tick(0, most=100_000))[1] == 256
    assert (await world.authority.tick(0, most=100_000))[1] == 1


async def test_256_items_are_requeued_and_given_back_in_one_call_each(world: World) -> None:
    await holding_256(world)
    new = await counted(world, lambda: world.hand(nonce="new"), at_most=6 * 256)
    assert len(new.requeued) == 256
    await counted(world, new.close, at_most=7 * 256)
    assert (await world.kinds()).count("work.released") == 256


async def test_256_leases_are_renewed_in_one_call_and_more_in_several(world: World) -> None:
    hand, grants = await holding_256(world)
    assert await counted(world, lambda: hand.renew(*grants), at_most=2 * 256 + 30) == ["OK"] * 256
    await world.mission("more", a_new_item("a"), a_new_item("b"))
    grants += await hand.take("more", 2)
    assert await hand.renew(*grants) == ["OK"] * 258


async def test_64_submits_with_192_dependents_each_release_64_and_leave_the_rest_to_pumps(world: World) -> None:
    """12,288 dependents in one call overflowed `unpack` after the first writes (design.md 3.4)."""
    heads = [f"h{number:02}" for number in range(64)]
    tails = [f"t{number:03}" for number in range(192)]
    await world.mission(GROUP, *map(a_new_item, heads), *(a_new_item(name, after=heads) for name in tails))
    hand = await world.hand()
    grants = await hand.take(most=64)
    reply = await counted(world, lambda: hand.turn(*map(a_submit, grants)), at_most=8 * 64 + 100)
    assert [outcome.code for outcome in reply.outcomes] == ["OK"] * 64
    ticks = 0
    while await world.raw.zcount(world.key("@due"), 0, await world.store.now_ms()):
        await counted(world, lambda: world.authority.tick(0), at_most=5 * 64 + 100)
        ticks += 1
        assert ticks <= 64 * 192 // 64
    assert ticks == 64 * 192 // 64 - 1
    assert await world.raw.zcard(world.key("@take:index")) == 192


async def test_a_turn_of_64_operations_in_64_groups_is_one_call(world: World) -> None:
    for number in range(64):
        await world.mission(f"g{number:02}", a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    takes = [a_take(f"g{number:02}") for number in range(64)]
    reply = await counted(world, lambda: hand.turn(*takes, slots=64), at_most=9 * 64 + 30)
    grants = [grant for outcome in reply.outcomes for grant in outcome.grants]
    assert len(grants) == 64
    cursors = tuple((grant.group, 3) for grant in grants)
    operations: list[Operation] = [
        a_fail(grant) if number % 2 else a_save(grant) for number, grant in enumerate(grants)
    ]
    reply = await counted(world, lambda: hand.turn(*operations, cursors=cursors), at_most=12 * 64)
    assert {outcome.code for outcome in reply.outcomes} == {"OK"}


async def test_no_take_gives_more_than_64_items_however_many_are_asked_for(world: World) -> None:
    await a_full_mission(world)
    await world.mission("other", *(a_new_item(f"i{number}") for number in range(70)))
    hand = await world.hand()

    async def take() -> list[int]:
        reply = await hand.turn(a_take(GROUP, 1_000_000), a_take("other", 1_000_000), slots=1_000)
        return [len(outcome.grants) for outcome in reply.outcomes]

    assert await counted(world, take, at_most=6 * 64 + 60) == [64, 0]


async def test_what_many_silent_sessions_held_is_given_back_64_items_a_tick(world: World) -> None:
    """256 sessions may be silent at once, after an outage of the Workers' network; each may hold many items."""
    for number in range(2):
        await world.mission(f"m-{number}", *(a_new_item(f"i{item:03}", start_by_s=600) for item in range(100)))
    for number in range(5):
        hand = await world.hand(f"worker-{number}", ttl_ms=20)
        await hand.take(f"m-{number % 2}", 40, slots=0, ahead=40)
    await world.pass_ms(201)
    given_back = [0]
    for _ in range(7):
        await counted(world, lambda: world.authority.tick(0), at_most=7 * 64 + 150)
        kinds = await world.kinds(GroupId("m-0")) + await world.kinds(GroupId("m-1"))
        given_back.append(kinds.count("work.released"))
    steps = [after - before for before, after in pairwise(given_back)]
    assert max(steps) <= 64
    assert given_back[-1] == 180
    assert await world.raw.hlen(world.key("@sessions")) == 0


async def test_64_bodies_of_any_kind_are_read_in_one_call(world: World) -> None:
    await a_full_mission(world)
    wanted = [(GroupId(GROUP), ItemId(f"i{number:03}"), "in") for number in range(64)]
    assert await counted(world, lambda: world.authority.read(0, wanted), at_most=64 + 30) == [b"in"] * 64


async def test_a_page_of_the_directory_is_three_commands_a_group(world: World) -> None:
    for number in range(300):
        await world.mission(f"g{number}")
    found = await counted(world, lambda: world.authority.look({0: 0}, [a_take().capability]), at_most=2 * 300 + 30)
    assert len(found[0].entries) == 300


@pytest.mark.parametrize(("groups", "at_most"), [(1, 14), (8, 14)])
async def test_an_item_costs_few_commands_where_a_worker_is_busy(groups: int, at_most: int, world: World) -> None:
    """Design 8: at most 14 commands an item, where a turn ends two items of a Group and takes two others."""
    names = [f"g{number}" for number in range(groups)]
    for name in names:
        await world.mission(name, *(a_new_item(f"i{number:03}") for number in range(80)))
    hand = await world.hand()
    takes = [a_take(name, 16 // groups) for name in names]

    async def round_() -> list[Grant]:
        reply = await hand.turn(*map(a_submit, grants), *takes, slots=16)
        return [grant for outcome in reply.outcomes for grant in outcome.grants]

    grants: list[Grant] = []
    grants = await round_()
    for _ in range(3):
        grants = await counted(world, round_, at_most=at_most * 16)
        assert len(grants) == 16


async def test_the_whole_life_of_a_lone_item_costs_less_than_100_commands(world: World) -> None:
    hand = await world.hand()

    async def whole_life() -> None:
        await world.mission()
        await hand.do(a_submit(await hand.started()))

    await counted(world, whole_life, at_most=99)
