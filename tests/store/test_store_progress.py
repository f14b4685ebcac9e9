"""What a run says of how far it is stands in its item; what is new of phase and milestones is in the log too (WRK-016)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GROUP, ITEM, a_new_item
from store.refused import LANE
from store.world import Hand, World, a_fail, a_release, a_submit, a_word, a_yield, differences
from treadle.shared.errors import Corrupt
from treadle.shared.model import EventKind, Grant, GroupId, ItemId, ItemState
from treadle.shared.progress import MILESTONES_MAX, Said, recorded
from treadle.shared.store import Operation, events_of, pictures, snapshots
from treadle.shared.store.verifying import verify

EVENTS_MAX = 256
"""Of one run (progress.lua)."""


async def shown(world: World) -> Said | None:
    view = await world.store.item(GroupId(GROUP), ItemId(ITEM))
    facts = await pictures.why(world.store, GroupId(GROUP), ItemId(ITEM))
    assert view is not None
    assert facts is not None
    assert facts.progress == view.progress
    return view.progress


async def started(world: World) -> tuple[Hand, Grant]:
    await world.mission()
    hand = await world.hand()
    return hand, await hand.started()


async def words(world: World) -> list[tuple[str, ...]]:
    return [event.data for event in await world.log() if event.kind is EventKind.PROGRESSED]


async def test_a_phase_and_a_milestone_that_are_new_are_events_and_numbers_alone_are_none(world: World) -> None:
    hand, grant = await started(world)
    assert await shown(world) is None
    await hand.do(a_word(grant, 1, 10, phase="fetch"))
    await hand.do(a_word(grant, 2, 10, phase="fetch"))
    reply = await hand.turn(a_word(grant, 3.5, 10, phase="fetch", milestones=("half way", "-")))
    event = (await world.log())[-1]
    assert hand.last is not None
    assert events_of(hand.last, hand.session, reply)[grant.group] == [event], "its Worker knows it without a read"
    assert (await hand.do(a_word(grant, 4, 10, note="on file ä: {x}"))).code == "OK"
    assert await words(world) == [("1", "fetch", "-", "1", "10"), ("1", "fetch", "half%20way,%2D", "3.5", "10")]
    found = await shown(world)
    assert found is not None
    assert replace(found, said_ms=0) == Said(4, 10, "", ("half way", "-"), "on file ä: {x}")
    assert event.at_ms <= found.said_ms <= await world.store.now_ms()


async def test_what_was_recorded_last_is_recorded_once(world: World) -> None:
    hand, grant = await started(world)
    word = a_word(grant, 5, phase="upload", milestones=("a", "b"), note="n")
    assert (await hand.do(word)).code == "OK"
    before = await world.dump()
    assert (await hand.do(word)).code == "REPEATED"
    assert (await hand.do(replace(word, said=replace(word.said, milestones=("b",))))).code == "REPEATED"
    assert differences(before, await world.dump(), but_for=LANE) == []


async def test_a_run_has_so_many_events_and_what_comes_after_is_counted(world: World) -> None:
    hand, grant = await started(world)
    for start in range(0, EVENTS_MAX + 20, 32):
        await hand.turn(*(a_word(grant, n, 1000, phase=f"step {n}") for n in range(start, start + 32)))
    found = await shown(world)
    assert found is not None
    assert len(await words(world)) == EVENTS_MAX
    assert (found.phase, found.unlogged) == ("step 287", 32)
    await hand.do(a_yield(grant))
    again = await hand.restarted(grant)
    await hand.do(a_word(again, phase="anew"))
    assert len(await words(world)) == EVENTS_MAX + 1, "each run has as many"
    found = await shown(world)
    assert found is not None
    assert found.unlogged == 0


async def test_the_newest_milestones_of_a_run_are_kept(world: World) -> None:
    hand, grant = await started(world)
    for n in range(MILESTONES_MAX + 3):
        await hand.do(a_word(grant, n, 100, milestones=(f"m{n}",)))
    found = await shown(world)
    assert found is not None
    assert found.milestones == tuple(f"m{n}" for n in range(3, MILESTONES_MAX + 3))


@pytest.mark.parametrize("how", ["yield", "release", "submit", "fail"])
async def test_what_a_run_said_last_is_shown_until_the_next_run_begins(how: str, world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="1 0 0"))
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_word(grant, 7))
    ends: dict[str, Operation] = {
        "yield": a_yield(grant),
        "release": a_release(grant),
        "submit": a_submit(grant),
        "fail": replace(a_fail(grant), retryable=True),
    }
    await hand.do(ends[how])
    found = await shown(world)
    assert found is not None
    assert found.done == 7
    if how != "submit":
        await (hand.restarted(grant) if how == "yield" else hand.started())
        assert await shown(world) is None


async def test_progress_moves_neither_the_item_nor_its_lease_nor_anybodys_service(world: World) -> None:
    hand, grant = await started(world)
    before = await world.dump()
    await hand.do(a_word(grant))
    assert sorted(differences(before, await world.dump(), but_for=LANE)) == [f"{GROUP}:i:{ITEM}"]
    assert (await world.item(GROUP, ITEM))["st"] == ItemState.ACTIVE


async def test_a_snapshot_and_a_verification_know_the_event(world: World) -> None:
    hand, grant = await started(world)
    await hand.do(a_word(grant, phase="one"))
    await snapshots.create(world.store, GroupId(GROUP))
    await hand.do(a_word(grant, phase="two"))
    await hand.do(a_submit(grant))
    found = await verify(world.store, GroupId(GROUP))
    assert found.differences == ()


async def test_a_record_that_nobody_can_read_is_left_out_and_written_over(world: World) -> None:
    world.audited = False
    hand, grant = await started(world)
    await world.raw.hset(world.key(f"{GROUP}:i:{ITEM}"), "pg", "1 1 nonsense \xff")
    assert await shown(world) is None
    with pytest.raises(Corrupt, match="no record of it"):
        recorded("1 2 nonsense", number=2)
    await hand.do(a_word(grant, 1))
    assert await shown(world) is not None
