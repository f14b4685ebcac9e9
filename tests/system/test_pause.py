"""A Worker stopped (SIGSTOP) past its lease's TTL is relieved in time, and told; a shorter stop costs nothing."""

from __future__ import annotations

import anyio
import pytest
import redis
from fleet import Desk, Fleet, Member, chain, sleeper, until
from ledger import faults_of, history_of, runs_apart, runs_of
from treadle.coordinator import Mission, WorkSpec
from treadle.shared.model import AgentId, Capability, EventKind
from treadle.shared.store import (
    Authority,
    Fail,
    Held,
    Operation,
    Release,
    RenewalDoor,
    Save,
    Start,
    Submit,
    Take,
    Turn,
    TurnReply,
    Yield,
)
from treadle.shared.store.embedded import EmbeddedServer

pytestmark = pytest.mark.slow

TAKEOVER_MS = 500
K = EventKind


async def held_by(fleet: Fleet, item: str, *, saves: int) -> Member:
    """The Worker in the middle of `item`, once it has saved so often."""
    await until(
        lambda: len(fleet.lines(item, "step")) > saves,
        description=f"{item} was saved {saves} times",
        of=tuple(fleet.members),
    )
    worker = fleet.lines(item)[-1].worker
    return next(member for member in fleet.members if member.name == worker)


async def check(desk: Desk, fleet: Fleet, mission: Mission, *work: WorkSpec) -> None:
    """That the Mission's history is a good one. A stopped process may go on for a moment after another has begun."""
    assert faults_of(await history_of(desk, fleet, mission, work), but=[runs_apart]) == [], fleet.tell()


def group_keys(server: EmbeddedServer, mission: Mission) -> dict[bytes, bytes]:
    """Every key of the Mission's Group, byte for byte."""
    with redis.Redis.from_url(server.url) as client:
        keys = [key for key in client.scan_iter(match=f"*}}:{mission.group}:*")]
        return {key: client.dump(key) for key in sorted(keys)}


@pytest.mark.parametrize("moment", ["while the other runs it", "after the other has ended it"])
async def test_a_worker_stopped_past_the_ttl_is_relieved_in_time_and_told_and_goes_on(
    moment: str, fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    again_s = 0.05 if moment == "while the other runs it" else 0.005
    work = chain("a", steps=45, step_s=0.05, again_s=again_s)
    fleet.start("one", slots=1)
    fleet.start("two", slots=1)
    await fleet.ready()
    mission = await desk.submit("m", work)
    stopped = await held_by(fleet, "a", saves=3)
    other = next(member for member in fleet.members if member is not stopped)
    stopped.pause()

    async def is_taken_over() -> bool:
        return len(await desk.of_kind("m", K.STARTED)) == 2

    await until(is_taken_over, description="the item starts elsewhere", of=(other,))
    first, second = runs_of(await desk.log("m"))
    assert (first.agent, second.agent) == (stopped.name, other.name)
    assert (first.ended_by, second.number, second.epoch) == (K.LAPSED, 2, 2)
    assert first.ended_ms is not None
    # Expiry by the store's own clock, renewals included: what is left is how soon somebody saw it.
    assert 0 <= second.started_ms - first.ended_ms <= TAKEOVER_MS

    if moment == "after the other has ended it":
        await mission.results(timeout=20)
        before = group_keys(server, mission)
    else:
        before = {}
    seq = len(await desk.log("m"))
    stopped.resume()
    await until(lambda: stopped.said("m/a: lease lost"), description="it is told", of=(stopped,))
    await until(
        lambda: fleet.lines("a", "out", worker=stopped.name), description="its handler has unwound", of=(stopped,)
    )
    cancelled = fleet.lines("a", "cancelled", worker=stopped.name)
    assert [line.more["is_lost"] for line in cancelled] == [True]
    await mission.results(timeout=20)
    late = [event for event in (await desk.log("m"))[seq:] if event.by.startswith(f"{stopped.name}@")]
    assert late == [], "the store took something from a Worker whose lease was over"
    if before:
        assert group_keys(server, mission) == before
    await check(desk, fleet, mission, work)

    other.kill()
    again = await desk.submit("n", chain("b", steps=2, step_s=0.01))
    await again.results(timeout=30)
    assert {line.worker for line in fleet.lines("b")} == {stopped.name}
    assert stopped.child.poll() is None


@pytest.mark.parametrize("moment", ["while the other runs it", "after the other has ended it"])
async def test_every_late_write_of_a_relieved_worker_is_refused_and_changes_nothing(
    moment: str, fleet: Fleet, desk: Desk, server: EmbeddedServer
) -> None:
    """The zombie by hand: it renews nothing, and writes all that a Worker can once its item is another's."""
    authority = Authority(desk.store)
    capability = Capability("fleet.sleep")
    session, _ = await authority.open_session(AgentId("zombie"), [capability], lease_ttl_ms=1000, nonce="n")
    mission = await desk.submit("m", sleeper("a", 0.0, again_s=1.0))
    partition = desk.store.partition_of(mission.group)
    take = Take(mission.group, capability, most=1, offset=0)
    (taken,) = await authority.turns(session, [Turn(partition, 1, (take,), slots=1)])
    assert isinstance(taken, TurnReply)
    (grant,) = taken.outcomes[0].grants
    assert grant.lease is not None
    fleet.start("other")
    await until(lambda: fleet.lines("a", "begin"), description="the item runs elsewhere", of=tuple(fleet.members))
    if moment == "after the other has ended it":
        await mission.results(timeout=30)
    before = group_keys(server, mission)
    target = (mission.group, grant.item, grant.ownership_epoch, grant.lease.lease_id)
    late: tuple[Operation, ...] = (
        Save(*target, 1, "d", b"late"),
        Submit(*target, "d", b"late"),
        Fail(*target, "d", b"late"),
        Yield(*target, 1, "d", b"late", keep=False),
        Yield(*target, 1, "d", b"late", keep=True),
        Release(*target[:3], "late"),
        Start(*target[:3], capability),
    )
    (refused,) = await authority.turns(session, [Turn(partition, 2, late)])
    door = RenewalDoor(desk.store, session)
    _, codes = door.renew(partition, [Held(partition, *target)])
    door.close()
    assert isinstance(refused, TurnReply)
    assert {outcome.code for outcome in refused.outcomes} | set(codes) == {"WORK_STALE_OWNERSHIP"}
    if moment == "after the other has ended it":
        assert group_keys(server, mission) == before
    assert [event for event in await desk.log("m") if event.by == "zombie@1" and event.seq > grant.seq + 1] == []
    assert await mission.results(timeout=30) == {"a": 2}
    await authority.aclose()


async def test_a_worker_stopped_past_its_sessions_end_opens_a_new_one_and_goes_on(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 0.5  # a session that is silent for ten lease TTLs is ended
    work = chain("a", steps=40, step_s=0.05, again_s=0.005)
    stopped = fleet.start("one", slots=1)
    await fleet.ready()
    mission = await desk.submit("m", work)
    await held_by(fleet, "a", saves=2)
    stopped.pause()
    other = fleet.start("two", slots=1)
    await mission.results(timeout=20)

    async def is_forgotten() -> bool:
        return not await _knows_session(desk, "one")

    await until(is_forgotten, description="the silent session was ended", timeout_s=10, of=(other,))
    stopped.resume()
    await until(lambda: stopped.said("session 2 is open"), description="it opened a new session", of=(stopped,))
    assert fleet.lines("a", "cancelled", worker="one")
    other.kill()
    again = await desk.submit("n", chain("b", steps=2, step_s=0.01))
    await again.results(timeout=30)
    await check(desk, fleet, mission, work)


async def _knows_session(desk: Desk, agent: str) -> bool:
    with redis.Redis.from_url(desk.url) as client:
        return any(client.hexists(key, agent) for key in client.scan_iter(match="*:@sessions"))


async def test_a_stop_shorter_than_the_ttl_restarts_nothing(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 2.0
    fleet.start("one")
    fleet.start("two")
    await fleet.ready()
    work = [chain("a", steps=20, step_s=0.05), sleeper("b", 1.5)]
    mission = await desk.submit("m", *work)
    await held_by(fleet, "a", saves=3)
    await until(lambda: fleet.lines("b"), description="b runs")
    for member in fleet.members:
        member.pause()
    # A lease is renewed before it is 3/8 TTL old: 5/8 of it, 1.25 s, are left whenever the stop comes.
    await anyio.sleep(0.8)
    for member in fleet.members:
        member.resume()
    assert await mission.results(timeout=20)
    assert [(run.number, run.ended_by) for run in runs_of(await desk.log("m"))] == [(1, K.SUBMITTED)] * 2
    await check(desk, fleet, mission, *work)
    assert not any(member.said("lease lost") for member in fleet.members)
