"""Urgency, deadline and business impact are changed of what is there (C8): what waits is reordered, what runs goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GROUP, a_new_item
from servers import LEGS
from store.world import SHORT_MS, World, a_fail, a_release, a_submit, a_yield
from treadle.shared.errors import Refused
from treadle.shared.model import AgentId, DirectoryEntry, Event, EventKind, GroupId, ItemId, Priority, Urgency
from treadle.shared.store import commands
from treadle.shared.store.authority import capability_set, directed_to

K = EventKind


async def prioritise(
    world: World,
    item: str,
    urgency: Urgency | None = None,
    *,
    deadline_ms: int | None = None,
    impact: int | None = None,
    action: str = "1",
) -> str:
    to = Priority(urgency, deadline_ms, impact)
    return await commands.prioritise(world.store, GROUP, ItemId(item), to, actor="ana", action=action)


async def listed(world: World, *places: str) -> list[DirectoryEntry]:
    found = await world.authority.look({0: 0}, list(places or ("index",)))  # type: ignore[arg-type]  # capabilities
    return [entry for entry in found[0].entries if entry.takeable]


async def order(world: World, place: str = "index") -> list[str]:
    """The items of the index, in the order in which they would be taken."""
    members = await world.raw.zrange(world.key(f"@take:{place}"), 0, -1)
    return [member.decode().rpartition(":")[2] for member in members]


async def last(world: World) -> Event:
    return (await world.log())[-1]


async def three(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name) for name in "abc"))


@pytest.mark.parametrize("leg", LEGS)
async def test_r46_a_new_urgency_reorders_what_is_queued_at_once(world: World) -> None:
    await three(world)
    before = (await listed(world))[0]
    assert await prioritise(world, "c", Urgency.CRITICAL) == "offered"
    (entry,) = await listed(world)
    assert (before.head_item, entry.head_item, entry.takeable) == ("a", "c", 3)
    event = await last(world)
    assert (event.kind, event.item, event.by, event.data) == (K.REPRIORITISED, "c", "ana", ("critical", "0", "0"))
    assert await order(world) == ["c", "a", "b"]
    hand = await world.hand()
    assert [grant.item for grant in await hand.take(most=3)] == ["c", "a", "b"]


async def test_a_worker_that_looked_before_is_told_of_the_new_head_alone(world: World) -> None:
    """Only what changed since a version of the directory is read: an item that moved is a change of it."""
    await three(world)
    version = (await world.authority.look({0: 0}, ["index"]))[0].version  # type: ignore[list-item]
    await prioritise(world, "c", Urgency.CRITICAL)
    (entry,) = (await world.authority.look({0: version}, ["index"]))[0].entries  # type: ignore[list-item]
    assert entry.head_item == "c"


async def test_a_deadline_and_an_impact_reorder_as_well_and_what_is_not_named_stays(world: World) -> None:
    await three(world)
    now_ms = await world.store.now_ms()
    await prioritise(world, "b", impact=9, action="1")
    assert await order(world) == ["b", "a", "c"]
    await prioritise(world, "c", deadline_ms=now_ms + 60_000, action="2")
    assert (await order(world))[0] == "c"
    await prioritise(world, "c", Urgency.ROUTINE, action="3")
    assert (await last(world)).data == ("routine", str(now_ms + 60_000), "0")
    assert (await order(world))[0] == "c", "its deadline is the same"
    await prioritise(world, "c", deadline_ms=0, action="4")
    assert (await order(world))[-1] == "c"
    view = await world.store.item(GROUP, ItemId("c"))
    assert view is not None
    assert (view.urgency, view.deadline_ms) == (Urgency.ROUTINE, 0)


async def test_an_item_ages_on_however_often_its_priority_changes(world: World) -> None:
    """There and back again is the place it had: neither a change nor a deadline on the way makes it younger."""
    now_ms = await world.store.now_ms()
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", deadline_ms=now_ms + 60_000))
    first = {item: (await world.item(GROUP, item))["key"] for item in "ab"}
    await world.pass_ms(50)
    for number, item in enumerate("ab"):
        await prioritise(world, item, Urgency.ROUTINE, deadline_ms=now_ms + 30_000, impact=5, action=f"{number}")
        there = (await world.item(GROUP, item))["key"]
        assert there < first[item]
        deadline_ms = 0 if item == "a" else now_ms + 60_000
        await prioritise(world, item, Urgency.NORMAL, deadline_ms=deadline_ms, impact=0, action=f"back {number}")
        assert (await world.item(GROUP, item))["key"] == first[item]


async def test_an_urgency_orders_its_own_group_only(world: World) -> None:
    """C8: of another Group nothing is written, and its own keeps its weight and its service."""
    await three(world)
    await world.mission("other", a_new_item("x", capability="index"))
    before = {entry.group: entry for entry in await listed(world)}
    await prioritise(world, "c", Urgency.CRITICAL)
    after = {entry.group: entry for entry in await listed(world)}
    assert after[GroupId("other")] == before[GroupId("other")]
    own, was = after[GROUP], before[GROUP]
    assert (own.weight, own.priority_class, own.usage) == (was.weight, was.priority_class, was.usage)


async def test_who_is_asked_by_name_finds_it_at_its_new_place(world: World) -> None:
    one, two = await world.hand("worker-1"), await world.hand("worker-2")
    offer = "named:worker-1,worker-2 0"
    await world.mission(GROUP, *(a_new_item(name, offer=offer) for name in "ab"))
    await prioritise(world, "b", Urgency.HIGH)
    for hand in (one, two):
        place = directed_to(hand.session.agent)
        assert [entry.head_item for entry in await listed(world, place)] == ["b"]
        assert await order(world, place) == ["b", "a"]
    assert [grant.item for grant in await one.take(capability=directed_to(AgentId("worker-1")))] == ["b"]
    assert await order(world, directed_to(AgentId("worker-2"))) == ["a"]


async def test_an_offer_that_was_taken_back_is_not_listed_again(world: World) -> None:
    await world.mission(GROUP, a_new_item(offer=f"named:worker-1 {SHORT_MS}"))
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert await listed(world, directed_to(AgentId("worker-1"))) == []
    assert await prioritise(world, "a", Urgency.HIGH) == "offered"
    assert await listed(world, directed_to(AgentId("worker-1"))) == []
    await commands.offer(world.store, GROUP, ItemId("a"), "- 0", actor="ana", action="2")
    assert (await listed(world))[0].head.startswith((await world.item())["key"])


async def test_r46_what_runs_goes_on_and_takes_its_new_place_when_it_is_offered_again(world: World) -> None:
    await three(world)
    hand = await world.hand()
    grant = await hand.started()
    assert grant.item == "a"
    assert await prioritise(world, "a", Urgency.ROUTINE) == "active"
    assert await order(world) == ["b", "c"]
    assert await hand.renew(grant) == ["OK"]
    assert (await hand.do(a_release(grant))).code == "OK"
    assert await order(world) == ["b", "c", "a"]


async def test_what_was_accepted_and_not_started_is_started_by_its_owner_all_the_same(world: World) -> None:
    await three(world)
    hand = await world.hand()
    grant = await hand.accepted()
    assert await prioritise(world, "a", Urgency.ROUTINE) == "queued"
    started = await hand.restarted(grant)
    assert (await hand.do(a_yield(started, keep=False))).code == "OK"
    assert (await order(world))[-1] == "a"


async def test_what_waits_for_others_or_for_another_attempt_comes_with_its_new_priority(world: World) -> None:
    await world.mission(
        GROUP,
        a_new_item("a", retry="3 100 100"),
        a_new_item("b", after=(ItemId("a"),)),
        a_new_item("c", after=(ItemId("a"),)),
    )
    assert await prioritise(world, "c", Urgency.CRITICAL, action="1") == "open"
    hand = await world.hand()
    assert (await hand.do(replace(a_fail(await hand.started()), retryable=True))).code == "OK"
    assert await prioritise(world, "a", Urgency.HIGH, action="2") == "failed"
    await world.pass_ms(101)
    await world.authority.tick(0)
    await hand.do(a_submit(await hand.started()))
    assert await order(world) == ["c", "b"]


async def test_a_repeated_command_changes_nothing_twice(world: World) -> None:
    await three(world)
    assert await prioritise(world, "c", Urgency.CRITICAL) == "offered"
    before = await world.dump()
    assert await prioritise(world, "c", Urgency.ROUTINE) == "offered", "the same action, whatever it brings now"
    assert await world.dump() == before


async def test_who_sleeps_is_woken_by_a_new_order(world: World) -> None:
    """A place in the order is news to who looked before, as an arrival is."""
    hand = await world.hand()
    await three(world)
    wakes = world.key(f"@wake:{capability_set(hand.session.capabilities)}")
    assert await world.raw.lpop(wakes) is not None
    await prioritise(world, "c", Urgency.CRITICAL)
    assert await world.raw.lrange(wakes, 0, -1) == [f"index {GROUP} 0".encode()]


async def test_a_refused_one_names_what_was_wrong_and_the_item_keeps_its_place(world: World) -> None:
    await three(world)
    with pytest.raises(Refused, match=r"impact=100000") as refused:
        await prioritise(world, "c", Urgency.CRITICAL, impact=100_000)
    assert refused.value.code == "SCHEMA_VALIDATION_FAILED"
    assert await order(world) == ["a", "b", "c"]
