"""The server is not the one a session was opened on (design.md 3.11): found by whoever calls, resolved by adopting it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import GROUP, a_new_item, a_new_mission
from store.world import PREFIX, TTL_MS, World, a_submit
from treadle.shared.errors import ReplyLost, StoreChanged
from treadle.shared.store import Store
from treadle.shared.testing.store import FakeEndpoint


@pytest.fixture
def leg() -> str:
    """Only here can a server change its replid without being restarted; `test_store_bad_servers` restarts real ones."""
    return "fakeredis"


@pytest.fixture
def partitions() -> int:
    return 3


@pytest.fixture
def change(world: World) -> Callable[[str], None]:
    """Make it another server, as a failover does: connections are cut, and the next ones reach the other."""

    def to(replid: str) -> None:
        inner = world.endpoint.inner
        assert isinstance(inner, FakeEndpoint)
        inner.replid = replid
        world.endpoint.cut()

    return to


async def incarnations(world: World) -> list[int]:
    return [int(await world.raw.hget(world.key("@meta", partition), "incarnation")) for partition in range(3)]


async def test_no_call_reaches_a_server_its_session_was_not_opened_on(
    world: World, change: Callable[[str], None]
) -> None:
    await world.mission()
    hand = await world.hand()
    before = await world.dump()
    change("other")
    with pytest.raises(ReplyLost):
        await hand.turn(partition=0)
    for _ in range(3):
        with pytest.raises(StoreChanged):
            await hand.again()
    with pytest.raises(StoreChanged):
        await world.store.create(a_new_mission("m-2"))
    with pytest.raises(StoreChanged):
        await world.authority.tick(0)
    with pytest.raises(StoreChanged):
        await world.store.mission(a_new_mission().group)
    assert await world.dump() == before
    await world.store.adopt()


async def test_after_adopting_every_partition_is_bound_anew_and_old_sessions_are_refused(
    world: World, change: Callable[[str], None]
) -> None:
    group = await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    partition = world.store.partition_of(group)
    old = await world.hand(nonce="old")
    grant = await old.started()
    before = await incarnations(world)
    change("other")
    lineage = await world.store.adopt()
    assert (lineage.replid, world.store.replid) == ("other", "other")
    after = await incarnations(world)
    assert all(new > past for new, past in zip(after, before, strict=True))
    with pytest.raises(StoreChanged, match="the call names fakeredis: open a new session"):
        await old.turn(partition=partition)
    with pytest.raises(StoreChanged):
        await old.renew(grant)
    await old.close()
    new = await world.hand(nonce="new")
    (requeued,) = new.requeued
    await world.pass_ms(TTL_MS)  # the quarantine
    again = await new.restarted(requeued)
    assert again.lease is not None
    assert grant.lease is not None
    assert (again.lease.incarnation, again.lease.replid) == (after[partition], "other")
    assert again.lease.token > grant.lease.token
    assert (await new.do(a_submit(again), partition=partition)).code == "OK"


async def test_of_many_programs_that_adopt_at_once_one_binds_and_the_others_agree(
    world: World, change: Callable[[str], None]
) -> None:
    others = [await Store.connect(world.endpoint, prefix=PREFIX) for _ in range(3)]
    change("other")
    for store in others:
        with pytest.raises(ReplyLost):
            await store.now_ms()
    await world.store.adopt()
    bound = await incarnations(world)
    for store in others:
        with pytest.raises(StoreChanged):
            await store.now_ms()
        assert (await store.adopt()).replid == "other"
        await store.aclose()
    assert await incarnations(world) == bound


async def test_the_incarnation_rises_even_where_the_clock_went_back(
    world: World, change: Callable[[str], None]
) -> None:
    before = await incarnations(world)
    assert world.clock is not None
    world.clock.now_ms -= 86_400_000
    change("other")
    await world.store.adopt()
    assert await incarnations(world) == [one + 1 for one in before]


async def test_coming_back_to_the_first_server_is_a_change_as_well(world: World, change: Callable[[str], None]) -> None:
    hand = await world.hand()
    seen = [await incarnations(world)]
    for replid in ("other", "fakeredis"):
        change(replid)
        await world.store.adopt()
        seen.append(await incarnations(world))
    assert seen == sorted(seen)
    assert len({tuple(one) for one in seen}) == 3
    # Its replid is the first one again, so the session's calls pass: nothing was lost, and its epoch is still current.
    assert (await hand.turn()).outcomes == ()


async def test_a_partition_that_was_not_bound_yet_is_bound_by_the_next_program(world: World) -> None:
    """A program that died while it opened a new store left some partitions without a record."""
    await world.raw.delete(world.key("@meta", 1))
    with pytest.raises(StoreChanged, match="opened on server none"):
        await world.authority.tick(1)
    again = await Store.connect(world.endpoint, prefix=PREFIX)
    await again.aclose()
    assert (await world.authority.tick(1))[1] == 0
