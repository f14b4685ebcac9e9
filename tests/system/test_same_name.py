"""Two runtimes of one Agent: the newest wins, the older one is told, stops its handlers and ends with status 4."""

from __future__ import annotations

import signal

import pytest
from fleet import Desk, Fleet, chain, sleeper, until
from ledger import faults_of, history_of, runs_apart, runs_of
from treadle.shared.model import EventKind

pytestmark = pytest.mark.slow

K = EventKind
REPLACED = 4


async def test_the_newest_of_a_name_wins_and_takes_the_work_over_at_once(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 2.0  # nobody waits for it
    work = [chain("a", steps=60, step_s=0.1, again_s=0.005), sleeper("b", 60.0, again_s=0.1)]
    older = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: len(fleet.lines("a", "step")) > 4 and fleet.lines("b"), description="it works")
    newer = fleet.start("one")
    await fleet.ready(newer)
    assert newer.said("session 2 is open")
    assert older.exit_status(within_s=3) == REPLACED, older.tail()
    assert older.said("agent one: replaced by a newer process of the same name; give each Worker its own --name")
    for item in ("a", "b"):
        cancelled = fleet.lines(item, "cancelled")
        assert [(line.pid, line.more["is_lost"]) for line in cancelled] == [(older.child.pid, True)]
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    for item in ("a", "b"):
        first, second = [run for run in runs_of(history.events) if run.item == item]
        assert (first.by, second.by, first.ended_by) == ("one@1", "one@2", K.REQUEUED)
        assert (first.epoch, second.epoch) == (1, 1), "the Agent still owns it: only its lease is another"
    assert not await desk.of_kind("m", K.LAPSED)
    assert newer.child.poll() is None


async def test_br15_one_that_drains_is_fenced_by_its_successor_and_all_it_had_is_done_once_more(
    fleet: Fleet, desk: Desk
) -> None:
    """A new process of the same name comes while the old one, told to stop, still runs two items; it has room for one."""
    fleet.ttl_s = 2.0
    work = [sleeper("a", 60.0, again_s=0.1), sleeper("b", 60.0, again_s=0.1)]
    older = fleet.start("one", grace_s=50.0)
    await fleet.ready()
    mission = await desk.submit("m", *work)
    await until(lambda: fleet.lines("a") and fleet.lines("b"), description="both run")
    older.signal(signal.SIGTERM)
    newer = fleet.start("one", slots=1)
    await fleet.ready(newer)
    assert older.exit_status(within_s=4) == REPLACED, older.tail()
    history = await history_of(desk, fleet, mission, work)
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    assert sorted(event.item or "" for event in await desk.of_kind("m", K.REQUEUED)) == ["a", "b"], "each once"
    assert [run.by for run in runs_of(history.events)] == ["one@1", "one@1", "one@2", "one@2"]
    assert not await desk.of_kind("m", K.LAPSED)


async def test_an_older_runtime_that_was_stopped_meanwhile_writes_nothing_more(fleet: Fleet, desk: Desk) -> None:
    work = chain("a", steps=30, step_s=0.05)
    older = fleet.start("one")
    await fleet.ready()
    mission = await desk.submit("m", work)
    await until(lambda: len(fleet.lines("a", "step")) > 4, description="it works")
    older.pause()
    newer = fleet.start("one")
    await fleet.ready(newer)
    older.resume()
    assert older.exit_status(within_s=3) == REPLACED, older.tail()
    history = await history_of(desk, fleet, mission, work=[work])
    assert faults_of(history, but=[runs_apart]) == [], fleet.tell()
    requeued = next(event.seq for event in history.events if event.kind is K.REQUEUED)
    assert [event for event in history.events if event.by == "one@1" and event.seq > requeued] == []


async def test_a_runtime_whose_successor_has_come_and_gone_does_not_come_back(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 0.5
    older = fleet.start("one")
    await fleet.ready()
    older.pause()
    newer = fleet.start("one")
    await fleet.ready(newer)
    newer.signal(signal.SIGTERM)
    assert newer.exit_status(within_s=5) == 0
    older.resume()
    assert older.exit_status(within_s=5) == REPLACED, older.tail()
    assert older.said("agent one: replaced by a newer process of the same name; give each Worker its own --name")
    assert not older.said("session 3 is open")
    mission = await desk.submit("m", chain("a", steps=1, step_s=0.01))
    await fleet.ready(fleet.start("two"))
    await mission.results(timeout=30)
    assert {line.worker for line in fleet.lines("a")} == {"two"}


async def test_an_idle_older_runtime_is_told_within_two_lease_ttls(fleet: Fleet, desk: Desk) -> None:
    fleet.ttl_s = 0.5
    older = fleet.start("one")
    await fleet.ready()
    newer = fleet.start("one")
    await fleet.ready(newer)
    assert older.exit_status(within_s=2 * fleet.ttl_s + 1) == REPLACED, older.tail()
    mission = await desk.submit("m", chain("a", steps=1, step_s=0.01))
    await mission.results(timeout=30)
    newer.signal(signal.SIGTERM)
    assert newer.exit_status(within_s=2) == 0


async def test_br15_distinct_names_take_nothing_from_each_other(fleet: Fleet, desk: Desk) -> None:
    fleet.start("one")
    await fleet.ready()
    work = chain("a", steps=20, step_s=0.1)
    mission = await desk.submit("m", work)
    await until(lambda: fleet.lines("a", "step"), description="it works")
    await fleet.ready(fleet.start("two"))
    history = await history_of(desk, fleet, mission, [work])
    assert faults_of(history) == []
    assert {run.agent for run in runs_of(history.events)} == {"one"}
