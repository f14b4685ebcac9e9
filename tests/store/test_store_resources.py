"""Resources: an item starts only on a Worker that has what it needs, and only while that is free (beside its slots)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GROUP, a_new_item, a_new_mission, a_raw_item
from store.refused import plain
from store.world import Hand, World, a_submit, a_take
from treadle.shared.model import Capability, GroupId, ItemId, Priority, Urgency
from treadle.shared.reasons import Question
from treadle.shared.resources import Resources
from treadle.shared.store import Accept, Hold, Outcome, commands, pictures

M = GroupId(GROUP)
ONE, TWO = (("gpu", 1),), (("gpu", 2),)
BOTH = (("gpu", 1), ("license-x", 1))


async def taken(
    hand: Hand, *, slots: int = 8, spare: Resources = (), group: str = GROUP, capability: str = "index"
) -> Outcome:
    """What a take gives that may fill so much."""
    return await hand.do(a_take(group, 9, capability=capability), slots=slots, resources=spare)


def items(outcome: Outcome) -> list[str]:
    return [grant.item for grant in outcome.grants]


async def test_as_many_are_started_as_there_is_free_for(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name, resources=ONE) for name in "abc"))
    hand = await world.hand(slots=8, resources=TWO)
    outcome = await taken(hand, spare=TWO)
    assert items(outcome) == ["a", "b"]
    assert {grant.resources for grant in outcome.grants} == {ONE}
    assert (await taken(hand)).code == "PASSED", "a slot is free, but nothing besides"
    await hand.do(a_submit(outcome.grants[0]))
    assert items(await taken(hand, spare=ONE)) == ["c"]


async def test_a_take_that_is_repeated_gives_the_same_and_no_more(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name, resources=ONE) for name in "abc"))
    hand = await world.hand(slots=8, resources=TWO)
    first = await taken(hand, spare=TWO)
    (again,) = (await hand.again()).outcomes
    assert again.grants == first.grants


async def test_slots_bound_it_as_well(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(name, resources=ONE, width=2) for name in "abc"))
    hand = await world.hand(slots=4, resources=(("gpu", 9),))
    assert items(await taken(hand, slots=4, spare=(("gpu", 9),))) == ["a", "b"]


async def test_what_a_worker_never_has_is_no_hindrance_to_what_stands_behind_it_or_in_another_group(
    world: World,
) -> None:
    await world.mission(GROUP, a_new_item("a", resources=BOTH), a_new_item("b"), a_new_item("c", resources=ONE))
    await world.mission("other", a_new_item("x"))
    plain = await world.hand("plain", slots=8)
    assert items(await taken(plain)) == ["b"]
    assert (await taken(plain)).code == "PASSED"
    assert items(await taken(plain, group="other")) == ["x"]
    has_one = await world.hand("has-one", slots=8, resources=TWO)
    assert items(await taken(has_one, spare=TWO)) == ["c"]
    has_both = await world.hand("has-both", slots=8, resources=BOTH)
    assert items(await taken(has_both, spare=BOTH)) == ["a"]


async def test_a_turn_fills_no_more_than_its_session_has_whatever_it_says(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", resources=TWO))
    hand = await world.hand(slots=8, resources=ONE)
    before = await world.item()
    assert (await taken(hand, spare=TWO)).code == "PASSED"
    assert await world.item() == before


async def test_what_needs_more_is_neither_accepted_nor_kept_free_for(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", resources=TWO))
    hand = await world.hand(slots=8, resources=ONE)
    for operation in (Accept(M, ItemId("a")), Hold(M, ItemId("a"), keep=True)):
        assert (await hand.do(operation)).code == "AUTH_FORBIDDEN"
    other = await world.hand("worker-2", slots=8, resources=TWO)
    (grant,) = (await other.do(Accept(M, ItemId("a")))).grants
    assert (grant.lease, grant.resources) == (None, TWO)
    assert (await other.restarted(grant)).resources == TWO


async def test_of_two_workers_the_first_keeps_resources_for_an_item_and_the_other_goes_on_behind_it(
    world: World,
) -> None:
    """The directory says so, to whoever looks and to whoever asks again."""
    await world.mission(GROUP, a_new_item("a", resources=TWO), a_new_item("b", resources=ONE))
    first, second = [await world.hand(name, slots=4, resources=TWO) for name in ("worker-1", "worker-2")]
    hold = Hold(M, ItemId("a"), keep=True)
    held = await first.do(hold)
    assert held.code == "OK"
    (again,) = (await first.again()).outcomes
    assert again == held
    assert (await second.do(hold)).code == "RESERVED"
    ((look,),) = [(await world.authority.look({0: 0}, [Capability("index")])).values()]
    (entry,) = look.entries
    assert (entry.head_item, entry.head_needs, entry.head_holder) == ("a", TWO, "worker-1")
    assert items(await taken(first, spare=ONE)) == ["b"], (
        "what its Worker lets others fill goes to what stands behind it"
    )
    assert (await taken(second, spare=TWO)).code == "PASSED"
    assert items(await taken(first, spare=TWO)) == ["a"]
    assert "rsv" not in await world.item()


async def test_it_keeps_what_it_needs_in_its_place_when_it_is_given_another(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", resources=TWO), a_new_item("b", urgency=Urgency.HIGH))
    before = (await world.item())["key"]
    await commands.prioritise(world.store, M, ItemId("a"), Priority(Urgency.CRITICAL), actor="ana", action="1")
    after = (await world.item())["key"]
    assert before != after
    assert (before.endswith(":a&gpu=2"), after.endswith(":a&gpu=2")) == (True, True)
    hand = await world.hand(slots=4, resources=TWO)
    assert items(await taken(hand, spare=TWO)) == ["a", "b"]


async def test_what_an_older_session_held_says_what_it_needs(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", resources=ONE))
    await taken(await world.hand(slots=2, resources=ONE), spare=ONE)
    later = await world.hand(slots=2, resources=ONE, nonce="later")
    assert [grant.resources for grant in later.requeued] == [ONE]


async def test_a_receipt_says_where_no_worker_has_all_and_what_the_most_is(world: World) -> None:
    await world.hand("one", slots=1, resources=(("gpu", 2),))
    await world.hand("two", slots=4, resources=(("license-x", 1),))
    new = [
        replace(one, digest=one.item)
        for one in [
            *(a_new_item("a", resources=TWO), a_new_item("b", resources=BOTH)),
            *(
                a_new_item("c", capability="render", resources=ONE),
                a_new_item("d", width=2, resources=(("license-x", 1),)),
            ),
        ]
    ]
    receipt = await world.store.create(a_new_mission(GROUP, *new[:1], open=True))
    assert (receipt.no_worker, receipt.unschedulable, receipt.lacking) == ((), {}, {})
    added = await commands.add(world.store, M, new[1:], actor="ana")
    assert (added.no_worker, added.unschedulable) == (("render",), {})
    assert added.lacking == {"index": {"gpu": 2, "license-x": 1}}
    again = await commands.add(world.store, M, new[1:], actor="ana")
    assert (again.repeated, again.lacking) == (3, added.lacking)
    wide = await commands.add(world.store, M, [a_new_item("e", width=9, resources=ONE)], actor="ana")
    assert (wide.unschedulable, wide.lacking) == ({"index": 4}, {})


async def test_pictures_and_questions_say_what_is_needed_and_what_workers_have(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", resources=BOTH, width=3))
    hand = await world.hand(slots=4, resources=BOTH)
    facts = await pictures.why(world.store, M, ItemId("a"))
    assert facts is not None
    assert (facts.resources, [one.resources for one in facts.workers]) == (BOTH, [BOTH])
    assert [one.slots for one in facts.workers] == [4]
    await world.store.call("question", 0, (GROUP, "a", "nonce"))
    (entry,) = await world.raw.lrange(world.key(f"@inbox:{hand.session.agent}"), 0, -1)
    question = Question.parse(entry.decode(), where="inbox")
    assert (question.capability, question.width, question.resources) == (Capability("index"), 3, BOTH)
    (view,) = await world.store.items(M)
    assert view.resources == BOTH


@pytest.mark.parametrize("resources", ["gpu", "gpu=0", "gpu=1,gpu=1", "GPU=1", "gpu=12345678", ",", "gpu = 1"])
async def test_the_store_takes_none_that_is_none(world: World, resources: str) -> None:
    mission = (GROUP, "digest", "ana", "objective", "acme", "1.0", "standard", 0, 60_000, 0, "whole", 1, "- - 0")
    call = plain(world, "create", world.store.replid, *mission, *a_raw_item(resources=resources))
    assert await call() == "SCHEMA_VALIDATION_FAILED"
    assert await world.store.missions() == []
