"""What a Worker discloses is recorded once an interval, is of one run, and ends with it (WRK-012)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GROUP, ITEM, a_new_item
from store.refused import LANE
from store.world import (
    FROZEN_MS,
    SAID,
    SHORT_MS,
    Hand,
    World,
    a_block,
    a_disclosure,
    a_release,
    a_submit,
    a_yield,
    differences,
)
from treadle.shared.disclosure import Disclosure, current
from treadle.shared.errors import Corrupt
from treadle.shared.model import EventKind, Grant, ItemState
from treadle.shared.store import events_of, pictures


async def shown(world: World) -> Disclosure | None:
    (view,) = await world.store.items(GROUP)
    facts = await pictures.why(world.store, GROUP, ITEM)
    assert facts is not None
    assert facts.forecast == view.forecast
    return view.forecast


async def started(world: World) -> tuple[Hand, Grant]:
    await world.mission()
    hand = await world.hand()
    return hand, await hand.started()


async def test_what_is_disclosed_is_in_the_log_and_in_the_item_with_the_stores_own_time(world: World) -> None:
    hand, grant = await started(world)
    assert await shown(world) is None
    reply = await hand.turn(a_disclosure(grant))
    assert hand.last is not None
    event = (await world.log())[-1]
    assert event.kind is EventKind.SCHEDULE_DISCLOSED
    assert event.data == ("1", *(str(n) for n in (FROZEN_MS, FROZEN_MS + 1000, FROZEN_MS + 5000, 80)), "available")
    assert await shown(world) == replace(SAID, computed_ms=event.at_ms)
    assert events_of(hand.last, hand.session, reply)[grant.group] == [event], "its Worker knows it without a read"


async def test_a_disclosure_whose_reply_was_lost_is_recorded_once(world: World) -> None:
    hand, grant = await started(world)
    first = await hand.turn(a_disclosure(grant))
    before = await world.dump()
    again = await hand.again()
    assert again.outcomes == first.outcomes
    assert differences(before, await world.dump()) == []


async def test_one_item_is_disclosed_once_an_interval_by_whomever(world: World) -> None:
    hand, grant = await started(world)
    await hand.do(a_disclosure(grant, interval_ms=100))
    first = (await world.log())[-1]
    refused = await hand.do(a_disclosure(grant, interval_ms=600_000))
    assert (refused.code, refused.at_ms) == ("RATE_LIMITED", first.at_ms + 600_000)
    await world.pass_ms(101)
    assert (await hand.do(a_disclosure(grant, interval_ms=100))).code == "OK"
    kinds = await world.kinds()
    assert kinds.count(EventKind.SCHEDULE_DISCLOSED.value) == 2


@pytest.mark.parametrize("how", ["yield", "yield to all", "block", "release", "submit", "lapse", "replaced"])
async def test_the_event_that_ends_a_run_ends_its_estimate(how: str, world: World) -> None:
    await world.mission()
    hand = await world.hand(ttl_ms=SHORT_MS if how == "lapse" else 60_000)
    grant = await hand.started()
    await hand.do(a_disclosure(grant))
    assert await shown(world) is not None
    match how:
        case "yield":
            await hand.do(a_yield(grant))
        case "yield to all":
            await hand.do(a_yield(grant, keep=False))
        case "block":
            await hand.do(a_block(grant))
        case "release":
            await hand.do(a_release(grant))
        case "submit":
            await hand.do(a_submit(grant))
        case "lapse":
            await world.pass_ms(SHORT_MS + 1)
            await world.authority.tick(0)
        case _:
            await world.hand(nonce="another")
    assert await shown(world) is None


async def test_what_was_said_of_the_wait_holds_for_the_run_that_follows_and_for_no_other(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.accepted()
    await hand.do(a_disclosure(grant))
    assert await shown(world) is not None
    grant = await hand.restarted(grant)
    assert await shown(world) is not None, "it started within its window"
    await hand.do(a_yield(grant))
    assert await shown(world) is None
    grant = await hand.restarted(grant)
    assert await shown(world) is None


async def test_a_disclosure_moves_neither_the_item_nor_its_lease_nor_anybodys_service(world: World) -> None:
    hand, grant = await started(world)
    before = await world.dump()
    await hand.do(a_disclosure(grant))
    item = await world.item(GROUP, ITEM)
    assert item["st"] == ItemState.ACTIVE
    changed = differences(before, await world.dump(), but_for=LANE)
    assert sorted(changed) == ["@joined:worker-1", "@seqs", f"{GROUP}:i:{ITEM}", f"{GROUP}:log"]


async def test_a_record_that_nobody_can_read_is_left_out_and_hides_nothing_else(world: World) -> None:
    world.audited = False
    hand, grant = await started(world)
    await hand.do(a_disclosure(grant))
    await world.raw.hset(world.key(f"{GROUP}:i:{ITEM}"), "sd", "1 2 nonsense \xff")
    assert await shown(world) is None
    with pytest.raises(Corrupt, match="no record of one"):
        current("1 2 nonsense", epoch=1, number=1)


async def test_an_item_that_is_nobodys_has_no_estimate(world: World) -> None:
    await world.mission(GROUP, a_new_item())
    assert await shown(world) is None
