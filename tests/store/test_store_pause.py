"""Pause and resume: what is paused is neither accepted nor started, wakes nobody, and comes back at once (design.md 5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from builders import GROUP, a_new_item
from servers import LEGS
from store.test_store_directory import emptied, look, shown, tokens
from store.test_store_keys import calls_of, monitored
from store.world import (
    SHORT_MS,
    World,
    a_fail,
    a_release,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_yield,
    differences,
)
from treadle.shared.errors import Backpressure, Misuse, Refused, ReplyLost
from treadle.shared.model import AgentId, Capability
from treadle.shared.store import Store
from treadle.shared.store.controls import Pause, pause, paused, pauses, resume
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.faults import Fault
from treadle.worker.core.tree import Ready

_asked = count()
WHATS = ("all", "account:acme", "capability:index", "mission:m-1")


async def code(world: World, group: str = GROUP, capability: str = "index") -> str:
    """What a new Agent's take of one item comes to."""
    hand = await world.hand("asker", "index", "audit", nonce=f"{next(_asked)}")
    taken = await hand.turn(a_take(group, capability=capability), slots=1)
    for grant in taken.outcomes[0].grants:
        await hand.do(a_release(grant))
    return taken.outcomes[0].code


@pytest.mark.parametrize("what", WHATS)
async def test_what_is_paused_is_not_taken_until_it_is_resumed(what: str, world: World) -> None:
    await world.mission()
    assert await pause(world.store, what, actor="ana")
    hand = await world.hand()
    before = await world.dump()
    reply = await hand.turn(a_take(), slots=1)
    assert [outcome.code for outcome in reply.outcomes] == ["PAUSED"]
    (entry,) = reply.entries
    assert (entry.takeable, entry.head, entry.code) == (0, "", "PAUSED")
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []
    assert await resume(world.store, what, actor="ana")
    assert (await hand.started()).lease is not None


async def test_a_pause_is_of_nothing_but_what_it_says(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b", capability="audit"))
    await world.mission("m-2", account="globex")

    async def codes() -> list[str]:
        return [await code(world, "m-1"), await code(world, "m-1", "audit"), await code(world, "m-2")]

    found: dict[str, list[str]] = {}
    for what in ("all", "account:acme", "capability:index", "mission:m-1", "mission:m-2", "account:nobody"):
        await pause(world.store, what, actor="ana")
        found[what] = await codes()
        await resume(world.store, what, actor="ana")
    ok, no = "OK", "PAUSED"
    assert found == {
        "all": [no, no, no],
        "account:acme": [no, no, ok],
        "capability:index": [no, ok, no],
        "mission:m-1": [no, no, ok],
        "mission:m-2": [ok, ok, no],
        "account:nobody": [ok, ok, ok],
    }
    assert await codes() == [ok, ok, ok]


async def test_two_pauses_of_the_same_work_are_taken_back_one_by_one(world: World) -> None:
    await world.mission()
    for what in WHATS:
        await pause(world.store, what, actor="ana")
    for what in WHATS:
        assert await code(world) == "PAUSED"
        await resume(world.store, what, actor="ana")
    assert await code(world) == "OK"


@pytest.mark.parametrize("what", WHATS)
async def test_what_was_accepted_before_is_not_started_and_can_be_given_back(what: str, world: World) -> None:
    await world.mission()
    hand = await world.hand()
    grant = await hand.accepted()
    await pause(world.store, what, actor="ana")
    before = await world.dump()
    assert (await hand.do(a_start(grant))).code == "PAUSED"
    assert differences(before, await world.dump(), but_for=["@lanes"]) == []
    assert (await hand.do(a_release(grant, "paused"))).code == "OK"
    assert await code(world) == "PAUSED"
    await resume(world.store, what, actor="ana")
    assert (await hand.started()).ownership_epoch == 2


async def test_what_runs_goes_on_to_its_end(world: World) -> None:
    await world.mission(GROUP, *(a_new_item(item) for item in "abcd"), a_new_item("e", after=["a"]))
    hand = await world.hand()
    one, two, three, four = await hand.take(most=4)
    await pause(world.store, "all", actor="ana")
    assert await hand.renew(one, two, three, four) == ["OK"] * 4
    assert (await hand.do(a_save(one))).code == "OK"
    assert (await hand.do(a_yield(three))).code == "OK"
    assert [(await hand.do(operation)).code for operation in (a_submit(one), a_fail(two), a_release(four))] == [
        "OK"
    ] * 3
    assert await world.state(item="e") == "offered", "its dependents are released, and wait"
    assert await code(world) == "PAUSED"
    assert (await hand.do(a_start(three))).code == "PAUSED"


async def test_nobody_is_woken_for_what_is_paused(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), a_new_item("b", after=["a"]), a_new_item("c"))
    hand, idle = await world.hand(ttl_ms=SHORT_MS), await world.hand("idle", "index", "audit")
    grant, other = await hand.take("m-1", 2)
    await pause(world.store, "account:acme", actor="ana")
    await emptied(world, hand, idle)
    await hand.do(a_submit(grant))
    await hand.do(a_release(other))
    await world.mission("m-2", a_new_item("a"), a_new_item("b", capability="audit"))
    for group in ("m-1", "m-2"):
        await hand.turn(token=f"index {group} 0")
    await world.pass_ms(SHORT_MS)
    await world.authority.tick(0)
    assert [token for token in await tokens(world, idle) if not token.startswith("-")] == []
    await emptied(world, idle)
    await world.mission("m-3", account="globex")
    assert await tokens(world, idle) == ["index m-3 0"]
    await emptied(world, idle)
    await idle.turn(token="index m-3 0")
    assert await tokens(world, idle) == ["index m-3 1"], "what is not paused is handed on as ever"


async def test_a_resume_wakes_each_set_of_capabilities_that_has_something_to_take(world: World) -> None:
    await world.mission("m-1", a_new_item("a"), account="acme")
    await world.mission("m-2", a_new_item("a", capability="audit"), account="globex")
    both, index, audit, other = (
        await world.hand("both", "index", "audit"),
        await world.hand("index", "index"),
        await world.hand("audit", "audit"),
        await world.hand("other", "other"),
    )
    hands = (both, index, audit, other)
    for what in ("account:acme", "mission:m-2"):
        await pause(world.store, what, actor="ana")
    await emptied(world, *hands)
    await resume(world.store, "account:acme", actor="ana")
    assert [await tokens(world, hand) for hand in hands] == [["index m-1 0"], ["index m-1 0"], [], []]
    await emptied(world, *hands)
    await resume(world.store, "mission:m-2", actor="ana")
    assert [await tokens(world, hand) for hand in hands] == [["audit m-2 0"], [], ["audit m-2 0"], []]
    await emptied(world, *hands)
    await pause(world.store, "capability:audit", actor="ana")
    await resume(world.store, "capability:audit", actor="ana")
    assert [await tokens(world, hand) for hand in hands] == [["audit m-2 0"], [], ["audit m-2 0"], []]


async def test_whoever_looks_after_a_pause_or_a_resume_gets_the_whole_directory(world: World) -> None:
    await world.mission("m-1")
    await world.mission("m-2", account="globex")
    known = await look(world)
    ready = Ready(AgentId("w"), [Capability("index")])
    ready.update(known.entries, known.envelope.now_ms)
    await pause(world.store, "account:acme", actor="ana")
    after = await look(world, known.version)
    assert (after.full, shown(after)) == (True, {"m-1": 0, "m-2": 1})
    assert {entry.group: entry.code for entry in after.entries} == {"m-1": "PAUSED", "m-2": ""}
    ready.replace(0, after.entries, after.envelope.now_ms)
    assert list(ready.standings()) == ["m-2"]
    assert shown(await look(world, after.version)) == {}
    await resume(world.store, "account:acme", actor="ana")
    again = await look(world, after.version)
    assert (again.full, shown(again)) == (True, {"m-1": 1, "m-2": 1})
    ready.replace(0, again.entries, again.envelope.now_ms)
    assert sorted(ready.standings()) == ["m-1", "m-2"]


async def test_pruned_tombstones_do_not_lower_the_floor_that_a_pause_raised(world: World) -> None:
    world.audited = False
    await world.mission("m-1")
    known = await look(world)
    await pause(world.store, "account:nobody", actor="ana")
    await world.raw.zadd(world.key("@tomb:index"), {f"old-{number}": 1 for number in range(1024)})
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    assert await world.raw.zcard(world.key("@tomb:index")) < 1024, "some were pruned"
    assert (await look(world, known.version)).full


async def test_a_group_that_was_paused_enters_anew_and_makes_up_for_nothing(world: World) -> None:
    """Rule 3 of the scheduler, (d): not ready is not behind. What it did not use meanwhile is nobody's debt."""
    await world.mission("m-1", a_new_item("a"), a_new_item("b"))
    await world.mission("m-2", a_new_item("a"), account="globex")
    hand = await world.hand()
    await hand.do(a_submit(await hand.started("m-1")))
    before = {str(entry.group): entry.usage for entry in (await look(world)).entries}
    assert before["m-1"].served
    await pause(world.store, "account:acme", actor="ana")
    await world.pass_ms(20)
    await resume(world.store, "account:acme", actor="ana")
    after = {str(entry.group): entry.usage for entry in (await look(world)).entries}
    assert (after["m-1"].entry, after["m-1"].served) == (before["m-1"].entry + 1, False)
    assert after["m-1"].entry_ms >= before["m-1"].entry_ms + 20
    assert after["m-2"] == before["m-2"], "it was not paused"


async def test_more_groups_than_a_call_may_let_in_are_let_in_by_several(world: World) -> None:
    for number in range(300):
        await world.mission(f"m-{number:03}")
    await world.hand()
    await pause(world.store, "all", actor="ana")
    await resume(world.store, "all", actor="ana")
    entries = (await look(world)).entries
    assert len(entries) == 300
    assert {entry.usage.entry for entry in entries} == {2}
    assert sum(entry.takeable for entry in entries) == 300


@pytest.mark.parametrize("what", WHATS)
async def test_a_pause_or_a_resume_that_comes_twice_changes_nothing(what: str, world: World) -> None:
    await world.mission()
    await world.hand()
    assert await resume(world.store, what, actor="ana") is False
    assert await pause(world.store, what, actor="ana") is True
    before = await world.dump()
    await world.pass_ms(3)
    assert await pause(world.store, what, actor="ben") is False
    assert await world.dump() == before
    assert [(one.what, one.actor) for one in await pauses(world.store)] == [(what, "ana")], "the first one stands"
    assert await resume(world.store, what, actor="ben") is True
    before = await world.dump()
    assert await resume(world.store, what, actor="ana") is False
    assert await world.dump() == before
    assert await world.raw.hget(world.key("@meta"), "paused") == b"0"
    assert await world.raw.exists(world.key("@pause")) == 0


@pytest.mark.parametrize("partitions", [3])
@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.UNSENT])
async def test_a_pause_whose_reply_was_lost_is_repeated_and_then_holds_everywhere(fault: Fault, world: World) -> None:
    groups = [await world.mission(f"m-{number}") for number in range(6)]
    assert len({world.store.partition_of(group) for group in groups}) == 3
    hand = await world.hand()

    async def codes() -> set[str]:
        found = set()
        for group in groups:
            outcome = await hand.do(a_take(group), partition=world.store.partition_of(group), slots=1)
            for grant in outcome.grants:
                await hand.do(a_release(grant), partition=grant.partition)
            found.add(outcome.code)
        return found

    for command, expected in ((pause, {"PAUSED"}), (resume, {"OK"})):
        due = world.endpoint.trips + 1

        def once(trip: object, due: int = due) -> Fault:
            return fault if getattr(trip, "number", 0) == due else Fault.NONE

        world.endpoint.fault = once
        with pytest.raises(ReplyLost):
            await command(world.store, "all", actor="ana")
        await command(world.store, "all", actor="ana")
        assert await codes() == expected
        assert await paused(world.store) == (["all"] if expected == {"PAUSED"} else [])


@pytest.mark.parametrize("partitions", [3])
async def test_every_partition_has_a_pause_when_it_returns_and_a_missions_own_alone_has_its_own(world: World) -> None:
    group = await world.mission("m-1")
    await pause(world.store, "capability:index", actor="ana")
    await pause(world.store, "mission:m-1", actor="ana")
    found = [sorted(await world.raw.hkeys(world.key("@pause", partition))) for partition in range(3)]
    home = world.store.partition_of(group)
    assert found == [[b"c:index", b"g:m-1"] if partition == home else [b"c:index"] for partition in range(3)]
    assert await paused(world.store) == ["capability:index", "mission:m-1"]


async def test_the_answer_to_a_repeated_take_shows_what_may_be_taken_now(world: World) -> None:
    """Else a Worker would believe the old answer, and never ask again: no directory change would tell it to."""
    await world.mission()
    hand = await world.hand()
    await pause(world.store, "all", actor="ana")
    await hand.turn(a_take(), slots=1)
    await resume(world.store, "all", actor="ana")
    again = await hand.again()
    assert again.outcomes[0].code == "PAUSED"
    assert [(entry.takeable, entry.code) for entry in again.entries] == [(1, "")]
    other = await world.hand("worker-2")
    grant = await other.started()
    await hand.turn(a_take(), slots=1)
    await other.do(a_release(grant))
    again = await hand.again()
    assert again.outcomes[0].code == "EMPTY"
    assert [(entry.takeable, entry.code) for entry in again.entries] == [(1, "")]


async def test_who_paused_what_and_since_when_is_told_as_people_wrote_it(world: World) -> None:
    names = ("{x}:y", "a b", "✨", "all", "%")
    for name in names:
        await world.mission(name)
        await pause(world.store, f"account:{name}", actor=f"by {name}")
        await pause(world.store, f"mission:{name}", actor="ana")
    now_ms = await world.store.now_ms()
    found = await pauses(world.store)
    assert [one.what for one in found] == await paused(world.store)
    assert {one.what for one in found} == {f"{kind}:{name}" for kind in ("account", "mission") for name in names}
    assert {one.actor for one in found} == {"ana", *(f"by {name}" for name in names)}
    assert all(isinstance(one, Pause) and now_ms - 60_000 < one.since_ms <= now_ms for one in found)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("", "what: ''; use 'all', 'account:NAME'"),
        ("everything", "what: 'everything'"),
        ("group:m-1", "what: 'group:m-1'"),
        ("account", "what: 'account'"),
        ("account:", "account: 0 bytes"),
        ("mission:" + "x" * 257, "mission: 257 bytes"),
        ("capability:No Such", "'No Such' is not a capability name"),
        ("account:\ud800", "lone surrogate"),
    ],
)
async def test_what_cannot_be_paused_is_said_before_anything_is_sent(what: str, message: str, world: World) -> None:
    trips = world.endpoint.trips
    for command in (pause, resume):
        with pytest.raises(Misuse, match=message):
            await command(world.store, what, actor="ana")
    assert world.endpoint.trips == trips


async def test_a_mission_that_is_not_there_is_not_paused_but_a_pause_that_is_left_can_be_taken_back(
    world: World,
) -> None:
    with pytest.raises(Refused) as caught:
        await pause(world.store, "mission:m-9", actor="ana")
    assert caught.value.code == "GROUP_NOT_FOUND"
    assert await resume(world.store, "mission:m-9", actor="ana") is False


async def test_a_partition_holds_a_thousand_pauses_and_says_when_it_is_full(world: World) -> None:
    await world.raw.hset(world.key("@pause"), mapping={f"a:x{number}": "ana 1" for number in range(1023)})
    await world.raw.hset(world.key("@meta"), "paused", 1023)
    await pause(world.store, "account:acme", actor="ana")
    with pytest.raises(Backpressure, match="1024"):
        await pause(world.store, "all", actor="ana")
    assert await pause(world.store, "account:acme", actor="ana") is False, "what is paused already is no more"
    assert await resume(world.store, "account:x7", actor="ana") is True
    assert await pause(world.store, "all", actor="ana") is True


@pytest.mark.slow
@pytest.mark.parametrize("leg", LEGS)
async def test_where_nothing_is_paused_no_call_reads_a_pause(
    world: World, running: Callable[[str], EmbeddedServer]
) -> None:
    async with monitored(running(world.leg)) as seen:
        await world.mission(GROUP, *(a_new_item(item) for item in "abc"))
        hand = await world.hand()
        await hand.do(a_submit(await hand.started()))
        await look(world)
        await hand.turn(a_take(), token=f"index {GROUP} 0")
    calls = calls_of(seen())
    assert len(calls) >= 6
    assert [call.function for call in calls for command in call.commands if "@pause" in " ".join(command.words)] == []


async def test_of_two_programs_that_pause_or_resume_the_same_the_first_is_told_that_it_did(world: World) -> None:
    await world.mission()
    other = await Store.connect(world.endpoint, prefix="t")
    try:
        for _ in range(3):
            changed = [await pause(store, "all", actor="ana") for store in (world.store, other)]
            assert changed == [True, False]
            changed = [await resume(store, "all", actor="ana") for store in (other, world.store)]
            assert changed == [True, False]
    finally:
        await other.aclose()
    assert await code(world) == "OK"
