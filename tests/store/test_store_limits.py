"""What stops a take before the next item: budgets of its Group, account and class, and quotas (Scheduler, rules 2 and 5)."""

from __future__ import annotations

from typing import Any

import pytest
from builders import GROUP, a_new_item
from servers import LEGS
from store.world import Hand, World, a_start, a_submit, a_take
from treadle.shared.model import Limits, Usage
from treadle.shared.store import Outcome, operations
from treadle.shared.store.replies import parse_usage

HOUR_MS = 3_600_000
ITEMS = tuple(a_new_item(item) for item in "abcdef")


async def taken(hand: Hand, most: int, limits: Limits | None, *, group: str = GROUP) -> Outcome:
    return await hand.do(a_take(group, most, limits=limits), slots=64)


def a_limit(name: str, value: Any) -> Limits:
    return Limits()._replace(**{name: value})


async def service(world: World, node: str) -> Usage:
    return parse_usage((await world.raw.hget(world.key("@usage"), node)).decode().split())


def items(outcome: Outcome) -> str:
    return "".join(grant.item for grant in outcome.grants)


# --- charge ---


@pytest.mark.parametrize("level", ["charge_group", "charge_account", "charge_class"])
@pytest.mark.parametrize("leg", LEGS)
async def test_a_take_stops_at_the_first_item_that_finds_its_node_charged_above_the_limit(
    level: str, world: World
) -> None:
    """A cold run is charged one millisecond at its start: the third item finds two."""
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    outcome = await taken(hand, 6, a_limit(level, 1))
    assert outcome.code == "OK"
    assert 1 <= len(outcome.grants) <= 2, "one where a millisecond went by on the way"
    await world.pass_ms(5)
    assert (await taken(hand, 6, a_limit(level, 1))).code == "SHARE"
    assert (await taken(hand, 1, a_limit(level, HOUR_MS))).code == "OK"
    assert await world.state(item="f") == "offered"


async def test_what_other_groups_of_an_account_and_class_had_counts_against_their_limits(world: World) -> None:
    await world.mission("m-1", *ITEMS, account="acme")
    await world.mission("m-2", *ITEMS, account="acme")
    await world.mission("m-3", *ITEMS, account="beta")
    await world.mission("m-4", *ITEMS, account="acme", priority_class="batch")
    hand = await world.hand()
    await hand.take("m-1", 4)
    await world.pass_ms(10)
    assert (await taken(hand, 1, Limits(charge_account=30), group="m-2")).code == "SHARE"
    assert (
        await taken(hand, 1, Limits(charge_group=30, charge_account=30, charge_class=30), group="m-4")
    ).code == "OK", "an account has its share in each class apart"
    assert (await taken(hand, 1, Limits(charge_class=30), group="m-3")).code == "SHARE"
    assert (await taken(hand, 1, Limits(charge_account=30), group="m-3")).code == "OK"


async def test_what_the_same_turn_gave_and_ended_before_counts_in_every_limit_after_it(world: World) -> None:
    """The account's service is read in the middle of a turn that changes it: before, by an end; after, by two starts."""
    await world.mission("m-1", *ITEMS)
    await world.mission("m-2", *ITEMS)
    hand = await world.hand()
    first = await hand.started("m-1")
    at_most_one, at_most_three = Limits(slots_account=1), Limits(slots_account=3)
    reply = await hand.turn(
        a_submit(first),
        a_take("m-2", 3, limits=at_most_one),
        a_take("m-1", 1, limits=at_most_one),
        a_take("m-1", 6),
        a_take("m-2", 6, limits=at_most_three),
        slots=3,
    )
    ended, one, none, rest, full = reply.outcomes
    assert (ended.code, items(one), none.code, items(rest)) == ("OK", "a", "QUOTA", "bc")
    assert full.code == "OK", "no slot is free: it asks for none"
    account = await service(world, "a:standard:acme")
    assert account.running == 3
    assert {one.node: one.usage for one in reply.nodes} == {
        "a:standard:acme": account,
        "c:standard": await service(world, "c:standard"),
    }


# --- quotas ---


@pytest.mark.parametrize("leg", LEGS)
async def test_a_group_never_runs_more_slots_than_its_quota_whoever_asks(world: World) -> None:
    await world.mission(GROUP, a_new_item("a", width=2), *ITEMS[1:])
    one, two = await world.hand("worker-1"), await world.hand("worker-2")
    assert items(await taken(one, 6, Limits(slots_group=3))) == "ab"
    refused = await taken(two, 6, Limits(slots_group=3))
    assert (refused.code, refused.at_ms) == ("QUOTA", 0)
    assert (await service(world, f"g:{GROUP}")).running == 3


async def test_a_group_with_a_quota_of_slots_has_nothing_accepted_ahead_of_its_start(world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    reply = await hand.turn(a_take(GROUP, 6, limits=Limits(slots_group=5)), slots=2, ahead=3)
    assert [grant.lease is not None for grant in reply.outcomes[0].grants] == [True, True]


async def test_what_was_accepted_before_starts_only_where_its_group_has_a_slot_left(world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    grant = await hand.accepted()
    running = await hand.started()
    one = Limits(slots_group=1)
    assert (await hand.do(a_start(grant, one))).code == "QUOTA"
    assert await world.state(item=grant.item) == "queued", "it stays its owner's"
    ended, started = (await hand.turn(a_submit(running), a_start(grant, one))).outcomes
    assert (ended.code, started.code) == ("OK", "OK")


async def test_a_group_at_its_own_cap_is_served_no_longer_and_enters_anew(world: World) -> None:
    """Rule 3: while it cannot be served it must not save up what it missed."""
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    await taken(hand, 1, Limits(slots_group=2))
    below = await service(world, f"g:{GROUP}")
    assert (below.entry, below.served) == (1, True)
    await taken(hand, 1, Limits(slots_group=2))
    full = await service(world, f"g:{GROUP}")
    assert (full.entry, full.served) == (2, False)
    await taken(hand, 1, Limits(slots_group=2))
    assert await service(world, f"g:{GROUP}") == full, "a refusal is no entry"


async def test_an_account_at_its_cap_leaves_the_entries_of_its_groups_alone(world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    await taken(hand, 2, Limits(slots_account=2))
    assert (await service(world, f"g:{GROUP}")).entry == 1


@pytest.mark.parametrize("level", ["rate_group", "rate_account"])
async def test_a_window_gives_as_many_as_its_rate_and_says_when_it_ends(level: str, world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    if world.clock is not None:
        world.clock.now_ms -= world.clock.now_ms % HOUR_MS
    rate = a_limit(level, (2, HOUR_MS))
    assert items(await taken(hand, 1, rate)) == "a"
    assert items(await taken(hand, 6, rate)) == "b"
    refused = await taken(hand, 6, rate)
    now_ms = await world.store.now_ms()
    assert (refused.code, refused.at_ms) == ("QUOTA", (now_ms // HOUR_MS + 1) * HOUR_MS)
    assert items(await taken(hand, 1, None)) == "c", "who brings no rate is not counted"
    if world.clock is not None:
        await world.pass_ms(HOUR_MS)
        assert items(await taken(hand, 6, rate)) == "de"


async def test_a_take_that_a_limit_stops_leaves_the_directory_as_it_was(world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    before = (await world.authority.look({0: 0}, hand.session.capabilities))[0]
    reply = await hand.turn(a_take(limits=Limits(slots_group=0)), slots=1)
    assert (reply.outcomes[0].code, reply.entries) == ("QUOTA", before.entries), "it stands open for others"
    assert (await world.authority.look({0: 0}, hand.session.capabilities))[0].version == before.version


async def test_a_turn_repeated_is_answered_alike_and_counts_no_rate_twice(world: World) -> None:
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    first = await hand.turn(a_take(most=2, limits=Limits(rate_group=(9, 10**13), charge_account=HOUR_MS)), slots=2)
    again = await hand.again()
    assert again.outcomes == first.outcomes
    assert again.nodes == first.nodes
    assert await world.raw.hget(world.key("@rates"), f"g:{GROUP}") == b"0 2"


@pytest.mark.parametrize(
    ("limits", "wire"),
    [
        (Limits(), "-"),
        (Limits(charge_group=0), "0,-,-,-,-,-,-"),
        (Limits(1, 2, 3, 4, 5, (6, 7), (8, 9)), "1,2,3,4,5,6/7,8/9"),
    ],
)
def test_limits_travel_as_seven_fields_or_as_none(limits: Limits, wire: str) -> None:
    assert limits.wire() == wire


@pytest.mark.parametrize(
    ("most", "offset", "limits"),
    [
        *(
            ("1", offset, "-")
            for offset in ("nan", "inf", "1e300", "9" * 20, "0=nan", "0=1e300", "1.5", "5=", "=5", "")
        ),
        *((most, "0", "-") for most in ("-1", "nan", "1.5", "0x10", "")),
        *(("1", "0", f"{charge},-,-,-,-,-,-") for charge in ("nan", "1e300", "x")),
        *(("1", "0", f"-,-,-,-,-,{rate},-") for rate in ("3", "3/0", "-3/1000", "nan/1000")),
    ],
)
async def test_a_take_with_a_number_that_is_none_is_refused_and_changes_nothing(
    most: str, offset: str, limits: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless offset was kept as the least number there is, and a `most` below 0 took its Group out of the directory."""
    await world.mission(GROUP, *ITEMS)
    hand = await world.hand()
    with monkeypatch.context() as patch:
        patch.setattr(operations, "_arguments", lambda _: ["take", GROUP, "index", most, offset, limits])
        assert (await hand.do(a_take())).code == "SCHEMA_VALIDATION_FAILED"
    assert (await service(world, f"g:{GROUP}")).offset == 0
    assert items(await taken(hand, 9, None)) == "abcdef"
