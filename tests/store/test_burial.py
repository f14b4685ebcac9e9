"""A Mission whose time is over goes with everything that was its own; a tombstone tells for 30 days what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item, a_new_mission
from owned_keys import owned_keys
from store.scheduled import HOUR_MS, a_schedule
from store.scripted import Day
from store.world import PREFIX, World, a_submit, a_take
from treadle.coordinator import Client, Expired, MissionSpec, WorkSpec
from treadle.shared.errors import Refused
from treadle.shared.model import Capability, GroupId, Limits, MissionState
from treadle.shared.schedules import Interval
from treadle.shared.store import commands, keys
from treadle.shared.store.controls import pause
from treadle.shared.store.timetable import schedule

DAY_MS = 86_400_000
TOMBSTONE_MS = 30 * DAY_MS


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    async with Client.connect(world.endpoint, actor="ann", prefix=PREFIX) as made:
        yield made


async def tick_all(world: World) -> int:
    """Until nothing is due; how many ticks that took."""
    for number in range(400):
        if (await world.authority.tick(0))[1] == 0:
            return number
    pytest.fail("something is always due")


async def buried(world: World, name: str = GROUP, **fields: str) -> GroupId:
    """A Mission that was cancelled, and of which nothing was to be kept."""
    group = await world.mission(name, keep_results_s=0, **fields)
    await commands.cancel(world.store, group, None, actor="ana", reason="no-more")
    await tick_all(world)
    return group


async def names(world: World) -> set[str]:
    """The keys of the partition, by what follows its tag."""
    return {key.partition("}:")[2] for key in await world.dump()}


async def test_s27_after_a_day_and_its_time_only_the_store_s_record_and_tombstones_are_left(world: World) -> None:
    if world.is_real:
        pytest.skip("a week of a real server's time is a week")
    await Day(world).live()
    for view in await world.store.missions():
        if view.state is MissionState.ACTIVE and not view.is_open:
            await commands.cancel(world.store, view.group, None, actor="ana", reason="no-more")
    await commands.seal(world.store, GroupId("day-5"), actor="ana")
    for _ in range(3):
        await tick_all(world)
        await world.pass_ms(8 * DAY_MS)
    await tick_all(world)
    for_life = {key.name for key in owned_keys() if "for life" in key.until}
    tombstones = {f"day-{number}:mission" for number in range(1, 9)}
    left = {name: kind for name, (kind, _) in (await world.dump()).items()}
    assert {name.partition("}:")[2] for name in left} <= for_life | tombstones
    assert {name.partition("}:")[2] for name, kind in left.items() if kind.endswith("expires")} == tombstones
    await world.pass_ms(TOMBSTONE_MS)
    assert await names(world) <= for_life


async def test_a_tombstone_says_how_the_mission_ended_and_expires(world: World) -> None:
    group = await buried(world, "m-1", objective="x" * 1000)
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.is_expired, view.total, view.cancelled) == (MissionState.CANCELLED, True, 1, 1)
    assert (view.objective, view.account, view.last_seq) == ("", "acme", 5)
    assert await names(world) == {"@meta", "@store", "m-1:mission"}
    left_ms = await world.raw.pttl(world.key("m-1:mission"))
    assert TOMBSTONE_MS - 60_000 < left_ms <= TOMBSTONE_MS
    assert await world.raw.hget(world.key("m-1:mission"), "caps") is None


async def test_r11_what_is_submitted_again_under_a_tombstone_gets_its_first_receipt(world: World) -> None:
    await buried(world)
    before = await world.dump()
    again = await world.store.create(a_new_mission(GROUP, keep_results_s=0))
    assert again.repeated
    with pytest.raises(Refused, match="has other content") as caught:
        await world.store.create(a_new_mission(GROUP, objective="something else"))
    assert caught.value.code == "ACTION_ID_COLLISION"
    assert await world.dump() == before


async def test_commands_to_a_mission_that_is_gone_find_it_ended(world: World) -> None:
    group = await buried(world)
    before = await world.dump()
    asked = (
        commands.cancel(world.store, group, None, actor="ana", reason="x"),
        commands.seal(world.store, group, actor="ana"),
        commands.retry(world.store, group, a_new_item("a").item, actor="ana", action="1"),
        commands.add(world.store, group, [a_new_item("b", digest="d")], actor="ana"),
    )
    for command in asked:
        with pytest.raises(Refused) as caught:
            await command
        assert caught.value.code == "INVALID_STATE_TRANSITION"
        assert caught.value.details["mission"] == "ended"
    assert not await world.store.watch(group, None, "client.1")
    assert await world.dump() == before


async def test_people_are_told_that_results_and_events_are_gone(client: Client, world: World) -> None:
    mission = await client.submit(
        MissionSpec(id="m", objective="x", work=[WorkSpec(id="a", capability="index")], keep_results_s=60)
    )
    if world.is_real:
        pytest.skip("a minute of a real server's time is a minute")
    await mission.cancel()
    await tick_all(world)
    await world.pass_ms(60_001)
    await tick_all(world)
    with pytest.raises(Expired, match=r'^mission "m" is cancelled, and its Events were kept for their time'):
        await anext(mission.events())
    with pytest.raises(Expired, match="its results were kept for their time"):
        await mission.results(timeout=0)
    assert await mission.items() == {}
    with pytest.raises(Refused, match=r'^mission "m" .*has ended'):
        await mission.cancel()


async def test_when_its_tombstone_is_gone_the_id_is_free_again(world: World) -> None:
    group = await buried(world)
    await world.raw.delete(keys.mission(world.store.base(0), group))
    assert await world.store.mission(group) is None
    again = await world.store.create(a_new_mission(GROUP))
    assert not again.repeated
    assert [event.seq for event in await world.log(group)] == [1, 2, 3]


async def test_its_schedules_pauses_and_memberships_go_with_it(world: World) -> None:
    hand = await world.hand(ttl_ms=60_000)
    mission = replace(a_new_mission(GROUP), items=(), open=True, keep_results_s=0)
    group = (await world.store.create(mission)).group
    await commands.add(world.store, group, [replace(a_new_item("a"), digest="d")], actor="ana")
    await hand.do(a_submit(await hand.started()))
    await schedule(world.store, a_schedule("nightly", group=group, spec=Interval(HOUR_MS, 1)))
    await schedule(
        world.store, a_schedule("other", group=(await a_growing_neighbour(world)), spec=Interval(HOUR_MS, 1))
    )
    await pause(world.store, f"mission:{group}", actor="ana")
    await pause(world.store, "account:acme", actor="ana")
    await commands.seal(world.store, group, actor="ana")
    await tick_all(world)
    found = await world.dump()
    assert not [key for key in found if f"}}:{group}:" in key and not key.endswith(":mission")]
    assert [name.decode() for name in await world.raw.hkeys(world.key("@sched"))] == ["neighbour other"]
    assert [name.decode() for name in await world.raw.hkeys(world.key("@pause"))] == ["a:acme"]
    assert await world.raw.hget(world.key("@meta"), "paused") == b"1"
    assert await world.raw.hkeys(world.key("@joined:worker-1")) == []
    due = [member.decode() for member in await world.raw.zrange(world.key("@due"), 0, -1)]
    assert [member for member in due if f" {group} " in member] == []


async def test_nodes_and_rates_go_with_the_group_and_the_last_of_its_account(world: World) -> None:
    hand = await world.hand(ttl_ms=60_000)
    await world.mission("m-2", account="acme")
    for name, account in (("m-1", "acme"), ("m-3", "beta")):
        await world.mission(name, keep_results_s=0, account=account)
        limits = Limits(rate_group=(9, 10**13), rate_account=(9, 10**13))
        (grant,) = (await hand.do(a_take(name, limits=limits), slots=1)).grants
        await hand.do(a_submit(grant))
    assert len(await world.raw.hkeys(world.key("@rates"))) == 4
    await tick_all(world)
    assert await world.raw.hkeys(world.key("@rates")) == [b"a:acme"]
    assert await world.raw.zrange(world.key("@nodes"), 0, -1) == [b"a:standard:acme", b"c:standard"]


async def a_growing_neighbour(world: World) -> GroupId:
    return (await world.store.create(replace(a_new_mission("neighbour"), items=(), open=True))).group


async def test_an_account_s_service_is_known_until_its_last_group_is_buried(world: World) -> None:
    hand = await world.hand(ttl_ms=60_000)
    for name in ("m-1", "m-2"):
        await world.mission(name, keep_results_s=0)
        grant = await hand.started(name)
        await world.pass_ms(20)
        await hand.do(a_submit(grant))
    usage = world.key("@usage")
    assert int((await world.raw.hget(usage, "a:standard:acme")).split()[0]) >= 40
    await world.mission("m-3")
    await tick_all(world)
    assert sorted(await world.raw.hkeys(usage)) == [b"a:standard:acme", b"c:standard", b"g:m-3"]
    assert int((await world.raw.hget(usage, "a:standard:acme")).split()[0]) >= 40
    counted = {b"a:acme": b"1", b"a:standard:acme": b"1", b"c:standard": b"1", b"q:acme": b"1"}
    assert await world.raw.hgetall(world.key("@tally")) == counted
    await commands.cancel(world.store, GroupId("m-3"), None, actor="ana", reason="no-more")
    assert await world.raw.exists(usage)


async def test_a_worker_that_has_not_heard_that_a_group_was_emptied_gets_the_whole_list(world: World) -> None:
    hand = await world.hand(ttl_ms=60_000)
    await world.mission("m-1", keep_results_s=0)
    await world.mission("m-2")
    known = (await world.authority.look({0: 0}, [Capability("index")]))[0].version
    await hand.do(a_submit(await hand.started("m-1")))
    heard = (await world.authority.look({0: known}, [Capability("index")]))[0]
    assert [(entry.group, entry.takeable) for entry in heard.entries] == [("m-1", 0)]
    await tick_all(world)
    assert not await world.raw.exists(world.key("@tomb:index"))
    late = (await world.authority.look({0: known}, [Capability("index")]))[0]
    assert (late.full, [entry.group for entry in late.entries]) == (True, ["m-2"])
    assert not (await world.authority.look({0: heard.version}, [Capability("index")]))[0].full


async def test_due_entries_of_a_group_that_is_gone_go_and_of_one_that_was_lost_are_set_aside(world: World) -> None:
    world.audited = False
    gone = await buried(world, "gone")
    lost = await world.mission("lost")
    await world.raw.hdel(world.key("@groups"), lost)
    due = {f"{kind} {group} a": 1 for kind in "lsnecr" for group in (gone, lost, "never")}
    await world.raw.zadd(world.key("@due"), due)
    await tick_all(world)
    assert await world.raw.zrange(world.key("@due"), 0, -1) == []
    aside = [member.decode() for member in await world.raw.zrange(world.key("@halted"), 0, -1)]
    assert sorted(aside) == [f"{kind} lost a" for kind in "celnrs"]
    assert await names(world) >= {"gone:mission", "lost:mission"}
    assert "gone:log" not in await names(world)


async def test_a_tick_buries_few_groups_and_the_next_ones_go_on(world: World) -> None:
    for number in range(20):
        group = await world.mission(f"m-{number}", keep_results_s=0)
        await commands.cancel(world.store, group, None, actor="ana", reason="no-more")
    assert await tick_all(world) >= 3
    assert await world.raw.exists(world.key("@groups")) == 0


async def test_a_load_that_was_never_sealed_leaves_no_tombstone(world: World) -> None:
    await world.store.call("create", 0, _a_load())
    await world.raw.zadd(world.key("@due"), {"u big 0": 1})
    await tick_all(world)
    assert await names(world) == {"@meta", "@store"}


def _a_load() -> tuple[str | int, ...]:
    return ("big", "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "load", 300, "- - 0")
