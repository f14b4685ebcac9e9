"""A log that is not as the store left it: foreign entries, deleted logs. Detected and said; that Group is halted, others
go on (S12, design.md 3.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import (
    SHORT_MS,
    Hand,
    World,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
    differences,
)
from treadle.shared.errors import Corrupt, Refused
from treadle.shared.model import Capability, Event, EventKind, GroupId

INDEX = [Capability("index")]
Harm = Callable[[World, str], Awaitable[None]]


async def _foreign_next(world: World, group: str) -> None:
    last = (await world.log(group))[-1].seq
    await world.raw.xadd(world.key(f"{group}:log"), {"who": "me"}, id=f"{last + 1}-0")


async def _foreign_beyond(world: World, group: str) -> None:
    await world.raw.xadd(world.key(f"{group}:log"), {"who": "me"}, id="1000-7")


async def _foreign_by_the_clock(world: World, group: str) -> None:
    await world.raw.xadd(world.key(f"{group}:log"), {"who": "me"})


async def _deleted(world: World, group: str) -> None:
    await world.raw.delete(world.key(f"{group}:log"))


async def _another_type(world: World, group: str) -> None:
    await world.raw.set(world.key(f"{group}:log"), "not a stream")


HARMS: dict[str, tuple[Harm, str]] = {
    "a foreign entry at the next sequence": (_foreign_next, "LOG_FOREIGN"),
    "a foreign entry beyond": (_foreign_beyond, "LOG_FOREIGN"),
    "a foreign entry with a clock's id": (_foreign_by_the_clock, "LOG_FOREIGN"),
    "a deleted log": (_deleted, "LOG_REBORN"),
    "a log of another type": (_another_type, "LOG_FOREIGN"),
}


async def record(world: World, group: str = GROUP) -> str:
    raw = await world.raw.hget(world.key("@groups"), group)
    return str(raw.decode().split()[0])


def items_of(group: str) -> str:
    """A pattern for the keys of a Group, as `differences` names them."""
    return rf"{group}:.*"


@pytest.mark.parametrize("name", HARMS)
async def test_a_harmed_log_refuses_every_operation_of_its_group_and_nothing_of_it_changes(
    name: str, world: World
) -> None:
    harm, code = HARMS[name]
    await world.mission(GROUP, *(a_new_item(item) for item in "abcdef"))
    await world.mission("good", a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    one, two, three, four, five = await hand.take(most=5, slots=4, ahead=1)
    (other,) = await hand.take("good")
    await harm(world, GROUP)
    before = await world.dump()

    reply = await hand.turn(
        a_submit(one),
        a_save(two),
        a_submit(other),
        a_yield(three),
        a_release(four),
        a_start(five),
        a_take(GROUP),
        a_take("good"),
        slots=2,
    )

    codes = [outcome.code for outcome in reply.outcomes]
    assert codes == [code, code, "OK", code, code, code, code, "OK"]
    assert reply.outcomes[6].grants == ()
    assert [(bell.group, bell.first) for bell in reply.bells] == [("good", 8)]
    changed = differences(before, await world.dump())
    assert not [key for key in changed if key.startswith(f"{GROUP}:")], "nothing of that Group's items"
    assert "@lanes" in changed
    assert (await world.kinds(GroupId("good")))[-3:] == [
        "work.result.accepted",
        "work.offer.accepted",
        "work.started",
    ]
    assert await record(world) == f"halted:{code}"
    again = await hand.again()
    assert again.outcomes == reply.outcomes


@pytest.mark.parametrize("name", HARMS)
async def test_a_halted_group_leaves_the_directory_and_readers_are_told(name: str, world: World) -> None:
    harm, _ = HARMS[name]
    items = (a_new_item("a"), a_new_item("b"), a_new_item("c", capability="audit"), a_new_item("d", capability="merge"))
    await world.mission(GROUP, *items)
    await world.mission("good")
    hand = await world.hand()
    known = (await world.authority.look({0: 0}, INDEX))[0]
    assert {entry.group: entry.takeable for entry in known.entries} == {GROUP: 2, "good": 1}
    await harm(world, GROUP)
    assert (await hand.do(a_take(GROUP), slots=1)).code != "OK"

    changes = (await world.authority.look({0: known.version}, INDEX))[0]

    assert not changes.full
    assert {entry.group: entry.takeable for entry in changes.entries} == {GROUP: 0}
    assert {entry.group for entry in (await world.authority.look({0: 0}, INDEX))[0].entries} == {"good"}
    for capability in ("index", "audit", "merge"):
        assert await world.raw.zscore(world.key(f"@dir:{capability}"), GROUP) is None, capability


@pytest.mark.parametrize("name", HARMS)
async def test_the_due_entries_of_a_halted_group_move_aside_and_block_nobody(name: str, world: World) -> None:
    """Else a lapsed head of a bad Group blocks the due index for ever (design.md 3.3)."""
    harm, code = HARMS[name]
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    await world.mission("good")
    hand = await world.hand(ttl_ms=SHORT_MS)
    await hand.take(most=2)
    await hand.take("good")
    await harm(world, GROUP)
    await world.pass_ms(SHORT_MS + 1)

    _, first = await world.authority.tick(0)
    assert first == 3
    assert await world.state(GroupId("good")) == "offered", "the others went on in the same call"
    assert await record(world) == f"halted:{code}"
    assert [await world.state(item=item) for item in "ab"] == ["active", "active"]
    _, second = await world.authority.tick(0)
    assert second == 2
    due = [member.decode() for member in await world.raw.zrange(world.key("@due"), 0, -1)]
    assert due == ["x worker-1 1"]
    aside = {member.decode() for member in await world.raw.zrange(world.key("@halted"), 0, -1)}
    assert aside == {f"l {GROUP} a", f"l {GROUP} b"}
    assert (await world.authority.tick(0))[1] == 0


@pytest.mark.parametrize("name", HARMS)
async def test_a_new_session_is_installed_although_a_group_it_holds_items_of_is_harmed(name: str, world: World) -> None:
    harm, code = HARMS[name]
    await world.mission(GROUP)
    await world.mission("good")
    old = await world.hand(nonce="old")
    await old.take()
    await old.take("good")
    await harm(world, GROUP)
    new = await world.hand(nonce="new")
    assert [grant.group for grant in new.requeued] == ["good"], "what was not requeued is not given"
    assert await record(world) == f"halted:{code}"
    assert (await world.item())["ses"] == "1"
    assert [grant.group for grant in (await world.hand(nonce="newer")).requeued] == ["good"]


@pytest.mark.parametrize("name", HARMS)
async def test_a_session_closes_although_a_group_it_holds_items_of_is_harmed(name: str, world: World) -> None:
    harm, code = HARMS[name]
    await world.mission(GROUP)
    await world.mission("good")
    hand = await world.hand()
    await hand.take()
    await hand.take("good")
    await harm(world, GROUP)
    await hand.close()
    assert await world.state(GroupId("good")) == "offered"
    assert await record(world) == f"halted:{code}"
    assert await world.raw.hgetall(world.key("@sessions")) == {}


@pytest.mark.parametrize("name", HARMS)
async def test_a_lease_of_a_halted_group_is_not_renewed_and_the_others_are(name: str, world: World) -> None:
    harm, code = HARMS[name]
    await world.mission(GROUP)
    await world.mission("good")
    hand = await world.hand()
    bad, good = [*(await hand.take()), *(await hand.take("good"))]
    await harm(world, GROUP)
    await hand.do(a_save(bad))
    assert await hand.renew(bad, good) == [code, "OK"]


async def test_a_call_that_appends_nothing_finds_nothing_wrong(world: World) -> None:
    """Only an append looks at the log: reading and refused operations do not halt a Group."""
    await world.mission()
    hand = await world.hand()
    await _foreign_next(world, GROUP)
    await hand.do(a_take(capability="audit"), slots=1)
    await world.authority.tick(0)
    assert await record(world) == "active"
    world.audited = False


async def test_a_reader_says_a_hole_and_a_foreign_entry_and_never_skips_them(world: World) -> None:
    world.audited = False
    group = await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    await world.raw.xdel(world.key(f"{GROUP}:log"), "3-0")
    with pytest.raises(Corrupt, match="sequence 3 is missing, 4 follows"):
        await world.store.read_log(group)
    with pytest.raises(Corrupt, match="sequence 3 is missing"):
        await world.store.wait_log(group, after=2, timeout_s=1)
    assert [event.seq for event in await world.store.read_log(group, after=3)] == [4, 5]
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"who": "me"}, id="6-0")
    with pytest.raises(Corrupt, match="is not an Event"):
        await world.store.read_log(group, after=5)


async def test_a_log_is_read_in_pages_without_a_hole(world: World) -> None:
    group = await world.mission(GROUP, *(a_new_item(f"i{number}") for number in range(100)))
    found: list[Event] = []
    while page := await world.store.read_log(group, after=len(found), count=33):
        assert len(page) <= 33
        found += page
    assert [event.seq for event in found] == list(range(1, 202))
    assert found[0].kind is EventKind.MISSION_CREATED
    assert [event.event_id for event in found[:2]] == ["m-1.1.1", "m-1.1.2"]


async def test_a_mission_is_not_created_over_a_log_that_is_there(world: World) -> None:
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"who": "me"})
    before = await world.dump()
    with pytest.raises(Refused) as caught:
        await world.store.create(a_new_mission())
    assert caught.value.code == "LOG_FOREIGN"
    assert await world.dump() == before


async def test_a_halted_mission_submitted_again_is_answered_with_its_receipt(world: World) -> None:
    mission = a_new_mission()
    await world.store.create(mission)
    hand: Hand = await world.hand()
    await _deleted(world, GROUP)
    await hand.do(a_take(), slots=1)
    assert (await world.store.create(mission)).repeated


async def test_every_event_of_a_call_has_the_sequence_after_the_one_before_it(world: World) -> None:
    """Many Groups and many operations in one call: no hole, no double, in each log."""
    names = [f"m-{number}" for number in range(8)]
    for name in names:
        await world.mission(name, *(a_new_item(f"i{number}") for number in range(8)))
    hand = await world.hand()
    grants = []
    for name in names:
        grants += await hand.take(name, 8, slots=8)
    await hand.turn(*(a_submit(grant) for grant in grants))
    for name in names:
        seqs = [event.seq for event in await world.log(GroupId(name))]
        assert seqs == list(range(1, 1 + len(seqs)))
        assert len(seqs) == 1 + 16 + 16 + 16 + 2
