"""What a Worker does to items, operation by operation: take, start, save, yield, release, submit, fail."""

from __future__ import annotations

import pytest
from builders import GROUP, a_new_item
from store.world import (
    TTL_MS,
    Hand,
    World,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
)
from treadle.shared.model import Event, GroupId, MissionState
from treadle.shared.store import events_of, keys

# --- take ---


async def test_a_take_starts_while_there_are_slots_and_accepts_ahead_after_that(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item) for item in "abcdef"))
    hand = await world.hand()
    grants = await hand.take(most=6, slots=2, ahead=3)
    assert [(grant.item, grant.lease is not None) for grant in grants] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", False),
        ("e", False),
    ]
    now = await world.store.now_ms()
    lease = grants[0].lease
    assert lease is not None
    assert now <= lease.expires_ms <= now + TTL_MS
    assert now < grants[2].start_by_ms <= now + 60_000
    assert [await world.state(item=item) for item in "abcdef"] == ["active"] * 2 + ["queued"] * 3 + ["offered"]


async def test_a_wide_item_takes_its_width_of_the_slots_and_waits_at_the_head_where_it_does_not_fit(
    world: World,
) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", width=3), a_new_item("c"))
    hand = await world.hand()
    reply = await hand.turn(a_take(GROUP, 3), slots=3)
    assert [grant.item for grant in reply.outcomes[0].grants] == ["a", "c"], "b needs 3, and 2 are left"
    (entry,) = reply.entries
    assert (entry.takeable, entry.head_item, entry.head_width) == (1, "b", 3)
    (grant,) = await hand.take(most=1, slots=3)
    assert (grant.item, grant.width) == ("b", 3)


@pytest.mark.parametrize(("wide", "found"), [(64, ["z"]), (66, [])])
async def test_a_take_looks_past_64_items_that_are_too_wide_and_no_further(
    wide: int, found: list[str], world: World
) -> None:
    await world.mission(GROUP, *(a_new_item(f"w{number:02}", width=2) for number in range(wide)), a_new_item("z"))
    hand = await world.hand()
    reply = await hand.turn(a_take(GROUP), slots=1)
    assert (reply.outcomes[0].code, [grant.item for grant in reply.outcomes[0].grants]) == (
        "OK" if found else "PASSED",
        found,
    )
    assert reply.entries[0].takeable == wide + 1 - len(found)


async def test_a_take_goes_down_its_list_of_groups_until_the_slots_are_filled(world: World) -> None:
    for name in ("m-1", "m-2", "m-3"):
        await world.mission(name, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    reply = await hand.turn(a_take("m-3", 2), a_take("m-1", 1), a_take("m-2", 2), slots=4)
    assert [len(outcome.grants) for outcome in reply.outcomes] == [2, 1, 1]
    reply = await hand.turn(a_take("m-1", 2), a_take("m-2", 2), a_take("m-3", 2), slots=1)
    assert [(outcome.code, len(outcome.grants)) for outcome in reply.outcomes] == [("OK", 1), ("OK", 0), ("EMPTY", 0)]


async def test_a_take_carries_the_present_entry_of_every_group_asked(world: World) -> None:
    """Else a Worker deducts what it asked for and never asks again (design.md 3.6)."""
    await world.mission("m-1", a_new_item("a"), a_new_item("b"))
    await world.mission("m-2", a_new_item("a"), weight=3.0, account="beta")
    await world.mission("m-3")
    hand = await world.hand()
    reply = await hand.turn(a_take("m-1"), a_take("m-2"), a_take("m-3"), a_take("nowhere"), slots=2)
    shown = [(entry.group, entry.takeable, entry.code, entry.weight, entry.account) for entry in reply.entries]
    assert shown == [
        ("m-1", 1, "", 1.0, "acme"),
        ("m-2", 0, "", 3.0, "beta"),
        ("m-3", 1, "", 1.0, "acme"),
        ("nowhere", 0, "GROUP_NOT_FOUND", 1.0, "-"),
    ]
    assert reply.entries[0].head.endswith(":b")
    assert reply.entries[0].usage.running == 1
    assert reply.entries[0].usage.served


async def test_the_first_item_of_a_take_may_be_large_and_the_next_must_fit_beside_it(world: World) -> None:
    large = b"x" * (1 << 20)
    await world.mission(GROUP, a_new_item("a", inputs=large), a_new_item("b", inputs=large), a_new_item("c"))
    hand = await world.hand()
    assert [(grant.item, len(grant.inputs)) for grant in await hand.take(most=3)] == [("a", 1 << 20)]
    assert [grant.item for grant in await hand.take(most=3)] == ["b"]
    assert [grant.item for grant in await hand.take(most=3)] == ["c"]


async def test_a_grant_carries_all_that_a_handler_needs(world: World) -> None:
    contract = b"\x81\xa1v\xa31.0" * 20
    items = (
        a_new_item("a"),
        a_new_item("b"),
        a_new_item("c", after=["a", "b"], inputs=b"\x00\n\xff", contract=contract),
    )
    await world.mission(GROUP, *items)
    hand = await world.hand()
    await hand.turn(*(a_submit(grant) for grant in await hand.take(most=2)))
    grant = await hand.started()
    assert (grant.item, grant.capability, grant.after) == ("c", "index", ("a", "b"))
    assert (grant.inputs, grant.contract, grant.checkpoint_number) == (b"\x00\n\xff", contract, 0)
    assert grant.lease is not None
    assert (grant.lease.agent, grant.lease.session_epoch, grant.lease.ownership_epoch) == ("worker-1", 1, 1)
    assert grant.lease.replid == world.store.replid


# --- yield, release, submit, fail ---


async def test_saved_progress_leaves_the_item_active(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    for number, state in ((1, b"one"), (2, b"two" * 100), (3, b"")):
        assert (await hand.do(a_save(grant, number, state))).code == "OK"
        assert await world.authority.read(0, [(grant.group, grant.item, keys.checkpoint_name(number))]) == [state]
    assert await world.state() == "active"
    assert (await world.kinds())[-3:] == ["work.progress_saved"] * 3


async def test_yielding_with_the_ownership_kept_gives_up_the_lease_only(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    first = await hand.started()
    await world.pass_ms(5)
    outcome = await hand.do(a_yield(first, 1, b"half done"))
    item = await world.item()
    assert (item["st"], item["own"], item["oe"], int(item["sby"])) == ("queued", "worker-1", "1", outcome.at_ms)
    assert await hand.take() == [], "nobody else may take it"
    again = await hand.restarted(first)
    assert (again.ownership_epoch, again.checkpoint_number) == (1, 1)
    assert again.lease is not None
    assert first.lease is not None
    assert again.lease.number == 2
    assert again.lease.lease_id != first.lease.lease_id
    assert again.lease.token > first.lease.token


async def test_yielding_away_offers_the_item_to_everybody_at_its_checkpoint(world: World) -> None:
    await world.mission()
    hand, other = await world.hand(), await world.hand("worker-2")
    await hand.do(a_yield(await hand.started(), 1, b"half done", keep=False))
    assert (await world.kinds())[-3:] == ["work.checkpointed", "work.released", "work.offer.created"]
    grant = await other.started()
    assert (grant.ownership_epoch, grant.checkpoint_number) == (2, 1)
    assert await world.authority.read(0, [(grant.group, grant.item, "ck1")]) == [b"half done"]


async def test_yielding_at_the_checkpoint_that_was_saved_last_stores_it_once(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_save(grant, 1, b"same"))
    assert (await hand.do(a_yield(grant, 1, b"same"))).code == "OK"
    assert (await world.item())["ckn"] == "1"


@pytest.mark.parametrize("started", [False, True])
async def test_a_released_item_goes_back_to_everybody(world: World, started: bool) -> None:
    await world.mission()
    hand, other = await world.hand(), await world.hand("worker-2")
    grant = await (hand.started() if started else hand.accepted())
    assert (await hand.do(a_release(grant, "stopping"))).code == "OK"
    assert (await world.log())[-2].get("reason") == "stopping"
    assert (await other.started()).ownership_epoch == 2


async def test_a_submitted_result_is_accepted_by_standing_instruction_and_frees_what_waited(world: World) -> None:
    items = (a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a", "b"]), a_new_item("d", after=["a"]))
    await world.mission(GROUP, *items)
    hand = await world.hand()
    one, two = await hand.take(most=2)
    await hand.do(a_submit(one))
    assert [await world.state(item=item) for item in "abcd"] == ["verified", "active", "open", "offered"]
    await hand.do(a_submit(two))
    assert [await world.state(item=item) for item in "abcd"] == ["verified", "verified", "offered", "offered"]


async def test_a_mission_is_approved_when_all_is_verified(world: World) -> None:
    group = await world.mission("m-1", a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await hand.turn(*(a_submit(grant) for grant in await hand.take(most=2)))
    assert (await world.kinds())[-2:] == ["mission.submitted_for_approval", "mission.approved"]
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.verified) == (MissionState.APPROVED, 2)
    assert view.ended_ms >= view.created_ms


async def test_a_mission_fails_when_nothing_of_it_can_move_any_more(world: World) -> None:
    items = (a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a"]), a_new_item("d", after=["c"]))
    group = await world.mission("m-1", *items)
    hand = await world.hand()
    one, two = await hand.take(most=2)
    await hand.do(a_fail(one, b"it is broken"))
    assert (await world.log())[-1].payload == b"it is broken"
    view = await world.store.mission(group)
    assert view is not None
    assert view.state is MissionState.ACTIVE, "b still runs"
    await hand.do(a_submit(two))
    assert (await world.kinds())[-1] == "mission.terminated"
    await world.authority.tick(0)
    assert [await world.state(item=item) for item in "abcd"] == ["failed", "verified", "cancelled", "cancelled"]


async def test_a_turn_without_operations_writes_no_event(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    before = await world.kinds()
    reply = await hand.turn()
    assert (reply.outcomes, reply.bells, reply.entries) == ((), (), ())
    assert await world.kinds() == before


# --- what a reply tells of the log ---


async def everything(world: World, hand: Hand) -> list[tuple[dict[GroupId, list[Event]], Hand]]:
    """Turns that use each operation on two Groups; what their replies tell of the log."""
    told = []

    async def turn(*operations: object, **of: int) -> None:
        reply = await hand.turn(*operations, **of)  # type: ignore[arg-type]  # any of the operations
        assert hand.last is not None
        told.append((events_of(hand.last, hand.session, reply), hand))

    for name in ("m-1", "m-2"):
        await world.mission(name, *(a_new_item(item) for item in "abcdef"))
    one, *rest = await hand.take("m-1", 2, slots=1, ahead=1)
    await turn(a_take("m-2", 3), a_start(rest[0]), a_take("m-1", 2), slots=4, ahead=1)
    taken = {grant.item: grant for grant in await hand.take("m-1", 2)}
    assert taken
    await world.pass_ms(3)
    grant = next(iter(taken.values()))
    await turn(a_save(one, 1), a_save(one, 2, b"more"))
    await turn(a_yield(one, 3, b"kept"), a_fail(grant, b"broken \xff\n"))
    again = await hand.restarted(one)
    await turn(a_yield(again, 4, b"away", keep=False))
    (last,) = await hand.take("m-1", 1)
    await turn(a_release(rest[0]), a_submit(last))  # what others are offered lies between the two
    await hand.take("m-1", 1)
    return told


async def test_a_reply_tells_its_events_just_as_the_log_has_them(world: World) -> None:
    """S13: folding one's own replies and folding the log come to the same."""
    hand = await world.hand()
    told = await everything(world, hand)
    logs = {name: {event.seq: event for event in await world.log(name)} for name in ("m-1", "m-2")}
    for events, _ in told:
        for group, own in events.items():
            assert own == [logs[group][event.seq] for event in own]
    assert sum(len(own) for events, _ in told for own in events.values()) > 15


async def test_the_links_of_replies_are_an_unbroken_chain_over_all_that_concerns_the_worker(world: World) -> None:
    """S9, S12: each link names the one before it; what lies between two concerns others."""
    hand = await world.hand()
    links: dict[str, list[tuple[int, int, int]]] = {"m-1": [], "m-2": []}
    turn = hand.turn

    async def listening(*operations: object, **of: int) -> object:
        reply = await turn(*operations, **of)  # type: ignore[arg-type]  # any of the operations
        for bell in reply.bells:
            links[bell.group].append((bell.previous, bell.first, bell.last))
        return reply

    hand.turn = listening  # type: ignore[method-assign, assignment]  # it listens to every turn of this hand
    await everything(world, hand)
    for name, found in links.items():
        own = {
            event.seq
            for event in await world.log(name)
            if event.by == "worker-1@1" or event.kind == "work.result.accepted"
        }
        linked = [seq for _, first, last in found for seq in range(first, last + 1)]
        assert set(linked) == own
        assert linked == sorted(linked)
        assert [previous for previous, _, _ in found] == [0, *(last for _, _, last in found[:-1])]


async def test_a_durable_cursor_never_moves_back(world: World) -> None:
    """S9."""
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    for asked, kept in ((4, 4), (2, 4), (5, 5), (0, 5)):
        await hand.turn(cursors=((grant.group, asked),))
        assert (await world.raw.hget(world.key("@joined:worker-1"), "m-1")).split()[2] == str(kept).encode()
    await hand.turn(a_save(grant), cursors=((grant.group, 3),))
    assert (await world.raw.hget(world.key("@joined:worker-1"), "m-1")).split()[2] == b"5"


async def test_a_cursor_of_a_group_one_never_joined_is_not_kept(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.turn(cursors=((GroupId("m-1"), 3), (GroupId("nowhere"), 9)))
    assert await world.raw.hgetall(world.key("@joined:worker-1")) == {}
