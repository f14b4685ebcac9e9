"""What of an item goes out with its grant, damaged by somebody: found by who takes it, and no Worker ends of it (BR-55)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from builders import GROUP, a_new_item
from store.scheduled import JOBS, a_schedule, standing, until_due
from store.world import World, a_begin, a_commit, a_fail, a_release, a_save, a_submit, a_take
from treadle.shared import codec
from treadle.shared.model import Grant, GroupId, ItemId
from treadle.shared.schedules import Interval
from treadle.shared.store import keys, pictures, stuck, verifying
from treadle.shared.store.timetable import schedule

ITEM = ItemId("a")
LONG = b"x" * 100
"""Long enough for keys of their own."""


async def make_a_list(world: World, body: str, *, group: str = GROUP, item: str = ITEM) -> None:
    key = keys.body(world.store.base(world.store.partition_of(group)), GroupId(group), item, body)
    assert await world.raw.delete(key) == 1
    await world.raw.rpush(key, "mine")
    world.audited = False


async def test_br_55_inputs_of_another_type_come_as_none_with_their_grant_and_all_others_as_they_are(
    world: World,
) -> None:
    """The grant is written by then: were the reply an error, every Worker that takes the item would die of it."""
    await world.mission(GROUP, *(a_new_item(item, inputs=LONG) for item in "abc"))
    await make_a_list(world, "in")
    hand = await world.hand()
    grants = await hand.take(most=3, slots=3)
    assert {grant.item: grant.inputs for grant in grants} == {"a": b"", "b": LONG, "c": LONG}
    for grant in grants:
        operation = a_release(grant, "POISON") if grant.item == ITEM else a_submit(grant)
        assert (await hand.do(operation)).code == "OK"
    (parked,) = await stuck.parked(world.store)
    assert (parked.item, parked.held, parked.digest) == ("a", "POISON", codec.digest(b""))
    found = await pictures.why(world.store, GroupId(GROUP), ITEM)
    assert found is not None
    assert found.held == "POISON"


async def test_a_checkpoint_of_another_type_is_none_to_its_reader(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_save(grant, 1, LONG))
    await hand.do(a_save(grant, 2, LONG + b"2"))
    await make_a_list(world, "ck0")
    wanted = [(grant.group, ITEM, "ck0"), (grant.group, ITEM, "ck1")]
    assert await world.authority.read(0, wanted) == [None, LONG]
    for number in (3, 4):
        assert (await hand.do(a_save(grant, number, LONG + b"%d" % number))).code == "OK"
    assert await world.authority.read(0, wanted) == [LONG + b"4", LONG + b"3"], "a later save takes its place"


async def test_an_item_of_another_type_has_no_bodies_and_halts_its_group_when_it_is_written(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await world.raw.delete(world.key(f"{GROUP}:i:a"))
    await world.raw.set(world.key(f"{GROUP}:i:a"), "mine")
    world.audited = False
    assert await world.authority.read(0, [(grant.group, ITEM, "in")]) == [None]
    assert (await hand.do(a_submit(grant))).code == "LOG_FOREIGN"


async def test_a_call_that_is_repeated_after_its_effects_were_taken_away_is_answered(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.turn(a_begin(grant), a_commit(grant, result=b"no. 17"))
    assert (await hand.do(a_begin(grant))).result == b"no. 17"
    await world.raw.delete(world.key(f"{GROUP}:ef:a"))
    await world.raw.set(world.key(f"{GROUP}:ef:a"), "mine")
    world.audited = False
    assert (await hand.do(a_begin(grant))).code == "LOG_FOREIGN", "and is not taken for one that was never begun"


async def test_a_schedule_whose_inputs_are_of_another_type_fires_an_item_without_any_and_no_tick_fails(
    world: World,
) -> None:
    await standing(world)
    await schedule(world.store, a_schedule(item=a_new_item(inputs=LONG), spec=Interval(1000)))
    key = world.key(f"{JOBS}:sc:nightly")
    assert await world.raw.delete(key) == 1
    await world.raw.rpush(key, "mine")
    world.audited = False
    await until_due(world)
    assert (await world.authority.tick(0))[1] == 1
    hand = await world.hand()
    (grant,) = await hand.take(JOBS)
    assert grant.inputs == b""


@pytest.mark.parametrize("body", ["fl", "nd", "in"])
async def test_what_people_look_at_is_shown_without_the_body_that_cannot_be_read(body: str, world: World) -> None:
    await world.mission(GROUP, a_new_item("a", inputs=LONG))
    item = world.key(f"{GROUP}:i:a")
    await world.raw.hset(item, mapping={f"{body}x": "100"})
    await world.raw.delete(world.key(f"{GROUP}:{body}:a"))
    await world.raw.rpush(world.key(f"{GROUP}:{body}:a"), "mine")
    world.audited = False
    found = await pictures.why(world.store, GroupId(GROUP), ITEM)
    assert found is not None
    assert (found.failure, found.blocked) == ("", None)


@pytest.mark.parametrize(("end", "body"), [(a_submit, "rs"), (a_fail, "fl")])
async def test_all_others_are_read_though_one_result_or_its_evidence_cannot_be(
    end: Callable[[Grant, bytes], Any], body: str, world: World
) -> None:
    await world.mission(GROUP, *(a_new_item(item) for item in "ab"))
    hand = await world.hand()
    for grant in await hand.take(most=2, slots=2):
        assert (await hand.do(end(grant, LONG))).code == "OK"
    await make_a_list(world, body)
    found = await world.store.items(GroupId(GROUP), bodies=True)
    assert [view.result or view.failure for view in found] == [b"", LONG], "as where it is gone"


ODD = (b"\xc1 x", b"a b c", b"-1", b"1e400", b"nan", b"1\n2", b"0x10", b"1.5", b"")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("need", value) for value in (*ODD, b"gpu", b"gpu=1,", b"gpu=one", b"gpu=1,=2")),
        *(("ckn", value) for value in ODD),
        *(("ckd", value) for value in (b"\xc1 x", b"a b c", b"1\n2", b"")),
        *(("ckp", value) for value in (b"\xc1 x", b"a b c", b"1\n2", b"")),
        *(("after", value) for value in (b"\xc1 x", b"1\n2", b"a,b")),
    ],
)
async def test_br_55_an_item_whose_grant_could_not_be_read_is_granted_to_nobody_and_halts_its_group_alone(
    field: str, value: bytes, world: World
) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    await world.mission("good", a_new_item("a"))
    await world.raw.hset(world.key(f"{GROUP}:i:a"), field, value)
    world.audited = False
    hand = await world.hand()
    reply = await hand.turn(a_take(most=2), a_take("good"), slots=3)
    assert [outcome.code for outcome in reply.outcomes] == ["LOG_FOREIGN", "OK"]
    assert [len(outcome.grants) for outcome in reply.outcomes] == [0, 1]
    found = await verifying.inspect(world.store, GroupId(GROUP))
    assert found is not None
    assert found.damaged == (("a", "damaged"),)
