"""What a session does with what it is told of its runs and of the items it owns."""

from __future__ import annotations

from typing import Any

import pytest
from builders import AGENT, CAPABILITY, GROUP, ITEM, NOW_MS, SESSION, an_event
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.facts import NEVER_MS
from treadle.shared.model import (
    DirectoryEntry,
    Event,
    EventKind,
    Grant,
    Lease,
    LeaseId,
    Limits,
    Session,
    Usage,
)
from treadle.shared.policy import Disclosure, MissionRule, Policy, Rule
from treadle.shared.progress import Said
from treadle.shared.store import Envelope, Operation, Outcome, Release, Start, Take, TurnReply
from treadle.worker.handlers import Handler
from treadle.worker.slots.occupancy import Occupancy
from treadle.worker.slots.run import Run
from treadle.worker.slots.workshop import Workshop
from treadle.worker.taking import FRUITLESS_MAX
from treadle.worker.tenure import HALTED_S, Tenure
from treadle.worker.terms import check_pattern

K = EventKind
ENVELOPE = Envelope(NOW_MS, None, 1, 1)


async def _work(context: Any, inputs: Any) -> None:
    del context, inputs


class NoDesk:
    """Runs of these tests ask nothing."""

    workshop = Workshop(Occupancy(1))

    async def ask(self, partition: int, operation: Operation) -> Outcome:
        raise AssertionError((partition, operation))

    def closing(self, lease: Lease) -> None:
        raise AssertionError(lease)

    def progress(self, run: Run, said: Said) -> None:
        raise AssertionError((run, said))


def a_tenure(begun: list[Run] | None = None) -> Tenure:
    session = Session(AGENT, SESSION, 10_000, (CAPABILITY,), "r")
    handlers = {CAPABILITY: Handler(CAPABILITY, "1.0.0", _work)}
    begin = (begun if begun is not None else []).append
    tenure = Tenure(session, handlers=handlers, slots=1, groups="*", partitions=1, desk=NoDesk(), begin=begin)
    tenure.renewals.now = lambda: 0.0
    return tenure


def a_grant(*, started: bool) -> Grant:
    lease = Lease(LeaseId("l-1"), GROUP, ITEM, AGENT, SESSION, 1, 1, NOW_MS + 10_000, 1, "r")
    return Grant(0, GROUP, ITEM, CAPABILITY, 1, 1, NOW_MS + 60_000, 1, lease if started else None, 0, (), b"\x80", b"")


def an_entry(takeable: int, code: str = "") -> DirectoryEntry:
    return DirectoryEntry(0, GROUP, CAPABILITY, takeable, "k:a", "acme", 1.0, "standard", Usage(), code)


def running() -> tuple[Tenure, Run]:
    """A session whose one slot runs the item, its log read up to the start."""
    begun: list[Run] = []
    tenure = a_tenure(begun)
    tenure.admit([an_entry(1)], NOW_MS)
    (turn,) = tenure.turns(NOW_MS)
    assert isinstance(turn.operations[0], Take)
    outcome = Outcome("OK", None, (a_grant(started=True),))
    events = [an_event(K.ACCEPTED, 1), an_event(K.STARTED, 2)]
    tenure.answer(turn, TurnReply(ENVELOPE, (outcome,), (), (an_entry(0),)), asked_s=0.0)
    tenure.hear(0, GROUP, 0, 1, 2, events)
    (run,) = begun
    assert not run.scope.cancel_called
    return tenure, run


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grants come in time."""
    monkeypatch.setattr("anyio.current_time", lambda: 0.0)


@pytest.mark.parametrize("code", ["PAUSED", "QUOTA"])
async def test_a_start_that_is_refused_for_now_gives_the_item_back(code: str) -> None:
    tenure = a_tenure()
    tenure.inherit([a_grant(started=False)])
    (turn,) = tenure.turns(NOW_MS)
    assert turn.operations == (Start(GROUP, ITEM, 1, CAPABILITY, 1),)
    tenure.answer(turn, TurnReply(ENVELOPE, (Outcome(code),), (), ()), asked_s=0.0)
    (turn,) = tenure.turns(NOW_MS)
    assert turn.operations == (Release(GROUP, ITEM, 1, code.lower()),)
    tenure.answer(turn, TurnReply(ENVELOPE, (Outcome("OK", 5),), (), ()), asked_s=0.0)
    assert tenure.is_done
    assert tenure.turns(NOW_MS) == []


async def test_a_start_brings_the_slots_that_its_group_may_use() -> None:
    tenure = a_tenure()
    tenure.taking.ready.govern(Policy(1, missions=(Rule("acme/*", MissionRule(slots=3)),)), NOW_MS)
    tenure.admit([an_entry(1)], NOW_MS)
    tenure.inherit([a_grant(started=False)])
    (turn,) = tenure.turns(NOW_MS)
    assert turn.operations[0] == Start(GROUP, ITEM, 1, CAPABILITY, 1, Limits(slots_group=3))


async def test_disclosures_are_as_far_apart_as_the_policy_says() -> None:
    tenure = a_tenure()
    tenure.govern(Policy(1, disclosure=Disclosure(interval_s=5)), 2, NOW_MS)
    assert tenure.disclosing.interval_ms == 5_000


async def test_a_start_that_is_refused_in_quarantine_keeps_the_item_and_is_tried_at_its_end() -> None:
    tenure = a_tenure()
    tenure.inherit([a_grant(started=False)])
    (first,) = tenure.turns(NOW_MS)
    refused = Outcome("QUARANTINE", at_ms=NOW_MS + 5_000)
    tenure.answer(first, TurnReply(ENVELOPE, (refused,), (), ()), asked_s=0.0)
    assert tenure.turns(NOW_MS) == []
    assert tenure.turns(NOW_MS + 4_999) == []
    assert not tenure.is_done
    (again,) = tenure.turns(NOW_MS + 5_000)
    assert again.operations == first.operations


async def test_a_worker_that_stops_in_quarantine_gives_back_what_it_owns() -> None:
    tenure = a_tenure()
    tenure.inherit([a_grant(started=False)])
    (turn,) = tenure.turns(NOW_MS)
    refused = Outcome("QUARANTINE", at_ms=NEVER_MS)
    tenure.answer(turn, TurnReply(ENVELOPE, (refused,), (), ()), asked_s=0.0)
    tenure.stop()
    (turn,) = tenure.turns(NOW_MS)
    assert turn.operations == (Release(GROUP, ITEM, 1, "shutdown"),)


@pytest.mark.parametrize("code", ["WORK_STALE_OWNERSHIP", "INVALID_STATE_TRANSITION", "AUTH_STALE_SESSION"])
async def test_a_start_of_what_is_not_ours_any_more_gives_nothing_back(code: str) -> None:
    tenure = a_tenure()
    tenure.inherit([a_grant(started=False)])
    (turn,) = tenure.turns(NOW_MS)
    tenure.answer(turn, TurnReply(ENVELOPE, (Outcome(code),), (), ()), asked_s=0.0)
    assert tenure.turns(NOW_MS) == []
    assert tenure.is_done


async def test_a_paused_group_is_asked_once_and_again_when_it_is_heard_of() -> None:
    tenure = a_tenure()
    tenure.admit([an_entry(3)], NOW_MS)
    (turn,) = tenure.turns(NOW_MS)
    tenure.answer(turn, TurnReply(ENVELOPE, (Outcome("PAUSED"),), (), (an_entry(3, "PAUSED"),)), asked_s=0.0)
    assert tenure.turns(NOW_MS) == []
    tenure.admit([an_entry(3)], NOW_MS)
    assert len(tenure.turns(NOW_MS)) == 1


async def test_a_group_that_says_paused_and_lists_its_work_all_the_same_is_not_asked_for_ever() -> None:
    tenure = a_tenure()
    tenure.admit([an_entry(3)], NOW_MS)
    asked = 0
    while turns := tenure.turns(NOW_MS):
        (turn,) = turns
        asked += 1
        tenure.answer(turn, TurnReply(ENVELOPE, (Outcome("PAUSED"),), (), (an_entry(3),)), asked_s=0.0)
        assert asked < 100
    assert asked <= FRUITLESS_MAX + 1


ENDS = [
    an_event(K.CANCELLED, 3, by="ann", reason="owner"),
    an_event(K.CANCELLED, 3, by="policy", reason="mission_failed"),
    an_event(K.FAILED, 3, by="ann", digest="d"),
]


@pytest.mark.parametrize("event", ENDS, ids=lambda event: f"{event.kind} by {event.by}")
async def test_an_item_that_is_ended_by_a_command_stops_its_handler(event: Event) -> None:
    tenure, run = running()
    tenure.hear(0, GROUP, 2, 3, 3, [event])
    assert run.scope.cancel_called
    assert not tenure.halted
    assert not tenure.queues.owns(GROUP)
    assert not tenure.renewals.due(1_000.0)[0]


async def test_a_group_that_was_halted_here_is_looked_at_again_when_it_may_have_been_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("anyio.current_time", lambda: now)
    tenure = a_tenure()
    tenure.halt(GROUP, Corrupt("sequence 3 is missing"))
    for now, turns in ((0.0, 0), (HALTED_S - 1, 0), (HALTED_S, 1)):  # noqa: B007 - the clock above reads it
        tenure.admit([an_entry(3)], NOW_MS)
        assert len(tenure.turns(NOW_MS)) == turns


async def test_a_runs_own_failure_stops_nothing() -> None:
    tenure, run = running()
    tenure.hear(0, GROUP, 2, 3, 3, [an_event(K.FAILED, 3, digest="d")])
    assert not run.scope.cancel_called
    assert not tenure.queues.owns(GROUP)


@pytest.mark.parametrize("code", ["INVALID_STATE_TRANSITION", "WORK_STALE_OWNERSHIP", "WORK_LEASE_EXPIRED"])
async def test_a_renewal_that_is_refused_stops_the_handler(code: str) -> None:
    tenure, run = running()
    held = tenure.renewals.due(1_000.0)[0]
    for lease, why in tenure.renewals.answered(held, [code], asked_s=1_000.0):
        tenure.lose(run.lease, why)
        assert lease == run.lease.lease_id
    assert run.scope.cancel_called


@pytest.mark.parametrize("pattern", ["*", "team/*", "a[bc]d", "[]]", "[!]x]", "[[]", "a]b", "[a-z]?", "ü*"])
def test_a_pattern_of_a_shell_is_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", ["", "[", "a[", "[]", "[!]", "[a][b", "x" * 1_001])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Misuse, match="--groups: "):
        check_pattern(pattern)
