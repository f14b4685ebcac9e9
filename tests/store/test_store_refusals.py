"""Each refusal of each contract: the code it names, and a store that is byte for byte what it was."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from redis.exceptions import ResponseError
from store import (  # noqa: F401 - they fill the table
    refused_commands,
    refused_effects,
    refused_holds,
    refused_members,
    refused_operations,
    refused_questions,
    refused_repairs,
    refused_schedules,
    refused_snapshots,
)
from store.contracts import OPERATIONS, contracts
from store.refused import REFUSALS, Refusal
from store.world import World, a_release, a_submit, a_take, a_yield, differences, held
from treadle.shared.errors import TreadleError
from treadle.shared.model import GroupId, ItemId
from treadle.shared.store import Held, RenewalDoor
from treadle.shared.store.connection import translate


def test_every_refusal_of_every_contract_has_a_case() -> None:
    listed = {(name, code) for name, contract in contracts().items() for code in contract.words("refusals")}
    assert {(refusal.file, refusal.code) for refusal in REFUSALS} == listed


def test_every_code_that_a_call_is_refused_with_becomes_an_error_of_its_own() -> None:
    """A code that `translate` does not know would reach the caller as an internal error."""
    for name, contract in contracts().items():
        if name not in OPERATIONS:
            for code in contract.words("refusals"):
                error = translate(ResponseError(f"{code} detail=1"), "redis://x")
                assert error.code == code, (name, code)
                assert type(error) is not TreadleError, (name, code)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_a_refusal_says_its_code_and_leaves_the_store_as_it_was(refusal: Refusal, world: World) -> None:
    call = await refusal.case(world)
    before = await world.dump()
    assert await call() == refusal.code
    assert differences(before, await world.dump(), but_for=refusal.changes) == []


async def test_each_lease_of_a_renewal_is_answered_for_itself(world: World) -> None:
    hand = await world.hand()
    for name in ("m-1", "m-2", "m-3"):
        await world.mission(name, *(a_new_item(item) for item in ("a", "b", "c", "d", "e", "f")))
    good, done, yielded, accepted = [await hand.started() for _ in range(3)] + [await hand.accepted()]
    foreign = await hand.started("m-2")
    stolen = await hand.started("m-3")
    await hand.turn(a_submit(done), a_yield(yielded))
    await world.raw.hset(world.key("@groups"), "m-2", "halted:LOG_FOREIGN 1 acme standard 1")
    world.audited = False
    await world.raw.hset(world.key("m-3:i:a"), "ses", "99")
    given_back = await hand.started()
    await hand.do(a_release(given_back))
    asked: dict[str, list[Held]] = {
        "OK": [held(good)],
        "GROUP_NOT_FOUND": [Held(0, GroupId("nowhere"), good.item, 1, held(good).lease)],
        "LOG_FOREIGN": [held(foreign)],
        "INVALID_COMMAND": [Held(0, good.group, ItemId("nothing"), 1, held(good).lease)],
        "WORK_STALE_OWNERSHIP": [Held(0, good.group, good.item, 7, held(good).lease), held(given_back)],
        "AUTH_STALE_SESSION": [held(stolen)],
        "WORK_LEASE_EXPIRED": [held(yielded), held(done), Held(0, good.group, good.item, 1, held(done).lease)],
        "INVALID_STATE_TRANSITION": [held(accepted)],
    }
    flat = [(code, lease) for code, leases in asked.items() for lease in leases]
    door = RenewalDoor(world.store, hand.session)
    await world.pass_ms(2)
    before = await world.dump()
    _, codes = door.renew(0, [lease for _, lease in flat])
    door.close()
    assert codes == [code for code, _ in flat]
    changed = differences(before, await world.dump(), but_for=["@due", "@meta"])
    assert changed == [f"{GROUP}:i:{good.item}"], "only the lease that was renewed"


async def test_a_refused_item_in_the_middle_of_a_batch_stops_nobody_else(world: World) -> None:
    """The others are carried out without a hole in the log, the refused one is byte for byte what it was."""
    await world.mission(GROUP, *(a_new_item(item) for item in "abcde"))
    hand = await world.hand()
    grants = await hand.take(most=5)
    stale = grants[2]
    await hand.do(a_yield(stale))
    before = await world.item(item=stale.item)
    start = (await world.log())[-1].seq

    reply = await hand.turn(*(a_submit(grant, grant.item.encode()) for grant in grants))

    assert [outcome.code for outcome in reply.outcomes] == ["OK", "OK", "WORK_LEASE_EXPIRED", "OK", "OK"]
    assert await world.item(item=stale.item) == before
    events = [event for event in await world.log() if event.seq > start]
    assert [(event.item, event.kind.value) for event in events] == [
        (item, kind) for item in "abde" for kind in ("work.submitted", "work.result.accepted")
    ]
    assert [event.seq for event in events] == list(range(start + 1, start + 9))


async def test_a_batch_of_nothing_but_refusals_appends_nothing(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grants = await hand.take(most=2)
    await hand.turn(*(a_release(grant) for grant in grants))
    before = await world.dump()
    reply = await hand.turn(*(a_submit(grant) for grant in grants), a_take("nowhere"))
    assert [outcome.code for outcome in reply.outcomes] == ["WORK_STALE_OWNERSHIP"] * 2 + ["GROUP_NOT_FOUND"]
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []


async def test_an_operation_twice_in_one_batch_is_carried_out_once(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    reply = await hand.turn(a_submit(grant), a_submit(grant), a_submit(grant, b"another result"))
    assert [outcome.code for outcome in reply.outcomes] == ["OK", "REPEATED", "WORK_LEASE_EXPIRED"]
    assert (await world.kinds()).count("work.submitted") == 1
