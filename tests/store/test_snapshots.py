"""Snapshots are what the log folds to; what they cover is trimmed, and whoever comes for it is told where to go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import World, a_fail, a_save, a_submit
from treadle.shared.errors import Corrupt, CursorTooOld, TreadleError, Unavailable
from treadle.shared.model import GroupId
from treadle.shared.projection import Projection
from treadle.shared.store import Authority, commands, keys, repairing, snapshots, verifying
from treadle.shared.store.differences import differences
from treadle.shared.store.standing import state_of


async def lived(world: World, group: str = GROUP, items: int = 6) -> GroupId:
    """A Mission in which something has happened to each of its items."""
    made = await world.mission(
        group, *(a_new_item(f"i{number:03}") for number in range(items)), a_new_item("z", after=["i000"])
    )
    hand = await world.hand(f"worker-{group}")
    grants = await hand.take(group, 3)
    await hand.turn(a_submit(grants[0]), a_save(grants[1]), a_fail(grants[2]))
    await hand.take(group, 1, slots=0, ahead=1)
    return made


async def test_s13_a_snapshot_and_what_follows_are_the_whole_log_and_what_the_keys_say(world: World) -> None:
    group = await lived(world)
    made = await snapshots.create(world.store, group, actor="ana")
    log = await world.log(group)
    assert (log[-1].kind, log[-1].by) == ("group.snapshot.created", "ana")
    assert log[-1].data == (str(made.through), made.digest, str(made.size))
    hand = await world.hand("another")
    await hand.do(a_submit(await hand.started(group)))
    later = await snapshots.fold(world.store, group)
    whole = await snapshots.fold(world.store, group, from_start=True)
    assert later.canonical() == whole.canonical()
    assert later.through == (await world.log(group))[-1].seq > made.through
    stored = await state_of(world.raw, world.store.base(0), group)
    assert differences(whole, stored) == []


async def test_the_state_at_any_sequence_is_what_was_so_then(world: World) -> None:
    group = await lived(world)
    await snapshots.create(world.store, group)
    log, told = await world.log(group), Projection(group)
    for event in log:
        told.fold(event)
        assert (await snapshots.fold(world.store, group, at=event.seq)).canonical() == told.canonical()


async def test_a_log_that_lost_its_end_tells_no_state(world: World) -> None:
    world.audited = False
    group = await lived(world)
    log = await world.log(group)
    await world.raw.xdel(keys.log(world.store.base(0), group), f"{log[-1].seq}-0")
    with pytest.raises(Corrupt, match=f"ends at {log[-1].seq - 1}, but {log[-1].seq} were written"):
        await snapshots.fold(world.store, group)
    assert (await snapshots.fold(world.store, group, at=3)).through == 3


async def test_a_snapshot_of_many_chunks_is_whole_or_not_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    group = await lived(world)
    monkeypatch.setattr(snapshots, "CHUNK_BYTES", 40)
    made = await snapshots.create(world.store, group)
    assert made.size > 400
    found = await snapshots.newest(world.store, group)
    assert found is not None
    assert (found.through, found.digest()) == (made.through, made.digest)
    key = keys.snapshot(world.store.base(0), group)
    await world.raw.hset(key, "3", b"x" * 40)
    with pytest.raises(Corrupt, match="altered"):
        await snapshots.newest(world.store, group)
    await world.raw.hdel(key, "3")
    with pytest.raises(Corrupt, match="not whole"):
        await snapshots.newest(world.store, group)


class _Overtaken:
    """A client that sees a newer Snapshot come in between two of its reads, so many times."""

    def __init__(self, world: World, group: GroupId, times: int) -> None:
        self._world, self._group, self._left = world, group, times

    async def hmget(self, key: str, *fields: str) -> Any:
        return await self._world.raw.hmget(key, *fields)

    async def hget(self, key: str, field: str) -> Any:
        if self._left:
            self._left -= 1
            await snapshots.create(self._world.store, self._group)
        return await self._world.raw.hget(key, field)


async def test_a_snapshot_that_is_replaced_while_it_is_read_is_read_again(world: World) -> None:
    """The newer one may be of the same size: that is no damage, for which a Worker would halt the Group."""
    group, base = await lived(world), world.store.base(0)
    first = await snapshots.create(world.store, group)
    found = await snapshots._newest(_Overtaken(world, group, 2), base, group)
    assert found is not None
    assert found.through > first.through
    with pytest.raises(Unavailable, match="replaced again and again"):
        await snapshots._newest(_Overtaken(world, group, 3), base, group)


async def test_of_two_snapshots_the_later_stays_and_a_repetition_changes_nothing(world: World) -> None:
    group = await lived(world)
    older = (await snapshots.fold(world.store, group)).pack()
    newer = await snapshots.create(world.store, group)
    before = await world.dump()
    for number, chunk in ((1, older), (0, b"")):
        head = (group, "ana", newer.through, snapshots.digest_of(older), len(older), 1, number, chunk)
        answer = await world.store.call("snapshot", 0, head)
        assert answer[1:] == [b"repeated", str(newer.through).encode()]
    assert await world.dump() == before
    again = await snapshots.create(world.store, group)
    assert again.through == newer.through + 1, "what was appended meanwhile is the Event of the first"


async def test_s13_what_a_snapshot_covers_may_be_trimmed_and_nothing_else(world: World) -> None:
    world.audited = False  # the audit reads a log from its start
    group = await lived(world)
    before = await snapshots.fold(world.store, group)
    assert await snapshots.trim(world.store, group, 5) == 1, "without a Snapshot nothing goes"
    made = await snapshots.create(world.store, group, keep=0)
    assert made.first == made.through + 1
    assert await snapshots.trim(world.store, group, 10_000) == made.first, "never above the Snapshot"
    left = await world.raw.xrange(world.key(f"{group}:log"))
    assert [entry[0] for entry in left] == [f"{made.first}-0".encode()]
    after = await snapshots.fold(world.store, group)
    assert (after.items, after.finished) == (before.items, before.finished)
    hand = await world.hand("another")
    await hand.do(a_submit(await hand.started(group)))
    stored = await state_of(world.raw, world.store.base(0), group)
    assert differences(await snapshots.fold(world.store, group), stored) == []


async def test_br_65_of_what_a_snapshot_covers_a_log_keeps_so_many_bytes_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.audited = False  # the audit reads a log from its start
    made = await world.mission(GROUP, *(a_new_item(f"i{number:02}") for number in range(41)))
    hand = await world.hand()
    for grant in await hand.take(GROUP, 40, slots=40):
        await hand.do(a_fail(grant, b"e" * 2_000))
    monkeypatch.setattr(snapshots, "LOG_KEEP_BYTES", 20_000)
    monkeypatch.setattr(snapshots, "PAGE", 7)
    installed = await snapshots.create(world.store, made)
    kept = await world.raw.xrange(keys.log(world.store.base(0), made), min=f"{installed.first}-0")
    sizes = [sum(map(len, entry.values())) for name, entry in kept if int(name.split(b"-")[0]) <= installed.through]
    assert 15_000 < sum(sizes) <= 20_000
    assert (await verifying.verify(world.store, made)).differences == ()


async def test_s14_who_asks_for_what_was_trimmed_is_told_where_to_go_on(world: World) -> None:
    world.audited = False
    group = await lived(world)
    made = await snapshots.create(world.store, group, keep=3)
    assert made.first == made.through - 2
    for after in (0, made.first - 2):
        for asked in (world.store.read_log(group, after=after), world.store.wait_log(group, after=after, timeout_s=1)):
            with pytest.raises(CursorTooOld) as refused:
                await asked
            assert refused.value.code == "CURSOR_TOO_OLD"
            assert refused.value.details["snapshot"] == str(made.through)
            assert refused.value.details["first"] == str(made.first)
    assert (await world.store.read_log(group, after=made.first - 1))[0].seq == made.first
    with pytest.raises(CursorTooOld, match="first=") as too_old:
        await snapshots.fold(world.store, group, at=made.first)
    assert too_old.value.details["snapshot"] == str(made.through)
    assert (await snapshots.fold(world.store, group, at=made.through)).through == made.through


async def test_a_log_that_somebody_else_cut_is_no_trimmed_one(world: World) -> None:
    world.audited = False
    group = await lived(world)
    made = await snapshots.create(world.store, group, keep=3)
    await world.raw.xtrim(world.key(f"{group}:log"), minid=f"{made.through}-0", approximate=False)
    for after in (0, made.first - 1):
        with pytest.raises(Corrupt, match="missing"):
            await world.store.read_log(group, after=after)
    await world.raw.delete(world.key(f"{group}:log"))
    with pytest.raises(TreadleError) as refused:
        await snapshots.trim(world.store, group, made.through + 1)
    assert refused.value.code == "LOG_REBORN"


async def test_a_log_is_trimmed_a_thousand_events_a_call(world: World) -> None:
    world.audited = False
    items = [replace(a_new_item(f"i{number}", capability="other"), digest="d") for number in range(1100)]
    group = (await world.store.create(replace(a_new_mission(GROUP), items=(), open=True))).group
    for start in range(0, 1100, 220):
        await commands.add(world.store, group, items[start : start + 220], actor="ana")
    await snapshots.create(world.store, group)
    answer = await world.store.call("trim", 0, (group, 2000))
    assert answer[1:] == [b"more", b"1001"]
    answer = await world.store.call("trim", 0, (group, 2000))
    assert answer[1:] == [b"done", b"2000"]
    assert await world.raw.xlen(world.key(f"{group}:log")) == 2202 - 1999


async def test_a_group_that_grew_by_4096_events_gets_its_snapshot_from_whoever_ticks(world: World) -> None:
    world.audited = False
    items = [replace(a_new_item(f"i{number}", capability="other"), digest="d") for number in range(2100)]
    group = (await world.store.create(replace(a_new_mission(GROUP), items=(), open=True))).group
    due = world.key("@due")
    for start in range(0, 2000, 250):
        await commands.add(world.store, group, items[start : start + 250], actor="ana")
    assert await world.raw.zscore(due, f"k {group} 0") is None
    await commands.add(world.store, group, items[2000:], actor="ana")
    assert await world.raw.zscore(due, f"k {group} 0") is not None
    answer = await world.store.call("tick", 0, (256,))
    assert answer[4] == f"k {group} 4201".encode()
    assert (await world.store.call("tick", 0, (256,)))[4] == b"", "it is handed to one"
    if world.is_real:
        return
    await world.pass_ms(30_000)
    authority = Authority(world.store, log_keep=100)
    await authority.tick(0)
    assert (await snapshots.newest(world.store, group)) is not None
    assert await world.raw.zscore(due, f"k {group} 0") is None
    (first,) = await world.raw.xrange(world.key(f"{group}:log"), count=1)
    assert first[0] == b"4102-0", "the last hundred Events below it stay"
    assert (await world.store.call("tick", 0, (256,)))[4] == b""


async def test_a_snapshot_is_wanted_again_once_as_much_was_appended_as_it_holds(world: World) -> None:
    """What Snapshots cost stays in proportion to what is appended, however much stands in a Group."""
    group = await world.mission()
    await snapshots.create(world.store, group)
    await world.raw.hset(keys.mission(world.store.base(0), group), "snap", f"1 digest {64 * 100_000}")
    await world.raw.zadd(world.key("@due"), {f"k {group} 0": 1})
    assert (await world.store.call("tick", 0, (256,)))[4] == b""
    assert await world.raw.zscore(world.key("@due"), f"k {group} 0") is None


async def test_a_trimmed_group_is_verified_from_its_snapshot_on(world: World) -> None:
    world.audited = False
    group = await lived(world)
    await snapshots.create(world.store, group, keep=0)
    hand = await world.hand("another")
    await hand.do(a_submit(await hand.started(group)))
    assert (await verifying.verify(world.store, group)).differences == ()
    await world.raw.hset(world.key(f"{group}:i:i004"), "oe", "77")
    said = (await verifying.verify(world.store, group)).differences
    assert ("i004", "ownership_epoch", "77") in [(one.where, one.what, one.found) for one in said]


async def test_s13_a_repaired_group_is_told_from_the_snapshot_that_its_log_begins_with(world: World) -> None:
    """No log tells what was before a repair; its items' keys do."""
    world.audited = False
    group = await lived(world)
    await snapshots.create(world.store, group, keep=2)
    await world.raw.xadd(world.key(f"{group}:log"), {"k": "v"}, id="9999-0")
    await repairing.halt(world.store, group)
    await repairing.repair(world.store, group, actor="ana", reason="foreign")
    await world.authority.tick(0)
    made = await snapshots.newest(world.store, group)
    assert made is not None
    assert made.incarnation == 2, "the one of the log that is gone went with it"
    with pytest.raises(CursorTooOld, match=f"its Snapshot at {made.through}"):
        await snapshots.fold(world.store, group, from_start=True)
    hand = await world.hand("another")
    await hand.do(a_submit(await hand.started(group)))
    told = await snapshots.fold(world.store, group)
    assert (told.incarnation, told.through > made.through) == (2, True)
    assert differences(told, await state_of(world.raw, world.store.base(0), group)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("through", "x"),
        ("size", "-1"),
        ("size", ""),
        ("chunks", "1e3"),
        ("chunks", "9999999999"),
        ("chunks", "9" * 5_000),
    ],
)
async def test_a_snapshot_whose_record_was_altered_is_not_taken_up_and_says_so(
    name: str, value: str, world: World
) -> None:
    group = await lived(world)
    await snapshots.create(world.store, group)
    await world.raw.hset(keys.snapshot(world.store.base(0), group), name, value)
    with pytest.raises(Corrupt, match="not whole"):
        await snapshots.newest(world.store, group)
