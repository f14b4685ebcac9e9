"""A call may come twice, late, or under a number that is not its own: it is never carried out twice (S10, S26)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from builders import GROUP, a_new_item
from store.world import (
    SHORT_MS,
    Hand,
    World,
    a_begin,
    a_block,
    a_commit,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_word,
    a_yield,
    differences,
)
from treadle.shared.errors import Refused
from treadle.shared.model import Grant
from treadle.shared.store import Operation, TurnReply, events_of


async def _taken(world: World) -> tuple[Hand, list[Operation]]:
    return await world.hand(), [a_take(GROUP, 2)]


async def _on_started(world: World, make: Callable[[Grant], Operation]) -> tuple[Hand, list[Operation]]:
    hand = await world.hand()
    return hand, [make(await hand.started())]


async def _on_accepted(world: World) -> tuple[Hand, list[Operation]]:
    hand = await world.hand()
    return hand, [a_start(await hand.accepted())]


async def _begun(world: World) -> tuple[Hand, list[Operation]]:
    hand = await world.hand()
    grant = await hand.started()
    return hand, [a_begin(grant), a_commit(grant), a_begin(grant), a_commit(grant, result=b"another")]


async def _a_bit_of_everything(world: World) -> tuple[Hand, list[Operation]]:
    hand = await world.hand()
    one, two, three = await hand.take(most=3)
    return hand, [a_submit(one), a_save(two), a_yield(three), a_start(three), a_take(GROUP, 9), a_release(two)]


TURNS: dict[str, Callable[[World], Awaitable[tuple[Hand, list[Operation]]]]] = {
    "take": _taken,
    "start": _on_accepted,
    "save": lambda world: _on_started(world, a_save),
    "progress": lambda world: _on_started(world, lambda grant: a_word(grant, milestones=("half",))),
    "yield and keep": lambda world: _on_started(world, a_yield),
    "yield away": lambda world: _on_started(world, lambda grant: a_yield(grant, keep=False)),
    "block": lambda world: _on_started(world, a_block),
    "effect": lambda world: _on_started(world, a_begin),
    "commit": _begun,
    "release": lambda world: _on_started(world, a_release),
    "submit": lambda world: _on_started(world, a_submit),
    "fail": lambda world: _on_started(world, a_fail),
    "everything": _a_bit_of_everything,
}


def untimed(reply: TurnReply) -> tuple[object, ...]:
    """A reply without envelope and directory entries, which are as of the answer and not of the call."""
    return (reply.outcomes, reply.bells, reply.at_ms)


@pytest.mark.parametrize("name", TURNS)
async def test_a_turn_that_comes_again_is_answered_alike_and_changes_nothing(name: str, world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item, inputs=item.encode() * 80) for item in "abcde"))
    hand, operations = await TURNS[name](world)
    first = await hand.turn(*operations, slots=2, ahead=1)
    assert any(outcome.code == "OK" for outcome in first.outcomes)
    await world.pass_ms(3)
    before = await world.dump()
    for _ in range(3):
        again = await hand.again()
        assert untimed(again) == untimed(first)
        assert again.envelope.now_ms > first.envelope.now_ms
    assert await world.dump() == before
    assert hand.last is not None
    assert events_of(hand.last, hand.session, again) == events_of(hand.last, hand.session, first)


async def test_a_repeated_take_shows_the_directory_as_it_is_now(world: World) -> None:
    """The outcome is the first one's, the entries are fresh: others went on meanwhile (design.md 3.6)."""
    await world.mission(GROUP, *(a_new_item(item) for item in "abc"))
    hand, other = await world.hand(), await world.hand("worker-2")
    first = await hand.turn(a_take(GROUP), a_take("nowhere"), slots=1)
    await other.take(most=2)
    again = await hand.again()
    assert again.outcomes == first.outcomes
    assert [(entry.group, entry.takeable, entry.code) for entry in first.entries] == [
        (GROUP, 2, ""),
        ("nowhere", 0, "GROUP_NOT_FOUND"),
    ]
    assert [(entry.group, entry.takeable, entry.code) for entry in again.entries] == [
        (GROUP, 0, ""),
        ("nowhere", 0, "GROUP_NOT_FOUND"),
    ]


async def test_a_number_used_before_is_refused_and_never_carried_out(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await hand.turn(a_take(GROUP), slots=1)
    await hand.turn()
    before = await world.dump()
    for number, code in (
        (0, "ACTION_SUPERSEDED"),
        (1, "ACTION_SUPERSEDED"),
        (2, "ACTION_ID_COLLISION"),
        (4, "LANE_REGRESSED"),
    ):
        with pytest.raises(Refused) as caught:
            await hand.turn(a_take(GROUP), number=number, slots=1)
        assert caught.value.code == code
    assert await world.dump() == before
    assert len((await hand.turn(a_take(GROUP), number=3, slots=1)).outcomes[0].grants) == 1


async def test_the_same_operations_with_other_slots_are_another_call(world: World) -> None:
    hand = await world.hand()
    await hand.turn(a_take(GROUP), slots=1)
    with pytest.raises(Refused) as caught:
        await hand.turn(a_take(GROUP), slots=2, number=1)
    assert caught.value.code == "ACTION_ID_COLLISION"


async def test_lanes_of_one_session_are_counted_apart_and_their_leases_differ(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    leases = set()
    for lane in (0, 1):
        (outcome,) = (await hand.turn(a_take(GROUP), number=1, lane=lane, slots=1)).outcomes
        leases |= {grant.lease.lease_id for grant in outcome.grants if grant.lease}
    assert len(leases) == 2


async def test_a_new_session_counts_its_lanes_from_one(world: World) -> None:
    old = await world.hand(nonce="old")
    for _ in range(3):
        await old.turn()
    new = await world.hand(nonce="new")
    assert (await new.turn(number=1)).outcomes == ()


async def test_an_ending_that_comes_again_in_another_call_was_done_before(world: World) -> None:
    """Outside its lane an ending is known by Lease ID and digest (design.md 3.5)."""
    await world.mission(GROUP, *(a_new_item(item) for item in "abcd"))
    hand = await world.hand()
    one, two, three, four = await hand.take(most=4)
    endings: list[Operation] = [a_submit(one), a_fail(two), a_save(three), a_yield(four)]
    assert [outcome.code for outcome in (await hand.turn(*endings)).outcomes] == ["OK"] * 4
    before = await world.dump()
    again = await hand.turn(*endings)
    assert [outcome.code for outcome in again.outcomes] == ["REPEATED"] * 4
    assert all(outcome.done and outcome.seq is None for outcome in again.outcomes)
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []


@pytest.mark.parametrize("make", [a_submit, a_fail], ids=["submit", "fail"])
async def test_an_ending_with_another_content_is_not_the_same_ending(
    make: Callable[[Grant, bytes], Operation], world: World
) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(make(grant, b"first"))
    before = await world.dump()
    assert (await hand.do(make(grant, b"second"))).code == "WORK_LEASE_EXPIRED"
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []


async def test_an_ending_is_still_known_after_its_session_was_replaced(world: World) -> None:
    await world.mission()
    old = await world.hand(nonce="old")
    submit = a_submit(await old.started())
    await old.do(submit)
    new = await world.hand(nonce="new")
    assert (await new.do(submit)).code == "REPEATED"


async def test_a_yield_that_kept_its_item_is_not_taken_for_done_after_the_item_lapsed(world: World) -> None:
    """A Worker that is told 'done' would believe that it still owns the item."""
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS)
    grant = await hand.started()
    await hand.do(a_save(grant, 1, b"same"))
    await world.pass_ms(SHORT_MS + 1)
    await world.authority.tick(0)
    assert (await hand.do(a_yield(grant, 1, b"same", keep=True))).code == "WORK_STALE_OWNERSHIP"
    assert (await world.item())["st"] == "offered"


@pytest.mark.parametrize("name", ["take", "submit", "everything"])
async def test_a_turn_that_comes_again_after_the_items_went_on_elsewhere_changes_nothing(
    name: str, world: World
) -> None:
    """A late repeat is answered from the lane's record, whatever has become of its items."""
    await world.mission(GROUP, *(a_new_item(item) for item in "abcde"))
    hand, operations = await TURNS[name](world)
    first = await hand.turn(*operations, slots=2, ahead=1)
    other = await world.hand("worker-2")
    await other.turn(*(a_submit(grant) for grant in await other.take(most=9)))
    before = await world.dump()
    assert (await hand.again()).outcomes == first.outcomes
    assert await world.dump() == before
