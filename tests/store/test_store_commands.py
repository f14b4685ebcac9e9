"""What people have the store do: large Missions, growing ones, cancelling, failing, trying again (protocol.md 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import Hand, World, a_fail, a_save, a_start, a_submit, lease_of
from treadle.shared.errors import Refused
from treadle.shared.model import AgentId, Grant, GroupId, ItemId, ItemState, MissionState, NewItem, Urgency
from treadle.shared.store import Store, Submit, commands

A = ItemId("a")
RETRY_TWICE = "2 1000 60000"


def job(name: str = "a", **fields: Any) -> NewItem:
    """An item of an open Mission: its digest tells its content."""
    return replace(a_new_item(name, **fields), digest=f"digest-{name}")


async def growing(world: World, *items: NewItem, **fields: Any) -> GroupId:
    mission = replace(a_new_mission(GROUP, **fields), items=(), open=True)
    group = (await world.store.create(mission)).group
    if items:
        await commands.add(world.store, group, items, actor="ana")
    return group


async def cancelled(world: World, item: str | None = "a", group: str = GROUP) -> str:
    name = None if item is None else ItemId(item)
    return await commands.cancel(world.store, GroupId(group), name, actor="ana", reason="changed-my-mind")


async def retried(world: World, item: str = "a", action: str = "1") -> None:
    await commands.retry(world.store, GroupId(GROUP), ItemId(item), actor="ana", action=action)


async def failed_by_hand(world: World, item: str = "a") -> None:
    await commands.fail_item(world.store, GroupId(GROUP), ItemId(item), actor="ana", digest="d", evidence=b"not wanted")


def a_retryable_failure(grant: Grant) -> Any:
    return replace(a_fail(grant), retryable=True)


async def tick_all(world: World, most: int = 400) -> None:
    """Until nothing is due in any partition."""
    for partition in range(world.store.partitions):
        for _ in range(most):
            if (await world.authority.tick(partition))[1] == 0:
                break
        else:
            pytest.fail("something is always due")


# --- large Missions ---


def a_large_mission(count: int = 600, **fields: Any) -> Any:
    items = [a_new_item("i0")] + [a_new_item(f"i{n}", after=[f"i{n - 1}"] if n % 2 else []) for n in range(1, count)]
    return a_new_mission(GROUP, *items, **fields)


async def test_a_mission_of_600_items_is_loaded_in_chunks_and_takeable_once_it_is_whole(world: World) -> None:
    mission = a_large_mission()
    receipt = await world.store.create(mission)
    assert (receipt.items, receipt.repeated) == (600, False)
    view = await world.store.mission(receipt.group)
    assert view is not None
    assert (view.state, view.total, view.is_open) == (MissionState.ACTIVE, 600, False)
    assert [item.item for item in await world.store.items(receipt.group)] == [item.item for item in mission.items]
    hand = await world.hand()
    taken = [grant for _ in range(5) for grant in await hand.take(most=64)]
    assert len({grant.item for grant in taken}) == 300


async def test_who_submits_a_large_mission_is_told_how_far_it_is(world: World) -> None:
    told: list[int] = []
    await world.store.create(a_large_mission(), loaded=told.append)
    assert told == [256, 512, 600]
    await world.store.create(a_large_mission(), loaded=told.append)
    assert len(told) == 3


async def test_what_is_being_loaded_is_seen_by_nobody_and_taken_by_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = await world.hand()
    seen: list[object] = []
    call = Store.call

    async def watched(store: Store, function: str, partition: int, arguments: Any) -> list[bytes]:
        if function == "seal":
            seen.append(await world.store.mission(GroupId(GROUP)))
            seen.extend(await world.store.missions())
            seen.extend(await hand.take())
            look = await world.authority.look({0: 0}, hand.session.capabilities)
            seen.extend(look[0].entries)
            for word in ("cancel", "watch"):
                with pytest.raises(Refused, match="GROUP_NOT_FOUND"):
                    await call(store, word, 0, (GROUP, "-", "ana", "60000"))
        return await call(store, function, partition, arguments)

    monkeypatch.setattr(Store, "call", watched)
    await world.store.create(a_large_mission())
    assert seen == [None]
    assert len(await hand.take()) == 1


async def test_a_load_that_stopped_half_way_is_taken_up_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, chunks = Store.call, []

    async def dies(store: Store, function: str, partition: int, arguments: Any) -> list[bytes]:
        if function == "add":
            chunks.append(arguments[1])
            if len(chunks) == 2:
                raise KeyboardInterrupt
        return await call(store, function, partition, arguments)

    monkeypatch.setattr(Store, "call", dies)
    with pytest.raises(KeyboardInterrupt):
        await world.store.create(a_large_mission())
    receipt = await world.store.create(a_large_mission())
    assert chunks == [1, 2, 2, 3]
    assert not receipt.repeated
    assert (await world.store.create(a_large_mission())).repeated
    assert len(await world.store.items(receipt.group)) == 600
    with pytest.raises(Refused, match="ACTION_ID_COLLISION"):
        await world.store.create(a_large_mission(601))


async def test_a_load_that_is_never_sealed_is_removed_after_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.is_real:
        pytest.skip("an hour of a real server's time")
    before = await world.dump()
    call = Store.call

    async def dies(store: Store, function: str, partition: int, arguments: Any) -> list[bytes]:
        if function == "seal":
            raise KeyboardInterrupt
        return await call(store, function, partition, arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "call", dies)
        with pytest.raises(KeyboardInterrupt):
            await world.store.create(a_large_mission())
    await world.pass_ms(3_500_000)
    await tick_all(world)
    assert await world.store.items(GroupId(GROUP))
    await world.pass_ms(200_000)
    await tick_all(world)
    after = await world.dump()
    assert {key for key in after if GROUP in key} == set()
    assert {key for key in after if key not in before} <= {
        world.key("@usage"),
        world.key("@groups"),
        world.key("@seqs"),
    }
    await world.store.create(a_large_mission())


async def test_dependencies_reach_over_chunks_and_are_released_like_any(world: World) -> None:
    items = [a_new_item(f"i{n}") for n in range(300)]
    await world.store.create(a_new_mission(GROUP, *items, a_new_item("last", after=["i0", "i299"])))
    hand = await world.hand()
    taken = [grant for _ in range(5) for grant in await hand.take(most=64)]
    ends = [grant for grant in taken if grant.item in ("i0", "i299")]
    assert (await world.item(item="last"))["dep"] == "2"
    for grant in ends:
        await hand.do(a_submit(grant))
    (last,) = await hand.take()
    assert (last.item, last.after) == ("last", ("i0", "i299"))


# --- growing Missions ---


async def test_an_open_mission_grows_until_it_is_sealed_and_ends_only_then(world: World) -> None:
    group = await growing(world, job("a"))
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.is_open, view.verified) == (MissionState.ACTIVE, True, 1)
    added = await commands.add(world.store, group, [job("b", after=["a"]), job("c", after=["b"])], actor="ana")
    assert (added.created, added.repeated) == (2, 0)
    await hand.do(a_submit(await hand.started()))
    await commands.seal(world.store, group, actor="ana")
    with pytest.raises(Refused, match="INVALID_STATE_TRANSITION"):
        await commands.add(world.store, group, [job("d")], actor="ana")
    await hand.do(a_submit(await hand.started()))
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.is_open, view.verified) == (MissionState.APPROVED, False, 3)
    assert [item.item for item in await world.store.items(group)] == ["a", "b", "c"]


async def test_sealing_a_mission_with_nothing_left_to_do_ends_it_there(world: World) -> None:
    group = await growing(world)
    await commands.seal(world.store, group, actor="ana")
    before = await world.dump()
    await commands.seal(world.store, group, actor="ana")
    assert await world.dump() == before
    assert await world.kinds() == [
        "mission.created",
        "mission.sealed",
        "mission.submitted_for_approval",
        "mission.approved",
    ]


async def test_an_item_added_twice_is_there_once_and_other_content_adds_nothing(world: World) -> None:
    group = await growing(world, job("a"))
    before = await world.dump()
    added = await commands.add(world.store, group, [job("a")], actor="bob")
    assert (added.created, added.repeated) == (0, 1)
    assert await world.dump() == before
    added = await commands.add(world.store, group, [job("a"), job("b")], actor="bob")
    assert (added.created, added.repeated) == (1, 1)
    before = await world.dump()
    with pytest.raises(Refused, match="ACTION_ID_COLLISION"):
        await commands.add(world.store, group, [job("c"), replace(job("a"), digest="other")], actor="bob")
    assert await world.dump() == before


async def test_an_idle_worker_is_woken_by_what_is_added(world: World) -> None:
    group = await growing(world)
    hand = await world.hand()
    await commands.add(world.store, group, [job("a")], actor="ana")
    wake = await world.authority.wait(hand.session, tokens=True, timeout_s=1)
    assert wake is not None
    assert wake.token is not None
    look = await world.authority.look({wake.partition: 0}, hand.session.capabilities)
    assert [(entry.group, entry.takeable) for entry in look[wake.partition].entries] == [(group, 1)]


async def test_a_receipt_names_who_is_missing_and_who_is_too_narrow(world: World) -> None:
    await world.authority.open_session(AgentId("w"), ["index"], lease_ttl_ms=10_000, nonce="n", slots=4)  # type: ignore[list-item]
    items = (a_new_item("a", width=8), a_new_item("b", width=4), a_new_item("c", capability="render", width=9))
    receipt = await world.store.create(a_new_mission(GROUP, *items))
    assert (receipt.no_worker, receipt.unschedulable) == (("render",), {"index": 4})


# --- not before ---


async def test_an_item_is_not_offered_before_its_time_by_the_stores_clock(world: World) -> None:
    now_ms = await world.store.now_ms()
    items = (
        replace(a_new_item("soon"), not_before="+300"),
        replace(a_new_item("at"), not_before=str(now_ms + 300)),
        replace(a_new_item("past"), not_before=str(now_ms - 5)),
    )
    await world.mission(GROUP, *items)
    hand = await world.hand()
    assert [grant.item for grant in await hand.take(most=9)] == ["past"]
    view = await world.store.item(GroupId(GROUP), ItemId("soon"))
    assert view is not None
    assert view.state is ItemState.OPEN
    assert view.next_ms >= now_ms + 300
    await world.authority.tick(0)
    assert await hand.take(most=9) == []
    await world.pass_ms(400)
    await world.authority.tick(0)
    assert {grant.item for grant in await hand.take(most=9)} == {"soon", "at"}


async def test_an_item_that_waits_for_another_waits_for_its_time_too(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), replace(a_new_item("b", after=["a"]), not_before="+300"))
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    assert await hand.take() == []
    assert await world.kinds(after=6) == ["work.submitted", "work.result.accepted"]
    await world.pass_ms(400)
    await tick_all(world)
    assert [grant.item for grant in await hand.take()] == ["b"]


# --- retries ---


async def test_a_retryable_failure_is_tried_again_after_a_doubling_wait_as_often_as_the_contract_grants(
    world: World,
) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="2 50 60000"))
    hand = await world.hand()
    waits = []
    for _ in range(2):
        outcome = await hand.do(a_retryable_failure(await hand.started()))
        view = await world.store.item(GroupId(GROUP), A)
        assert view is not None
        assert (view.state, view.next_ms, view.has_ended) == (ItemState.FAILED, outcome.at_ms, False)
        waits.append(outcome.at_ms - (await world.log())[-1].at_ms)
        assert await hand.take() == []
        await world.pass_ms(110)
        await world.authority.tick(0)
    assert waits == [50, 100]
    outcome = await hand.do(a_retryable_failure(await hand.started()))
    assert outcome.at_ms == 0
    mission = await world.store.mission(GroupId(GROUP))
    assert mission is not None
    assert (mission.state, mission.failed) == (MissionState.FAILED, 1)


async def test_a_failure_that_is_not_retryable_is_final_at_once(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry=RETRY_TWICE))
    hand = await world.hand()
    assert (await hand.do(a_fail(await hand.started()))).at_ms == 0
    assert (await world.log())[-1].kind == "mission.terminated"


async def test_an_item_is_not_tried_again_after_its_deadline(world: World) -> None:
    now_ms = await world.store.now_ms()
    await world.mission(GROUP, replace(a_new_item(deadline_ms=now_ms + 30_000), retry="5 60000 60000"))
    hand = await world.hand()
    assert (await hand.do(a_retryable_failure(await hand.started()))).at_ms == 0


async def test_dependents_wait_through_the_retries_of_what_they_wait_for(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item("a"), retry="1 10 10"), a_new_item("b", after=["a"]))
    hand = await world.hand()
    await hand.do(a_retryable_failure(await hand.started()))
    assert await world.state(item="b") == "open"
    await world.pass_ms(20)
    await tick_all(world)
    await hand.do(a_submit(await hand.started()))
    assert [grant.item for grant in await hand.take()] == ["b"]


async def test_a_person_may_have_a_failed_item_of_an_active_mission_tried_again_once_an_action(world: World) -> None:
    await growing(world, job("a"))
    hand = await world.hand()
    await hand.do(a_fail(await hand.started()))
    await retried(world)
    before = await world.dump()
    await retried(world)
    assert await world.dump() == before
    with pytest.raises(Refused, match="state=offered"):
        await retried(world, action="2")
    await hand.do(a_submit(await hand.started()))
    with pytest.raises(Refused, match="state=verified"):
        await retried(world, action="3")


async def test_what_a_mission_that_ended_left_is_not_tried_again(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_fail(await hand.started()))
    with pytest.raises(Refused, match="mission=ended"):
        await retried(world)


# --- lost runs and poison ---


async def lose_a_run(world: World, hand: Hand, *, save: bool = False) -> None:
    grant = await hand.started()
    if save:
        assert (await hand.do(a_save(grant, int((await world.item()).get("ckn", "0")) + 1))).code == "OK"
    await world.pass_ms(hand.session.lease_ttl_ms + 1)
    await tick_all(world)


async def test_the_first_lapse_offers_again_at_once_and_the_second_after_a_wait(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="3 300 60000"))
    hand = await world.hand(ttl_ms=150)
    await lose_a_run(world, hand)
    assert await world.state() == "offered"
    await lose_a_run(world, hand)
    assert await world.state() == "open"
    await world.pass_ms(301)
    await tick_all(world)
    assert await world.state() == "offered"


async def test_br_55_an_item_that_kills_its_workers_is_parked_and_the_others_flow(world: World) -> None:
    others = [a_new_item(f"good{n}", capability="other") for n in range(3)]
    await world.mission(GROUP, replace(a_new_item(), retry="3 10 10"), *others)
    hand = await world.hand(ttl_ms=150)
    for _ in range(4):
        await lose_a_run(world, hand)
        await world.pass_ms(20)
        await tick_all(world)
        assert await world.state() == "offered"
    await lose_a_run(world, hand)
    view = await world.store.item(GroupId(GROUP), A)
    assert view is not None
    assert (view.state, view.held, view.lost_runs, view.has_ended) == (ItemState.OPEN, "POISON", 5, False)
    assert await world.raw.zrange(world.key("@parked"), 0, -1) == [f"{GROUP} a".encode()]
    assert "work.parked" in await world.kinds()
    other = await world.hand("worker-2", "other")
    taken = await other.take(most=9, capability="other")
    assert len(taken) == 3
    await retried(world)
    assert await world.state() == "offered"
    assert await world.raw.exists(world.key("@parked")) == 0


async def test_a_new_checkpoint_starts_the_count_of_lost_runs_anew(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="3 10 10"))
    hand = await world.hand(ttl_ms=150)
    for _ in range(7):
        await lose_a_run(world, hand, save=True)
        assert await world.state() == "offered"


async def test_an_item_that_kills_the_same_worker_again_and_again_is_parked_too(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="3 10 10"))
    hand = await world.hand(nonce="0")
    await hand.started()
    for number in range(1, 6):
        hand = await world.hand(nonce=str(number))
        if number == 5:
            break
        await world.pass_ms(20)
        await tick_all(world)
        (grant,) = hand.requeued or await hand.take()
        if grant.lease is None:
            await hand.do(a_start(grant))
    assert (await world.item())["hold"] == "POISON"


async def test_what_a_living_worker_ran_when_the_server_restarted_is_not_counted_as_lost(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="3 10 10"))
    hand = await world.hand(nonce="0")
    await hand.started()
    for number in range(1, 8):
        hand = await world.hand(nonce=str(number), lives=True)
        (grant,) = hand.requeued
        await hand.do(a_start(grant))
    assert "lp" not in await world.item()


async def test_a_lease_that_was_over_before_the_server_came_back_is_not_counted_as_lost(world: World) -> None:
    await world.mission(GROUP, replace(a_new_item(), retry="3 10 10"))
    hand = await world.hand(ttl_ms=150)
    for _ in range(6):
        await hand.started()
        await world.pass_ms(151)
        await world.raw.hset(world.key("@meta"), "adopted", await world.store.now_ms())
        await tick_all(world)
        assert await world.state() == "offered"
    assert "lp" not in await world.item()


# --- cancelling, in each state (BR-97) ---


async def _offered(world: World, hand: Hand) -> None:
    del world, hand


async def _queued(world: World, hand: Hand) -> None:
    del world
    await hand.accepted()


async def _active(world: World, hand: Hand) -> None:
    del world
    await hand.started()


async def _active_with_a_checkpoint(world: World, hand: Hand) -> None:
    del world
    await hand.do(a_save(await hand.started()))


async def _waiting_for_its_time(world: World, hand: Hand) -> None:
    await commands.add(world.store, GroupId(GROUP), [replace(job("later"), not_before="+60000")], actor="ana")
    del hand


@pytest.mark.parametrize("bring", [_offered, _queued, _active, _active_with_a_checkpoint])
async def test_br_97_an_item_is_cancelled_in_each_state_and_its_worker_told(world: World, bring: Any) -> None:
    await growing(world, job("a"))
    hand = await world.hand()
    await bring(world, hand)
    before = len(await world.log())
    assert await cancelled(world) == "cancelled"
    assert await world.kinds(after=before) == ["work.cancelled"]
    assert await hand.take() == []
    stored = await world.dump()
    assert await cancelled(world) == "cancelled"
    assert await world.dump() == stored
    if bring is not _offered:
        wake = await world.authority.wait(hand.session, tokens=False, timeout_s=1)
        assert wake is not None
        assert wake.bell is not None
        assert wake.bell.last == before + 1


async def test_br_97_a_cancel_that_races_the_end_comes_to_exactly_one_of_the_two(world: World) -> None:
    await growing(world, job("a"), job("b"))
    hand = await world.hand()
    one, two = await hand.take(most=2)
    assert await cancelled(world, one.item) == "cancelled"
    assert (await hand.do(a_submit(one))).code == "WORK_STALE_OWNERSHIP"
    assert await hand.renew(one) == ["WORK_STALE_OWNERSHIP"]
    await hand.do(a_submit(two))
    with pytest.raises(Refused, match="state=verified"):
        await cancelled(world, two.item)


async def test_cancelling_an_item_that_waits_for_another_attempt_leaves_it_failed_for_good(world: World) -> None:
    await growing(world, replace(job("a"), retry=RETRY_TWICE))
    hand = await world.hand()
    await hand.do(a_retryable_failure(await hand.started()))
    assert await cancelled(world) == "failed"
    view = await world.store.item(GroupId(GROUP), A)
    assert view is not None
    assert view.has_ended
    await world.pass_ms(1100)
    await tick_all(world)
    assert await world.state() == "failed"


async def test_cancelling_what_waits_for_its_time_or_for_another_takes_it_out(world: World) -> None:
    later = replace(job("b"), not_before="+60000")
    await growing(world, job("a"), later, job("c", after=["a"]))
    for name in ("b", "c"):
        assert await cancelled(world, name) == "cancelled"
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    assert await hand.take() == []


async def test_a_mission_that_lost_an_item_to_a_cancel_does_not_claim_that_all_is_done(world: World) -> None:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    await cancelled(world, "a")
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    last = (await world.log())[-1]
    assert (last.kind.value, last.get("reason")) == ("mission.terminated", "1-items-cancelled")


async def test_a_cancelled_mission_starts_saves_and_ends_nothing_more_and_its_items_are_withdrawn(world: World) -> None:
    items = [a_new_item(f"i{n}") for n in range(100)] + [a_new_item("last", after=["i0"])]
    await world.mission(GROUP, *items)
    hand = await world.hand()
    active, accepted = (await hand.take(most=2, slots=1, ahead=1))[:2]
    assert await cancelled(world, None) == "cancelled"
    assert await cancelled(world, None) == "cancelled"
    codes = [
        (await hand.do(a_save(active))).code,
        (await hand.do(a_submit(active))).code,
        (await hand.do(a_start(accepted))).code,
        *(await hand.renew(active)),
    ]
    assert codes == ["INVALID_STATE_TRANSITION"] * 4
    assert await hand.take() == []
    await tick_all(world)
    assert {item.state for item in await world.store.items(GroupId(GROUP))} == {ItemState.CANCELLED}
    view = await world.store.mission(GroupId(GROUP))
    assert view is not None
    assert (view.state, view.cancelled, view.ended_ms > 0) == (MissionState.CANCELLED, 101, True)
    assert (await hand.do(a_submit(active))).code == "INVALID_STATE_TRANSITION"


async def test_a_mission_that_ended_otherwise_is_not_cancelled_any_more(world: World) -> None:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    with pytest.raises(Refused, match="state=ended"):
        await cancelled(world, None)


# --- failing by command ---


@pytest.mark.parametrize("bring", [_offered, _queued, _active])
async def test_an_item_is_failed_by_command_with_evidence_in_each_state(world: World, bring: Any) -> None:
    await growing(world, job("a"))
    hand = await world.hand()
    await bring(world, hand)
    await failed_by_hand(world)
    before = await world.dump()
    await failed_by_hand(world)
    assert await world.dump() == before
    view = (await world.store.items(GroupId(GROUP), bodies=True))[0]
    assert (view.state, view.failure, view.has_ended) == (ItemState.FAILED, b"not wanted", True)


async def test_a_late_result_of_an_item_that_was_failed_by_command_is_refused(world: World) -> None:
    await growing(world, job("a"))
    hand = await world.hand()
    grant = await hand.started()
    await failed_by_hand(world)
    late = Submit(grant.group, grant.item, grant.ownership_epoch, lease_of(grant), "late", b"late")
    assert (await hand.do(late)).code == "WORK_STALE_OWNERSHIP"


# --- results are kept for a time ---


async def test_the_items_of_a_mission_are_kept_for_its_time_and_then_gone_and_said_to_be(world: World) -> None:
    items = [a_new_item(f"i{n}", inputs=b"long" * 50) for n in range(70)]
    await world.mission(GROUP, *items, keep_results_s=1)
    hand = await world.hand()
    for _ in range(2):
        for grant in await hand.take(most=64):
            await hand.do(a_submit(grant, b"result" * 50))
    await tick_all(world)
    assert len(await world.store.items(GroupId(GROUP))) == 70
    await world.pass_ms(1001)
    await tick_all(world)
    view = await world.store.mission(GroupId(GROUP))
    assert view is not None
    assert (view.state, view.is_expired, view.verified) == (MissionState.APPROVED, True, 70)
    assert await world.store.items(GroupId(GROUP)) == []
    assert not [key for key in await world.dump() if ":i:" in key or ":rs:" in key or ":in:" in key]


async def test_each_item_of_an_open_mission_is_kept_for_a_time_after_its_own_end(world: World) -> None:
    group = await growing(world, job("a"), job("b"), keep_results_s=1)
    hand = await world.hand()
    one, _ = await hand.take(most=2)
    await hand.do(a_submit(one))
    await world.pass_ms(1001)
    await tick_all(world)
    assert [item.item for item in await world.store.items(group)] == ["b"]
    assert await world.store.item(group, one.item) is None
    added = await commands.add(world.store, group, [job("a")], actor="ana")
    assert added.created == 1


@pytest.mark.parametrize("end", [cancelled, failed_by_hand], ids=["cancelled", "failed"])
async def test_a_dependent_that_ended_first_and_is_gone_holds_nothing_up(world: World, end: Any) -> None:
    await growing(world, job("a"), job("b", after=["a"]), job("d", after=["a"]), keep_results_s=1)
    hand = await world.hand()
    grant = await hand.started()
    await end(world, "b")
    await world.pass_ms(1001)
    await tick_all(world)
    assert await world.store.item(GroupId(GROUP), ItemId("b")) is None
    assert (await hand.do(a_submit(grant))).code == "OK"
    assert [one.item for one in await hand.take()] == ["d"]


async def test_an_item_is_kept_while_its_dependents_are_still_being_released(world: World) -> None:
    await growing(world, job("a"), *(job(f"d{n}", after=["a"]) for n in range(200)), keep_results_s=1)
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    await world.pass_ms(1001)
    await tick_all(world)
    assert len([grant for _ in range(4) for grant in await hand.take(most=64)]) == 200
    assert await world.store.item(GroupId(GROUP), A) is not None


async def test_a_result_is_kept_for_those_who_still_wait_to_use_it(world: World) -> None:
    if world.is_real:
        pytest.skip("minutes of a real server's time")
    later = replace(job("b", after=["a"]), not_before="+5000")
    await growing(world, job("a"), later, keep_results_s=1)
    hand = await world.hand(ttl_ms=600_000)
    await hand.do(a_submit(await hand.started()))
    await world.pass_ms(5001)
    await tick_all(world)
    (grant,) = await hand.take()
    assert await world.authority.read(0, [(grant.group, A, "rs")]) == [b"result"]
    await hand.do(a_submit(grant))
    await world.pass_ms(60_001)
    await tick_all(world)
    assert await world.store.items(GroupId(GROUP)) == []


async def test_a_mission_is_not_approved_because_what_was_cancelled_of_it_is_gone(world: World) -> None:
    group = await growing(world, job("a"), job("b"), keep_results_s=1)
    await cancelled(world, "a")
    hand = await world.hand()
    grant = await hand.started()
    await world.pass_ms(1001)
    await tick_all(world)
    assert await world.store.item(group, A) is None
    await commands.seal(world.store, group, actor="ana")
    await hand.do(a_submit(grant))
    view = await world.store.mission(group)
    assert view is not None
    assert (view.state, view.total, view.cancelled) == (MissionState.FAILED, 2, 1)


async def test_a_cancelled_mission_is_withdrawn_whole_before_its_items_go(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(f"i{n}") for n in range(200)), keep_results_s=1)
    await cancelled(world, None)
    await world.pass_ms(1001)
    await tick_all(world)
    assert (await world.kinds()).count("work.cancelled") == 200
    assert len(await world.store.items(GroupId(GROUP))) == 200
    await world.pass_ms(1001)
    await tick_all(world)
    assert await world.store.items(GroupId(GROUP)) == []
    assert await world.raw.exists(world.key("@take:index")) == 0


async def test_an_item_added_later_may_wait_for_one_that_is_verified_or_still_releases(world: World) -> None:
    await growing(world, job("a"), *(job(f"d{n}", after=["a"]) for n in range(100)))
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    assert "rel" in await world.item()
    late = replace(job("late", after=["a"]), urgency=Urgency.CRITICAL)
    await commands.add(world.store, GroupId(GROUP), [late], actor="ana")
    await tick_all(world)
    assert (await hand.take())[0].item == "late"
    later = replace(job("later", after=["a", "late"]), urgency=Urgency.CRITICAL)
    await commands.add(world.store, GroupId(GROUP), [later], actor="ana")
    assert (await world.item(item="later"))["dep"] == "1"


# --- waiting for an item ---


async def test_who_waits_for_an_item_is_rung_when_it_ends(world: World) -> None:
    group = await growing(world, job("a"))
    hand = await world.hand()
    grant = await hand.started()
    view = await world.store.wait_item(group, A, timeout_s=0)
    assert view is not None
    assert not view.has_ended
    await hand.do(a_submit(grant, b"done"))
    view = await world.store.wait_item(group, A, timeout_s=5)
    assert view is not None
    assert (view.has_ended, view.result) == (True, b"done")
    assert await world.store.wait_item(group, ItemId("nowhere"), timeout_s=5) is None


async def test_a_failed_item_whose_dependencies_are_not_verified_is_not_tried_again_before_they_are(
    world: World,
) -> None:
    """Offered before them, it would run without their results, and cancelled, keep its Mission from ever ending."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"), a_new_item("c", after=("a",)))
    hand = await world.hand()
    await commands.fail_item(world.store, GroupId(GROUP), ItemId("c"), actor="ana", digest="d", evidence=b"e")
    with pytest.raises(Refused) as refused:
        await retried(world, "c")
    assert (refused.value.code, refused.value.details["dependencies"]) == ("INVALID_STATE_TRANSITION", "1")
    (grant,) = await hand.take()
    assert (await hand.do(a_submit(grant))).code == "OK"
    await retried(world, "c")
    assert {grant.item for grant in await hand.take(most=8)} == {"b", "c"}
