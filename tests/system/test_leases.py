"""Leases are kept while the work takes long, and are over within their TTL once its Worker is gone (BR-01, 07, 23)."""

from __future__ import annotations

import re

import pytest
import redis
from fleet import Desk, Fleet, chain, sleeper, until
from ledger import faults_of, history_of, runs_of
from treadle.coordinator import Mission, WorkSpec
from treadle.shared.model import EventKind

pytestmark = pytest.mark.slow

K = EventKind
MARGIN_MS = 500


async def test_br_01_an_item_longer_than_its_lease_runs_once_while_others_poll(fleet: Fleet, desk: Desk) -> None:
    for _ in range(3):
        fleet.start()
    await fleet.ready()
    work = sleeper("a", 3 * fleet.ttl_s)
    mission = await desk.submit("m", work)
    await until(lambda: fleet.lines("a"), description="it runs")
    expiries: set[int] = set()

    async def is_over() -> bool:
        expiries.add(expiry_ms(desk, mission, "a"))
        return bool((await mission.view()).ended_ms)

    await until(is_over, description="the Mission has ended", of=tuple(fleet.members))
    assert await mission.results() == {"a": 1}
    (run,) = runs_of(await desk.log("m"))
    assert (run.number, run.epoch, run.ended_by) == (1, 1, K.SUBMITTED)
    assert [line.what for line in fleet.lines("a")] == ["begin", "return", "out"]
    moved = sorted(expiry for expiry in expiries if expiry > run.granted_until_ms)
    assert len(moved) >= 3, f"the lease was granted until {run.granted_until_ms} and renewed to {moved}"
    # Renewed in time: no renewal may come after the expiry before it.
    steps = [later - sooner for sooner, later in zip([run.granted_until_ms, *moved], moved, strict=False)]
    assert max(steps) < 1000 * fleet.ttl_s
    assert faults_of(await history_of(desk, fleet, mission, [work])) == []


def expiry_ms(desk: Desk, mission: Mission, item: str) -> int:
    """When the item's lease ends as the store has it now; 0 for none."""
    with redis.Redis.from_url(desk.url) as client:
        (key,) = client.keys(f"*}}:{mission.group}:i:{item}")
        return int(client.hget(key, "lex") or 0)


async def test_br_07_a_blocked_event_loop_loses_nothing_and_is_told(fleet: Fleet, desk: Desk) -> None:
    first = fleet.start()
    await fleet.ready()
    mission = await desk.submit("m", WorkSpec(id="a", capability="fleet.block", inputs={"block_s": 3.0}))
    await until(lambda: fleet.lines("a"), description="it runs")
    fleet.start()
    assert await mission.results(timeout=30) == {"a": 1}
    log = await desk.log("m")
    (run,) = runs_of(log)
    assert (run.number, run.ended_by) == (1, K.SUBMITTED)
    assert [event.kind for event in log if event.kind in (K.LAPSED, K.PROGRESS_SAVED)] == [K.PROGRESS_SAVED]
    await until(
        lambda: first.said(r"WARNING .*event loop blocked for (2\.[5-9]|[3-9]\.\d) s while running"),
        description="the log says that the loop was blocked, and for how long",
        of=(first,),
    )


BAD = ("--handlers", "bad_handlers")


async def test_s5_a_call_that_holds_the_interpreter_lock_past_the_ttl_loses_its_lease_cleanly(
    fleet: Fleet, desk: Desk
) -> None:
    """Not even the renewal thread runs meanwhile; behind it the handler is cancelled before anything more is sent."""
    first = fleet.start("one", arguments=BAD)
    await fleet.ready()
    mission = await desk.submit("m", WorkSpec(id="a", capability="bad.lock", inputs={"for_s": 3.0}))
    await until(lambda: fleet.lines("a", "begin"), description="it runs", of=(first,))
    fleet.start("two", arguments=BAD)
    assert await mission.results(timeout=30) == {"a": 2}
    await until(lambda: fleet.lines("a", "out", worker="one"), description="its handler has unwound", of=(first,))
    (out,) = fleet.lines("a", "out", worker="one")
    assert out.more == {"is_lost": True, "why": "lease lost (WORK_LEASE_EXPIRED)"}
    first_run, second_run = runs_of(await desk.log("m"))
    assert (first_run.ended_by, second_run.number) == (K.LAPSED, 2)
    assert not await desk.of_kind("m", K.FAILED), "no failure is counted"
    await until(
        lambda: first.said("blocked for .*nothing is started or sent before its leases are read again"),
        description="it says what it did",
        of=(first,),
    )
    await desk.submit("n", WorkSpec(id="b", capability="bad.lock", inputs={"for_s": 0.0}))
    other = next(member for member in fleet.members if member is not first)
    other.kill()
    await until(lambda: fleet.lines("b", "begin", worker="one"), description="it works on", of=(first,))


async def test_s5_a_stopped_worker_acts_on_nothing_before_it_has_read_its_leases_again(
    fleet: Fleet, desk: Desk
) -> None:
    """What waits for it when it goes on (SIGCONT) is not started on what it knew before."""
    stopped = fleet.start("one", slots=1)
    await fleet.ready()
    await desk.submit("m", chain("a", steps=1_000, step_s=0.05))
    await until(lambda: len(fleet.lines("a", "step")) > 3, description="it is in the middle", of=(stopped,))
    stopped.pause()
    later = await desk.submit("n", sleeper("b", 0.0))
    lease_over = expiry_ms(desk, desk.client.mission("m"), "a")

    async def is_past() -> bool:
        return await desk.store.now_ms() > lease_over + 500

    await until(is_past, description="its lease is over")
    seq = len(await desk.log("m"))
    stopped.resume()
    await until(
        lambda: stopped.said("nothing is started or sent before its leases"), description="it is told", of=(stopped,)
    )
    await until(lambda: stopped.said("m/a: lease lost"), description="and loses the run", of=(stopped,))
    await later.results(timeout=20)
    behind = (await desk.log("m"))[seq:]
    assert behind[0].kind is K.LAPSED, "nothing of the old run was accepted, nor tried"
    text = stopped.log_text()
    assert text.index("nothing is started or sent") < text.index("n/b: taken and started")
    assert text.index("m/a: lease lost") < text.index("n/b: taken and started")


async def test_a_handler_that_shields_itself_is_refused_at_its_next_write_with_the_reason(
    fleet: Fleet, desk: Desk
) -> None:
    worker = fleet.start("one", arguments=BAD)
    await fleet.ready()
    mission = await desk.submit("m", WorkSpec(id="a", capability="bad.shielded"))

    async def has_saved() -> bool:
        return bool(await desk.of_kind("m", K.PROGRESS_SAVED))

    await until(has_saved, description="it saves", of=(worker,))
    await mission.cancel()
    await until(lambda: fleet.lines("a", "refused"), description="its next write is refused", of=(worker,))
    (refused,) = fleet.lines("a", "refused")
    assert refused.more["is_lost"] is True
    assert refused.more["why"] in refused.more["said"]
    assert re.fullmatch(r"lease lost \(\S+\)", refused.more["why"])
    assert not await desk.of_kind("m", K.FAILED)


async def test_br_23_recovery_waits_for_the_lease_and_for_nothing_else(fleet: Fleet, desk: Desk) -> None:
    """An item of six hours, with every other limit far away: what counts is the TTL."""
    victim = fleet.start("one", slots=1)
    other = fleet.start("two", slots=1)
    await fleet.ready()
    await desk.submit("m", sleeper("a", 6 * 3_600.0, start_by_s=86_400))
    await until(lambda: fleet.lines("a"), description="it runs")
    if fleet.lines("a")[0].worker != victim.name:
        victim, other = other, victim
    killed_ms = await desk.store.now_ms()
    victim.kill()
    await until(lambda: fleet.lines("a", "begin", worker=other.name), description="it runs elsewhere", of=(other,))
    first, second = runs_of(await desk.log("m"))
    assert (first.agent, second.agent) == (victim.name, other.name)
    assert first.ended_ms is not None
    assert second.started_ms - first.ended_ms <= MARGIN_MS
    assert second.started_ms - killed_ms <= 1000 * fleet.ttl_s + MARGIN_MS


async def test_what_lapsed_while_nobody_was_there_is_taken_by_the_first_that_comes(fleet: Fleet, desk: Desk) -> None:
    work = [chain("a", steps=40, step_s=0.05, again_s=0.005), chain("b", steps=3, step_s=0.05, after=("a",))]
    victim = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: len(fleet.lines("a", "step")) > 3, description="it is in the middle")
    victim.kill()
    expiry = expiry_ms(desk, mission, "a")

    async def is_past() -> bool:
        return await desk.store.now_ms() > expiry

    await until(is_past, description="the lease is over")
    assert await desk.of_kind("m", K.LAPSED) == [], "nobody is there to see it"
    other = fleet.start("two")
    await fleet.ready(other)
    opened_ms = await desk.store.now_ms()
    assert faults_of(await history_of(desk, fleet, mission, work)) == []
    second = runs_of(await desk.log("m"))[1]
    assert second.agent == "two"
    assert second.started_ms - opened_ms <= MARGIN_MS
    steps = [line.more["number"] for line in fleet.lines("a", "step", worker="two")]
    saved = await desk.of_kind("m", K.PROGRESS_SAVED, "a")
    assert steps[0] == int(next(event for event in reversed(saved) if event.seq < second.seq).get("number")) + 1
