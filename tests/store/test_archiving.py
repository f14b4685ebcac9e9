"""An ended Mission is archived whole, recorded once, and where it is required nothing goes before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders import GROUP, a_new_item
from store.world import World, a_save, a_submit
from treadle.coordinator.core.replaying import Replay
from treadle.shared.archive import ArchivedItem, Header, Part, Record, Scribe, Snapshot, read
from treadle.shared.errors import Corrupt, Refused
from treadle.shared.model import Event, EventKind, GroupId, MissionState
from treadle.shared.store import archiving, commands, repairing, snapshots

SHA = "a1" * 32


async def tick_all(world: World) -> None:
    for _ in range(50):
        if (await world.authority.tick(0))[1] == 0:
            return
    pytest.fail("something is always due")


async def ended(world: World, *, keep_results_s: int = 3600) -> GroupId:
    """A Mission of two items, one with long bodies, both verified."""
    items = (a_new_item("a"), a_new_item("b", inputs=b"long" * 50))
    group = await world.mission(GROUP, *items, keep_results_s=keep_results_s)
    hand = await world.hand(ttl_ms=60_000)
    for grant in await hand.take(most=2):
        await hand.do(a_save(grant))
        await hand.do(a_submit(grant, b"result of " + grant.item.encode() * 40))
    return group


async def written(world: World, group: str = GROUP) -> tuple[Scribe, list[Part]]:
    scribe = Scribe()
    lines = [line async for line in archiving.lines(world.store, GroupId(group), scribe)]
    return scribe, list(read(lines, what="m.gz"))


async def recorded(world: World, group: GroupId) -> str:
    scribe, _ = await written(world, group)
    assert await archiving.record(world.store, group, seq=scribe.through, digest=scribe.digest, actor="ana")
    return scribe.digest


async def test_an_archive_holds_every_event_and_every_item_with_its_bodies(world: World) -> None:
    group = await ended(world)
    scribe, parts = await written(world)
    assert isinstance(parts[0], Header)
    assert (parts[0].first, parts[0].through) == (1, scribe.through)
    assert [part for part in parts if isinstance(part, Event)] == await world.log()
    items = {str(part.item): part for part in parts if isinstance(part, ArchivedItem)}
    assert items.keys() == {"a", "b"}
    assert items["b"].bodies == {"in": b"long" * 50, "rs": b"result of " + b"b" * 40}
    assert items["a"].fields["st"] == "verified"
    assert not items["a"].fields.keys() & {"ck0", "ck1"}
    assert "rs" not in items["a"].fields
    again, _ = await written(world, group)
    assert again.digest == scribe.digest


async def test_an_archive_of_a_log_that_was_made_anew_says_its_incarnation(world: World) -> None:
    world.audited = False
    group = await ended(world)
    record = (await world.raw.hget(world.key("@groups"), group)).decode().split(" ")
    record[4] = "2"
    await world.raw.hset(world.key("@groups"), group, " ".join(record))
    _, (header, _, *parts) = await written(world)
    assert isinstance(header, Header)
    assert header.incarnation == 2
    assert {part.incarnation for part in parts if isinstance(part, Event)} == {2}


def replayed(parts: Sequence[Part]) -> Replay:
    replay = Replay()
    for part in parts:
        replay.take(part)
    return replay


async def test_r11_s13_the_events_of_an_archive_fold_to_what_its_records_say(world: World) -> None:
    await ended(world)
    scribe, parts = await written(world)
    told = replayed(parts).projection
    assert told is not None
    assert (told.mission, told.verified, told.through) == ("approved", 2, scribe.through)
    assert told.canonical() == (await snapshots.fold(world.store, GroupId(GROUP))).canonical()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("st", "cancelled", "item a: its state is 'cancelled' by the record, 'verified' by the Events"),
        ("oe", "77", "item a: its Ownership Epoch is '77'"),
        ("ln", "9", "item a: its number of runs is '9'"),
        ("dg", "0", "item a: its result's digest is '0'"),
    ],
)
async def test_an_archive_whose_records_and_events_tell_two_stories_is_refused(
    name: str, value: str, said: str, world: World
) -> None:
    await ended(world)
    _, parts = await written(world)
    where, item = next((at, one) for at, one in enumerate(parts) if isinstance(one, ArchivedItem) and one.item == "a")
    other = replace(item, fields={**item.fields, name: value})
    with pytest.raises(Corrupt, match=said):
        replayed([*parts[:where], other, *parts[where + 1 :]])
    with pytest.raises(Corrupt, match="how many items are verified is '1' by the record, '2' by the Events"):
        replayed([*parts[:where], *parts[where + 1 :]])
    failed = Record({"state": "failed"})
    with pytest.raises(Corrupt, match="the Mission's state is 'failed' by the record, 'approved' by the Events"):
        replayed([failed if isinstance(part, Record) else part for part in parts])


@pytest.mark.parametrize("how", ["trimmed", "made anew"])
async def test_the_archive_of_a_log_without_its_beginning_is_replayed_from_the_snapshot_in_it(
    how: str, world: World
) -> None:
    world.audited = False
    group = await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand(ttl_ms=60_000)
    grants = await hand.take(most=2)
    await hand.do(a_submit(grants[0]))
    if how == "trimmed":
        await snapshots.create(world.store, group, keep=1)
    else:
        await repairing.halt(world.store, group)
        await repairing.repair(world.store, group, actor="ana", reason="disk")
        await tick_all(world)
    await hand.do(a_submit(grants[1]))
    scribe, parts = await written(world)
    assert sum(isinstance(part, Snapshot) for part in parts) == 1
    replay = replayed(parts)
    assert replay.projection is not None
    assert (replay.projection.mission, replay.projection.through) == ("approved", scribe.through)
    assert replay.states == {"verified": 2}
    assert replayed([part for part in parts if not isinstance(part, Snapshot)]).projection is None


async def test_r11_its_archive_is_recorded_once_with_the_digest_of_its_bytes(world: World) -> None:
    group = await ended(world)
    digest = await recorded(world, group)
    *_, event = await world.log()
    assert (event.kind, event.item, event.by, event.data) == (EventKind.GROUP_ARCHIVED, None, "ana", (digest,))
    before = await world.dump()
    assert not await archiving.record(world.store, group, seq=event.seq - 1, digest=digest, actor="ana")
    assert await world.dump() == before
    view = await world.store.mission(group)
    assert view is not None
    assert (view.archive, view.last_seq) == (digest, event.seq)
    assert await archiving.unarchived(world.store, most=10) == []


async def test_one_that_has_not_ended_is_not_read_into_an_archive(world: World) -> None:
    group = await world.mission(GROUP)
    with pytest.raises(Refused, match="its Mission is active; only one that has ended"):
        await written(world)
    await commands.cancel(world.store, group, None, actor="ana", reason="no-more")
    with pytest.raises(Refused, match="still withdrawing what is left of it"):
        await written(world)
    await tick_all(world)
    _, parts = await written(world)
    assert [part.fields["st"] for part in parts if isinstance(part, ArchivedItem)] == ["cancelled"]
    with pytest.raises(Refused, match="there is no Mission of it") as caught:
        await written(world, "nowhere")
    assert caught.value.code == "GROUP_NOT_FOUND"


async def test_a_log_with_a_hole_is_not_archived_and_the_place_is_said(world: World) -> None:
    world.audited = False
    await ended(world)
    await world.raw.xdel(world.key(f"{GROUP}:log"), "4-0")
    with pytest.raises(Corrupt, match=r"sequence 4 of .* is missing; it cannot be archived"):
        await written(world)
    await world.raw.delete(world.key(f"{GROUP}:log"))
    with pytest.raises(Corrupt, match="it is empty, but the store counts"):
        await written(world)


async def test_where_an_archive_is_required_nothing_goes_before_it(world: World) -> None:
    assert await archiving.require(world.store, True)
    assert not await archiving.require(world.store, True)
    group = await ended(world, keep_results_s=0)
    await tick_all(world)
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.is_expired) == (MissionState.APPROVED, False)
    assert len(await world.store.items(group)) == 2
    digest = await recorded(world, group)
    await tick_all(world)
    view = await world.store.mission(group)
    assert view is not None
    assert (view.is_expired, view.archive) == (True, digest)
    assert await world.store.items(group) == []


async def test_one_that_is_archived_early_stays_for_its_time_all_the_same(world: World) -> None:
    await archiving.require(world.store, True)
    group = await ended(world, keep_results_s=3600)
    view = await world.store.mission(group)
    assert view is not None
    await recorded(world, group)
    await tick_all(world)
    due = await world.raw.zscore(world.key("@due"), f"z {group} 0")
    assert int(due) == view.ended_ms + 3_600_000


async def test_once_it_is_not_required_any_more_what_is_over_goes(world: World) -> None:
    if world.is_real:
        pytest.skip("ten minutes of a real server's time are ten minutes")
    await archiving.require(world.store, True)
    group = await ended(world, keep_results_s=0)
    await tick_all(world)
    assert await archiving.require(world.store, False)
    assert not await archiving.require(world.store, False)
    await world.pass_ms(600_001)
    await tick_all(world)
    view = await world.store.mission(group)
    assert view is not None
    assert view.is_expired
