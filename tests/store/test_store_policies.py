"""The policy in the store: set by compare-and-set, noted in every partition, each change recorded with who."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store.world import PREFIX, World
from treadle.shared.errors import Corrupt, Misuse, Refused, ReplyLost
from treadle.shared.policy import DEFAULT_POLICY
from treadle.shared.policy_file import parse
from treadle.shared.store import keys, policies
from treadle.shared.store.authority import Wake
from treadle.shared.testing.faults import Fault, Trip, no_fault

URGENT = "[classes.urgent]\nweight = 8\n"


@pytest.fixture
def partitions() -> int:
    return 3


async def noted(world: World) -> list[bytes | None]:
    store = world.store
    return [await world.raw.hget(keys.meta(store.base(p)), "policy") for p in range(store.partitions)]


async def test_without_one_the_default_policy_holds(world: World) -> None:
    assert await policies.read(world.store) is None
    assert await policies.known(world.store) == DEFAULT_POLICY
    assert await policies.version(world.store) == 0
    assert await policies.history(world.store) == []
    assert await noted(world) == [None] * 3


async def test_what_was_applied_is_what_every_partition_knows_of(world: World) -> None:
    assert await policies.apply(world.store, URGENT, actor="Ana Ng", note="more for urgent") == (1, True)
    assert await policies.known(world.store) == replace(parse(URGENT, name="x"), version=1)
    assert await noted(world) == [b"1"] * 3
    assert await policies.apply(world.store, "", actor="ben") == (2, True)
    standing = await policies.read(world.store)
    assert standing is not None
    assert (standing.text, standing.change.version, standing.change.actor, standing.change.note) == ("", 2, "ben", "")
    assert await noted(world) == [b"2"] * 3


async def test_each_change_is_recorded_with_who_and_why(world: World) -> None:
    before_ms = await world.store.now_ms()
    await policies.apply(world.store, URGENT, actor="Ana Ng", note="more for urgent")
    await policies.apply(world.store, "", actor="ben")
    last, first = await policies.history(world.store)
    assert (first.version, first.actor, first.note) == (1, "Ana Ng", "more for urgent")
    assert (last.version, last.actor, last.note) == (2, "ben", "")
    assert first.digest == policies.digest_of(URGENT)
    assert before_ms <= first.at_ms <= last.at_ms


async def test_the_text_that_stands_is_not_set_again(world: World) -> None:
    await policies.apply(world.store, URGENT, actor="ana")
    before = await world.dump()
    assert await policies.apply(world.store, URGENT, actor="ben") == (1, False)
    assert await world.dump() == before


async def test_one_that_somebody_changed_meanwhile_is_not_overwritten(world: World) -> None:
    await policies.apply(world.store, URGENT, actor="ana", expected=0)
    before = await world.dump()
    with pytest.raises(Refused) as refused:
        await policies.apply(world.store, "", actor="ben", expected=0)
    assert (refused.value.code, refused.value.details["version"]) == ("REVISION_CONFLICT", "1")
    assert await world.dump() == before


async def test_a_text_that_is_no_policy_reaches_no_store(world: World) -> None:
    with pytest.raises(Misuse, match=r"policy:1: classes\.a\.weight: -1 is not allowed"):
        await policies.apply(world.store, "classes.a.weight = -1", actor="ana")
    assert await policies.read(world.store) is None


async def test_a_lost_reply_raises_the_version_once(world: World) -> None:
    def lose(trip: Trip) -> Fault:
        return Fault.REPLY_LOST if "set_policy" in trip.functions else Fault.NONE

    world.endpoint.fault = lose
    with pytest.raises(ReplyLost):
        await policies.apply(world.store, URGENT, actor="ana", expected=0)
    world.endpoint.fault = no_fault
    assert await noted(world) == [None] * 3
    assert await policies.apply(world.store, URGENT, actor="ana", expected=0) == (1, True)
    assert len(await policies.history(world.store)) == 1
    assert await noted(world) == [b"1"] * 3


async def test_one_that_was_killed_before_all_had_noted_it_is_made_up_for(world: World) -> None:
    await policies.apply(world.store, URGENT, actor="ana")
    await world.raw.hdel(keys.meta(world.store.base(1)), "policy")
    await policies.note_everywhere(world.store, await policies.version(world.store))
    assert await noted(world) == [b"1"] * 3


async def test_a_late_note_never_takes_the_version_back(world: World) -> None:
    await policies.note_everywhere(world.store, 7)
    await policies.note_everywhere(world.store, 5)
    assert await noted(world) == [b"7"] * 3


async def test_a_worker_that_sleeps_is_rung_once_all_know(world: World) -> None:
    hand = await world.hand()
    await policies.apply(world.store, URGENT, actor="ana")
    woke = await hand.authority.wait(hand.session, tokens=False, timeout_s=5)
    assert woke == Wake(0, None, None)
    assert await noted(world) == [b"1"] * 3
    assert await hand.authority.wait(hand.session, tokens=False, timeout_s=0.1) is None


async def test_the_last_hundred_changes_are_kept(world: World) -> None:
    for number in range(103):
        await policies.apply(world.store, f"# {number}", actor="ana")
    assert [change.version for change in await policies.history(world.store)] == list(range(103, 3, -1))


async def test_what_a_newer_treadle_wrote_is_said_not_guessed(world: World) -> None:
    await policies.apply(world.store, URGENT, actor="ana")
    await world.raw.hset(keys.policy(PREFIX), "text", "[federation]\n")
    with pytest.raises(Misuse, match='the policy of the store:1: "federation" is no table'):
        await policies.known(world.store)


async def test_a_record_that_was_altered_is_said(world: World) -> None:
    await policies.apply(world.store, URGENT, actor="ana")
    await world.raw.hset(keys.policy(PREFIX), "1", "yesterday")
    with pytest.raises(Corrupt, match="record of version 1"):
        await policies.read(world.store)
