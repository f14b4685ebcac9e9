"""Pictures for people: what they show is what the store has, through every state of an item, and they write nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_new_item, a_new_mission
from store.world import SHORT_MS, World, a_fail, a_save, a_submit
from treadle.coordinator.core.gates import Code, Gate, explain
from treadle.shared import codec
from treadle.shared.facts import FailureFacts
from treadle.shared.model import Capability, GroupId, ItemId, MissionState
from treadle.shared.store import commands, pictures, stuck
from treadle.shared.store.sizes import payloads, sizes

M, ODD = GroupId("m-1"), GroupId("%F0%9F%98%80%20%7Bx%7D")


@pytest.fixture
def partitions() -> int:
    return 3


async def gates(world: World, item: str, group: GroupId = M) -> list[Gate]:
    facts = await pictures.why(world.store, group, ItemId(item))
    assert facts is not None
    return list(explain(facts))


async def codes(world: World, item: str) -> list[Code]:
    return [gate.code for gate in await gates(world, item)]


async def test_the_workers_of_all_partitions_are_one_each_with_what_they_hold(world: World) -> None:
    await world.mission(M, a_new_item("a"))
    assert (await pictures.workers(world.store))[1] == []
    hand = await world.hand("w-1", "index", "audit")
    await hand.take(M)
    now_ms, (one,) = await pictures.workers(world.store)
    assert (one.agent, one.epoch, set(one.capabilities), one.ttl_ms) == ("w-1", 1, {"index", "audit"}, 10_000)
    assert one.held == 1
    assert await pictures.slots_in_use(world.store, [one]) == {one.agent: 1}
    many = replace(one, held=pictures.RUNS_LOOKED_AT + 1)
    assert await pictures.slots_in_use(world.store, [many]) == {}
    assert not one.is_silent(now_ms)
    assert 0 <= now_ms - one.renewed_ms < 5_000
    assert replace(one, renewed_ms=now_ms - 40_001).is_silent(now_ms)
    await hand.close()
    assert (await pictures.workers(world.store))[1] == []


async def test_groups_show_what_is_takeable_what_runs_and_what_was_used(world: World) -> None:
    await world.mission(M, a_new_item("a"), a_new_item("b", after=("a",)), a_new_item("c"), weight=2.0)
    await world.mission("😀 {x}", a_new_item("a", capability=Capability("audit")))
    hand = await world.hand("w-1")
    grant = await hand.started(M)
    await world.pass_ms(40)
    by_group = {one.group: one for one in await pictures.groups(world.store)}
    one, odd = by_group[M], by_group[ODD]
    assert (one.mission, one.state, one.weight, one.takeable, one.running) == ("m-1", "active", 2.0, 1, 1)
    assert one.used_ms >= 40
    assert one.seq == one.log_length == len(await world.log(M))
    assert (one.items, one.first_seq, one.snapshot_seq, one.bytes) == (3, 1, None, None)
    assert (odd.mission, odd.takeable, odd.running, odd.used_ms) == ("😀 {x}", 1, 0, 0)
    await hand.do(a_submit(grant), partition=grant.partition)
    by_group = {one.group: one for one in await pictures.groups(world.store)}
    assert (by_group[M].takeable, by_group[M].running) == (2, 0)


async def test_an_ended_mission_is_among_the_groups_only_where_asked_for(world: World) -> None:
    await world.mission(M, a_new_item("a"))
    hand = await world.hand("w-1")
    grant = await hand.started(M)
    await hand.do(a_submit(grant), partition=grant.partition)
    assert await pictures.groups(world.store) == []
    (one,) = await pictures.groups(world.store, only_live=False)
    assert (one.state, one.takeable) == ("ended", 0)


async def test_progress_counts_every_item_once(world: World) -> None:
    await world.mission(M, *(a_new_item(f"i{n}") for n in range(5)), a_new_item("last", after=("i0",)))
    await world.mission("😀 {x}", a_new_item("a"))
    hand = await world.hand("w-1")
    first, second = await hand.take(M, 2)
    await hand.do(a_submit(first), partition=first.partition)
    await hand.do(a_fail(second), partition=second.partition)
    await hand.started(M)
    both = await pictures.progress(world.store)
    assert {one.group for one in both} == {M, ODD}
    (one,) = await pictures.progress(world.store, [M, GroupId("absent")])
    assert (one.mission, one.state) == ("m-1", MissionState.ACTIVE)
    assert (one.total, one.verified, one.failed, one.cancelled, one.running, one.waiting) == (6, 1, 1, 0, 1, 3)


async def test_why_follows_an_item_through_its_states(world: World) -> None:
    await world.mission(M, a_new_item("a"), a_new_item("b"), a_new_item("c", after=("a", "b")))
    assert await codes(world, "a") == [Code.NO_WORKER]
    assert await codes(world, "b") == [Code.NO_WORKER, Code.QUEUED]
    assert await codes(world, "c") == [Code.DEPENDENCY, Code.NO_WORKER]
    hand = await world.hand("w-1")
    assert await codes(world, "a") == [Code.NEXT]
    assert (await gates(world, "c"))[0].text == "it waits for a (offered), b (offered)"
    grant = await hand.started(M)
    (running,) = await gates(world, "a")
    assert running.code is Code.RUNNING
    assert running.text.startswith("Worker w-1 has run it for ")
    await hand.do(a_submit(grant), partition=grant.partition)
    assert await codes(world, "a") == [Code.VERIFIED]
    assert (await gates(world, "c"))[0].text == "it waits for b (offered)"
    accepted = await hand.accepted(M)
    assert await codes(world, "b") == [Code.ACCEPTED]
    started = await hand.restarted(accepted)
    evidence = codec.pack(
        {"type": "ValueError", "text": "bad \x1b[31m" + "long " * 50}, field="evidence", limit=100_000
    )
    await hand.do(a_fail(started, evidence), partition=started.partition)
    (failed,) = await gates(world, "b")
    assert failed.code is Code.FAILED
    assert "it failed for good after 1 run: ValueError: bad \\x1b[31mlong long" in failed.text
    assert await stuck.failures(world.store, M, most=9) == [
        FailureFacts("b", "ValueError", "bad \x1b[31m" + "long " * 50)
    ]
    assert (await codes(world, "c"))[0] in (Code.CANCELLED, Code.MISSION_ENDED)


async def test_why_says_what_only_time_or_a_person_changes(world: World) -> None:
    later = replace(a_new_item("later"), not_before="+60000")
    bad = replace(a_new_item("bad"), retry="3 60000 60000")
    await world.mission(M, a_new_item("a"), later, bad, a_new_item("z"))
    hand = await world.hand("w-1", ttl_ms=SHORT_MS)
    assert await codes(world, "later") == [Code.NOT_BEFORE]
    evidence = codec.pack({"type": "OSError", "text": "busy"}, field="evidence", limit=1_000)
    for grant in await hand.take(M, 9):
        if grant.item == "bad":
            await hand.do(replace(a_fail(grant, evidence), retryable=True), partition=grant.partition)
    (gate,) = await gates(world, "bad")
    assert gate.code is Code.BACKOFF
    assert gate.text.startswith("it failed 1 time (OSError: busy) and is tried again in 1 min")
    group = GroupId("poison")
    await world.mission(
        group, replace(a_new_item("p"), retry="3 10 10"), a_new_item("q", capability=Capability("other"))
    )
    for _ in range(5):
        await world.pass_ms(20)
        await tick(world)
        await hand.started(group)
        await world.pass_ms(SHORT_MS + 1)
        await tick(world)
    gate, *_ = await gates(world, "p", group)
    assert gate.code is Code.HELD
    assert "POISON" in gate.text
    assert "5 runs" in gate.text
    (one,) = await stuck.parked(world.store)
    assert (one.mission, one.item, one.account, one.held, one.lost_runs) == ("poison", "p", "acme", "POISON", 5)
    assert one.since_ms > 0


async def tick(world: World) -> None:
    for partition in range(world.store.partitions):
        while (await world.authority.tick(partition))[1]:
            pass


async def test_why_knows_slots(world: World) -> None:
    await world.mission(M, a_new_item("a"), a_new_item("b"), a_new_item("wide", width=9))
    hand = await world.hand("w-1")
    (one,) = (await pictures.workers(world.store))[1]
    assert one.slots == 1
    assert Code.UNSCHEDULABLE in await codes(world, "wide")
    await hand.started(M)
    assert await codes(world, "b") == [Code.CAPACITY]


async def test_a_mission_that_grows_is_open_in_pictures_and_its_items_are_found(world: World) -> None:
    await world.store.create(replace(a_new_mission("m-1"), items=(), open=True))
    items = [replace(a_new_item(name), digest=name) for name in ("a", "b")]
    await commands.add(world.store, M, items, actor="ann")
    (one,) = await pictures.progress(world.store)
    assert (one.is_open, one.total) == (True, 2)
    assert await codes(world, "b") == [Code.NO_WORKER, Code.QUEUED]
    (group,) = await pictures.groups(world.store)
    assert group.takeable == 2
    evidence = codec.pack({"type": "OSError", "text": "x"}, field="evidence", limit=1_000)
    await commands.fail_item(world.store, M, ItemId("b"), actor="ann", digest="d", evidence=evidence)
    pages = [page async for page in stuck.stuck(world.store, states=frozenset({"failed"}), with_type=True)]
    assert [(row.item, row.state, row.type) for page in pages for row in page] == [("b", "failed", "OSError")]


async def test_why_says_that_the_workers_are_silent_as_if_there_were_none(world: World) -> None:
    if world.clock is None:
        pytest.skip("40 s of a real server's time")
    await world.mission(M, a_new_item("a"))
    await world.hand("w-1")
    assert await codes(world, "a") == [Code.NEXT]
    await world.pass_ms(40_001)
    assert await codes(world, "a") == [Code.NO_WORKER]


async def test_of_what_is_not_there_nothing_is_said(world: World) -> None:
    await world.mission(M, a_new_item("a"))
    for group, item in ((M, "b"), (ODD, "a")):
        assert await pictures.why(world.store, group, ItemId(item)) is None
    assert await pictures.progress(world.store, [ODD]) == []
    assert await stuck.failures(world.store, M, most=5) == []


async def test_looking_writes_nothing(world: World) -> None:
    await world.mission(M, a_new_item("a"), a_new_item("b", after=("a",)))
    hand = await world.hand("w-1")
    await hand.started(M)
    before = await world.dump()
    await pictures.workers(world.store)
    await pictures.groups(world.store, only_live=False)
    await pictures.progress(world.store)
    await stuck.failures(world.store, M, most=5)
    for item in ("a", "b"):
        await pictures.why(world.store, M, ItemId(item))
    assert await world.dump() == before


async def test_a_group_takes_more_memory_for_longer_bodies_and_more_items(world: World) -> None:
    await world.mission(M, *(a_new_item(f"i{number}", inputs=b"x" * 1_000) for number in range(100)))
    await world.mission("large", *(a_new_item(f"i{number}", inputs=b"x" * 10_000) for number in range(100)))
    found = await sizes(world.store, [M, GroupId("large"), GroupId("nowhere")])
    if not world.is_real:
        assert found == {}, "the store in memory cannot say"
        return
    assert 100_000 < found[M] < 400_000
    assert 1_000_000 < found[GroupId("large")] < 2_000_000
    assert found[GroupId("nowhere")] == 0


async def test_br_65_what_a_group_holds_in_payloads_is_told_to_the_byte(world: World) -> None:
    await world.mission(M, a_new_item("a", inputs=b"x" * 1_000), a_new_item("b", inputs=b"short"))
    hand = await world.hand()
    grant = await hand.started(M)
    for operation in (a_save(grant, 1, b"c" * 500), a_submit(grant, b"r" * 300)):
        assert (await hand.do(operation, partition=grant.partition)).code == "OK"
    assert await payloads(world.store, [M, GroupId("nowhere")]) == {M: 1_000 + 500 + 300, GroupId("nowhere"): 0}
