"""The steps of a preemption as one session takes them: each answer of the store leads to the next one, or lets go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from builders import AGENT, CAPABILITY, NOW_MS, SESSION
from treadle.shared.model import (
    STARTS_EPOCH_MS,
    DirectoryEntry,
    Event,
    EventKind,
    Grant,
    GroupId,
    ItemId,
    Lease,
    LeaseId,
    Usage,
)
from treadle.shared.policy import Policy, Preemption
from treadle.shared.store import AskYield, FreeSlot, Operation, Outcome, ReserveSlot, Take, Turn
from treadle.worker.core.tree import Ready
from treadle.worker.handlers import Handler
from treadle.worker.lanes import Lanes, Takes
from treadle.worker.preempting import HOLD_OFF_MS, Preempting
from treadle.worker.slots.run import Run, Ticket

BUSY, NEW, OTHER = GroupId("busy"), GroupId("new"), GroupId("other")
HOUR_MS = 3_600_000
AT_MS = NOW_MS + HOUR_MS
OK = Outcome("OK")


async def _work(context: Any, inputs: Any) -> None:
    del context, inputs


def an_entry(
    group: GroupId, takeable: int, *, running: int = 0, partition: int = 1, head: str = "1:a"
) -> DirectoryEntry:
    starts_ms = running * (NOW_MS - STARTS_EPOCH_MS)
    usage = Usage(running=running, starts_ms=starts_ms, entry=1, entry_ms=NOW_MS, served=running > 0)
    listed = head if takeable else ""
    return DirectoryEntry(partition, group, CAPABILITY, takeable, listed, "acme", 1.0, "standard", usage)


class Bench:
    """A session's preemption an hour after a busy Group has begun to run and others to wait."""

    def __init__(self, **terms: Any) -> None:
        self.ready = Ready(AGENT, (CAPABILITY,))
        self.ready.govern(Policy(preemption=Preemption(**terms)), NOW_MS)
        self.lanes: Lanes[Ticket] = Lanes(2)
        self.preempting = Preempting(self.ready, self.lanes)
        self.runs: dict[LeaseId, Run] = {}
        self.ready.pin(BUSY)
        self.ready.update([an_entry(BUSY, 0, running=4, partition=0)], NOW_MS)

    def run(self, number: int = 1, *, lasted_s: float = 60) -> Run:
        lease = Lease(LeaseId(f"l-{number}"), BUSY, ItemId(f"i{number}"), AGENT, SESSION, 1, 1, NOW_MS, 1, "r")
        grant = Grant(0, BUSY, lease.item, CAPABILITY, 1, 1, NOW_MS, 1, lease, 0, (), b"\x80", b"")
        run = Run(grant, lease, Handler(CAPABILITY, "1.0.0", _work), None)  # type: ignore[arg-type]  # it asks nothing
        run.began_s -= lasted_s
        self.runs[lease.lease_id] = run
        return run

    def waits(self, group: GroupId = NEW, takeable: int = 1, **of: Any) -> None:
        self.ready.update([an_entry(group, takeable, **of)], NOW_MS)

    def consider(self, *, later_ms: int = 0) -> list[Operation]:
        self.preempting.consider(self.runs.values(), anyio.current_time(), AT_MS + later_ms)
        return self.sent()

    def sent(self) -> list[Operation]:
        """What is asked of the store now; it is taken as on its way."""
        turns = self.lanes.freeze({}, {})
        for turn in turns:
            self.lanes.answered(turn)
        return [operation for turn in turns for operation in turn.operations]

    def answer(self, operation: Operation, outcome: Outcome = OK) -> list[Operation]:
        assert isinstance(operation, ReserveSlot | AskYield)
        partition = 1 if isinstance(operation, ReserveSlot) else 0
        self.preempting.answered(partition, operation, outcome, AT_MS)
        return self.sent()

    def asked(self, run: Run) -> AskYield:
        """A request that is through."""
        (reserve,) = self.consider()
        (ask,) = self.answer(reserve)
        assert self.answer(ask) == []
        assert isinstance(ask, AskYield)
        assert ask.lease == run.lease.lease_id
        return ask

    def favour(self, takes: Takes, free: int = 1) -> Takes:
        return self.preempting.favour(takes, free, AT_MS)


async def test_a_slot_is_reserved_then_the_run_is_asked_and_only_then_it_yields() -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    (reserve,) = bench.consider()
    assert reserve == ReserveSlot(NEW, CAPABILITY, run.lease.lease_id, 64, 90_000)
    assert bench.consider() == [], "one request at a time for what waits"
    (ask,) = bench.answer(reserve)
    assert ask == AskYield(BUSY, run.grant.item, 1, run.lease.lease_id, 60_000)
    assert not run.wants_yield
    assert bench.answer(ask) == []
    assert run.wants_yield
    assert bench.consider(later_ms=HOUR_MS) == [], "a run is asked once"


@pytest.mark.parametrize("why", ["off", "too young", "nothing waits", "a wider head", "asked to stop", "over"])
async def test_nobody_is_asked_without_a_reason(why: str) -> None:
    bench = Bench(enabled=why != "off")
    run = bench.run(lasted_s=29 if why == "too young" else 31)
    if why != "nothing waits":
        bench.waits(head="1:a*2" if why == "a wider head" else "1:a")
    run.wants_yield = why == "asked to stop"
    run.has_returned = why == "over"
    assert bench.consider() == []


async def test_of_what_waits_each_gets_a_run_of_its_own() -> None:
    bench = Bench()
    bench.run(1), bench.run(2), bench.run(3)
    bench.waits(NEW)
    bench.waits(OTHER)
    found = [operation for _ in range(4) for operation in bench.consider()]
    assert {one.group for one in found if isinstance(one, ReserveSlot)} == {NEW, OTHER}
    assert len({one.lease for one in found if isinstance(one, ReserveSlot)}) == len(found) == 2


@pytest.mark.parametrize("code", ["EMPTY", "RESERVED", "PAUSED"])
async def test_a_group_that_may_wait_for_no_more_is_passed_over_for_a_while(code: str) -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    (reserve,) = bench.consider()
    assert bench.answer(reserve, Outcome(code)) == []
    assert not run.wants_yield
    assert bench.consider(later_ms=HOLD_OFF_MS - 1) == []
    assert len(bench.consider(later_ms=HOLD_OFF_MS)) == 1


async def test_for_what_lacks_a_resource_nobody_is_asked_and_the_next_one_is_served() -> None:
    bench = Bench()
    bench.run()
    bench.waits(head="1:a&gpu=1")
    assert bench.consider() == [], "a slot is of no use to it"
    bench.waits(OTHER, head="1:b")
    (reserve,) = bench.consider(later_ms=1)
    assert isinstance(reserve, ReserveSlot)
    assert reserve.group == OTHER
    bench = Bench()
    bench.run()
    bench.waits(head="1:a&gpu=1")
    bench.preempting.consider(bench.runs.values(), anyio.current_time(), AT_MS, (("gpu", 1),))
    assert [type(one) for one in bench.sent()] == [ReserveSlot], "with what it needs it is served as any other"


async def test_a_request_that_is_refused_frees_what_was_reserved_for_it() -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    (reserve,) = bench.consider()
    (ask,) = bench.answer(reserve)
    assert bench.answer(ask, Outcome("WORK_LEASE_EXPIRED")) == [FreeSlot(NEW, run.lease.lease_id)]
    assert not run.wants_yield


async def test_a_run_that_ends_while_its_slot_is_reserved_leaves_no_reservation() -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    (reserve,) = bench.consider()
    bench.preempting.ended(run)
    assert bench.answer(reserve) == [FreeSlot(NEW, run.lease.lease_id)]
    assert bench.favour({}) == {}


async def test_a_freed_slot_is_for_who_waited_before_all_others_and_once() -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    bench.asked(run)
    bench.preempting.ended(run)
    bench.preempting.ended(run)
    planned: Takes = {0: ([Take(OTHER, CAPABILITY, 1, 0)], 1)}
    takes = bench.favour(planned)
    ((partition, (listed, width)),) = takes.items()
    assert (partition, width) == (1, 1)
    assert [(take.group, take.most) for take in listed] == [(NEW, 1)]
    assert bench.sent() == [FreeSlot(NEW, run.lease.lease_id)]
    assert bench.favour(planned) is planned


async def test_what_is_planned_besides_keeps_what_is_left_of_the_free_slots() -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    bench.asked(run)
    bench.preempting.ended(run)
    other, third = Take(OTHER, CAPABILITY, 2, 0), Take(GroupId("third"), CAPABILITY, 1, 0)
    takes = bench.favour({1: ([other], 2), 0: ([third], 1)}, 3)
    assert [take.group for take in takes[1][0]] == [NEW, OTHER]
    assert {partition: width for partition, (_, width) in takes.items()} == {1: 2, 0: 1}
    assert sum(width for _, width in takes.values()) == 3


@pytest.mark.parametrize("why", ["it has nothing left", "its head is wider", "no slot is free", "it waited too long"])
async def test_a_freed_slot_is_anybodys_where_who_waited_cannot_use_it(why: str) -> None:
    bench = Bench()
    run = bench.run()
    bench.waits()
    bench.asked(run)
    bench.preempting.ended(run)
    if why == "it has nothing left":
        bench.waits(takeable=0)
    if why == "its head is wider":
        bench.waits(head="1:a*2")
    planned: Takes = {0: ([Take(OTHER, CAPABILITY, 1, 0)], 1)}
    free = 0 if why == "no slot is free" else 1
    now_ms = AT_MS + (90_000 if why == "it waited too long" else 0)
    assert bench.preempting.favour(planned, free, now_ms) is planned
    assert bench.sent() == [FreeSlot(NEW, run.lease.lease_id)]


def a_freed_slot_behind_an_unanswered_turn() -> tuple[Bench, Turn]:
    bench = Bench()
    run = bench.run()
    bench.waits()
    bench.asked(run)
    bench.lanes.ask(1, FreeSlot(OTHER, LeaseId("l")), Ticket())
    (unanswered,) = bench.lanes.freeze({}, {})
    bench.preempting.ended(run)
    return bench, unanswered


async def test_a_freed_slot_is_kept_while_the_partition_of_who_waited_still_has_to_answer() -> None:
    """A reply was lost: nothing else is asked there before that turn is repeated, and no other partition gets the slot."""
    bench, unanswered = a_freed_slot_behind_an_unanswered_turn()
    planned: Takes = {0: ([Take(OTHER, CAPABILITY, 1, 0)], 1)}
    for _ in range(2):
        assert bench.lanes.freeze(bench.favour(planned), {}) == [unanswered]
    bench.lanes.answered(unanswered)
    (turn,) = bench.lanes.freeze(bench.favour(planned), {})
    freed, taken = turn.operations
    assert freed == FreeSlot(NEW, LeaseId("l-1"))
    assert isinstance(taken, Take)
    assert (turn.partition, taken.group, turn.slots) == (1, NEW, 1)
    assert bench.favour(planned) is planned


async def test_a_freed_slot_is_kept_for_an_answer_no_longer_than_it_is_reserved() -> None:
    bench, _ = a_freed_slot_behind_an_unanswered_turn()
    planned: Takes = {0: ([Take(OTHER, CAPABILITY, 1, 0)], 1)}
    assert 0 not in bench.preempting.favour(planned, 1, AT_MS + 89_999)
    assert bench.preempting.favour(planned, 1, AT_MS + 90_000) is planned


async def test_what_is_free_besides_a_kept_slot_is_for_others() -> None:
    bench, _ = a_freed_slot_behind_an_unanswered_turn()
    other = Take(OTHER, CAPABILITY, 2, 0)
    assert bench.favour({0: ([other], 2)}, 2)[0] == ([other], 1)


async def test_a_reservation_that_is_over_does_not_keep_its_group_from_asking_another_run() -> None:
    """A run that never reaches a safe point keeps its slot; who waits is not bound to it for ever."""
    bench = Bench()
    stubborn, other = bench.run(1, lasted_s=61), bench.run(2)
    bench.waits()
    bench.asked(stubborn)
    assert bench.consider(later_ms=89_999) == []
    (reserve,) = bench.consider(later_ms=90_000)
    assert isinstance(reserve, ReserveSlot)
    assert reserve.lease == other.lease.lease_id


async def test_a_worker_that_stops_holds_nothing_for_anybody() -> None:
    bench = Bench()
    one, two = bench.run(1, lasted_s=61), bench.run(2)
    bench.waits(takeable=2)
    bench.asked(one)
    (reserve,) = bench.consider()
    bench.preempting.stop()
    assert bench.sent() == [FreeSlot(NEW, one.lease.lease_id)]
    assert bench.answer(reserve) == [FreeSlot(NEW, two.lease.lease_id)]


async def test_a_run_that_is_overdue_is_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    run = bench.run()
    event = Event(BUSY, 1, 9, EventKind.PREEMPTION_OVERDUE, NOW_MS, run.grant.item, "timer", ("1", run.lease.lease_id))
    bench.preempting.overdue(event, bench.runs)
    bench.preempting.overdue(replace(event, data=("1", "another")), bench.runs)
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("PREEMPT_OVERDUE busy/i1:")
    assert "checkpoint" in said
