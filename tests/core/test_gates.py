"""`treadle why`: every gate that holds an item is named, each with what would change it, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from treadle.coordinator.core.gates import Code, explain
from treadle.shared.answers import Block, Offer
from treadle.shared.disclosure import CapacityState, Disclosure
from treadle.shared.facts import NEVER_MS, ItemFacts, WorkerFacts
from treadle.shared.model import AgentId, Capability, ItemId, ItemState, MissionState, Risk
from treadle.shared.progress import Said

NOW = 1_800_000_000_000
INDEX = Capability("index")
ONE = WorkerFacts(AgentId("w%20one"), 1, (INDEX,), 4, 10_000, NOW, 2)
OFFERED = ItemFacts(NOW, "m", "a", MissionState.ACTIVE, "active", ItemState.OFFERED, INDEX, workers=(ONE,))
OPEN = replace(OFFERED, state=ItemState.OPEN)


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        (OFFERED, [Code.NEXT]),
        (replace(OFFERED, ahead=3), [Code.QUEUED]),
        (replace(OFFERED, resources=(("gpu", 1),)), [Code.UNSCHEDULABLE]),
        (replace(OFFERED, resources=(("gpu", 1),), workers=(replace(ONE, resources=(("gpu", 2),)),)), [Code.NEXT]),
        (replace(OFFERED, busy=4), [Code.CAPACITY]),
        (replace(OFFERED, busy=4, ahead=1), [Code.CAPACITY, Code.QUEUED]),
        (replace(OFFERED, busy=3), [Code.NEXT]),
        (replace(OFFERED, workers=()), [Code.NO_WORKER]),
        (replace(OFFERED, width=5), [Code.UNSCHEDULABLE]),
        (replace(OFFERED, width=4), [Code.NEXT]),
        (replace(OFFERED, workers=(replace(ONE, slots=0),), busy=9), [Code.UNSCHEDULABLE]),
        (replace(OFFERED, paused=("all",)), [Code.PAUSED]),
        (replace(OFFERED, budget_ms=9_000, spent_ms=9_000), [Code.BUDGET]),
        (replace(OFFERED, budget_ms=9_000, spent_ms=8_999), [Code.NEXT]),
        (replace(OFFERED, spent_ms=8_999), [Code.NEXT]),
        (replace(OFFERED, offer=Offer("named", (ONE.agent,), 0, is_over=False)), [Code.OFFERED_TO]),
        (replace(OFFERED, offer=Offer("preferred", (ONE.agent,), NOW + 5_000, is_over=False)), [Code.OFFERED_TO]),
        (replace(OFFERED, offer=Offer("named", (ONE.agent,), NOW, is_over=True)), [Code.OFFER_OVER]),
        (replace(OFFERED, offer=Offer("named", (), 0, is_over=True)), [Code.OFFER_OVER]),
        (replace(OFFERED, offer=Offer("all", (), NOW - 5_000, is_over=True)), [Code.OFFER_OVER]),
        (replace(OFFERED, offer=Offer("all", (), NOW + 5_000, is_over=False)), [Code.NEXT]),
        (replace(OFFERED, quarantine_ms=NOW + 9_000, paused=("all",)), [Code.QUARANTINE, Code.PAUSED]),
        (replace(OFFERED, quarantine_ms=NEVER_MS), [Code.QUARANTINE]),
        (replace(OFFERED, quarantine_ms=NOW), [Code.NEXT]),
        (replace(OPEN, dependencies_left=1), [Code.DEPENDENCY]),
        (replace(OPEN, dependencies_left=1, workers=()), [Code.DEPENDENCY, Code.NO_WORKER]),
        (replace(OPEN, next_ms=NOW + 5_000), [Code.NOT_BEFORE]),
        (replace(OPEN, next_ms=NOW), [Code.NEXT]),
        (replace(OPEN, next_ms=NOW + 5_000, failures=1), [Code.BACKOFF]),
        (replace(OPEN, state=ItemState.FAILED, next_ms=NOW + 5_000), [Code.BACKOFF]),
        (replace(OPEN, next_ms=NOW + 5_000, lost_runs=2), [Code.BACKOFF]),
        (replace(OPEN, next_ms=NOW + 5_000, lost_runs=1), [Code.NOT_BEFORE]),
        (replace(OPEN, held="POISON", runs=5), [Code.HELD]),
        (replace(OPEN, mission_state=MissionState.CANCELLED), [Code.MISSION_ENDED]),
        (replace(OFFERED, group_state="halted:LOG_FOREIGN", workers=()), [Code.HALTED, Code.NO_WORKER]),
        (replace(OPEN, state=ItemState.ACTIVE, started_ms=NOW - 9_000, lease_expires_ms=NOW + 1), [Code.RUNNING]),
        (replace(OPEN, state=ItemState.QUEUED, start_by_ms=NOW + 60_000), [Code.ACCEPTED]),
        (replace(OPEN, state=ItemState.BLOCKED, blocked=Block("why", None, NOW, NOW + 9)), [Code.BLOCKED]),
        (
            replace(OPEN, state=ItemState.BLOCKED, blocked=Block("why", None, NOW, 0), group_state="halted:LOG_REBORN"),
            [Code.HALTED, Code.BLOCKED],
        ),
        (replace(OPEN, held="CHECKPOINT", runs=1), [Code.HELD]),
        (replace(OPEN, held="APPROVAL", needs_approval=True), [Code.APPROVAL]),
        (replace(OPEN, needs_approval=True, risk=Risk.HIGH), [Code.APPROVAL]),
        (replace(OPEN, needs_approval=True, dependencies_left=1), [Code.APPROVAL, Code.DEPENDENCY]),
        (replace(OFFERED, workers=(ONE,), kept_out=(ONE.agent,)), [Code.KEPT_OUT]),
        (replace(OFFERED, workers=(ONE, replace(ONE, agent=AgentId("two"))), kept_out=(ONE.agent,)), [Code.NEXT]),
        (replace(OPEN, state=ItemState.SUBMITTED), [Code.SUBMITTED]),
        (replace(OPEN, state=ItemState.VERIFIED, workers=()), [Code.VERIFIED]),
        (replace(OPEN, state=ItemState.FAILED), [Code.FAILED]),
        (replace(OPEN, state=ItemState.CANCELLED), [Code.CANCELLED]),
    ],
)
def test_every_gate_that_holds_an_item_is_named(facts: ItemFacts, codes: list[Code]) -> None:
    gates = explain(facts)
    assert [gate.code for gate in gates] == codes
    assert all(gate.text and gate.change for gate in gates)


def test_it_says_which_items_it_waits_for_and_first_of_all_what_will_never_come() -> None:
    waits = tuple((ItemId(f"i{n}"), ItemState.OFFERED) for n in range(19))
    facts = replace(OPEN, dependencies_left=40, waits_for=((ItemId("%C3%A9"), ItemState.FAILED), *waits))
    (gate,) = explain(facts)
    assert gate.text == "it waits for é (failed), i0 (offered), i1 (offered), i2 (offered), i3 (offered), 35 more"
    assert gate.change == "`treadle retry m/é`, which will not be verified by itself"


def test_it_says_who_runs_it_since_when() -> None:
    facts = replace(
        OPEN,
        state=ItemState.ACTIVE,
        owner=AgentId("w%20one"),
        started_ms=NOW - 65_000,
        lease_expires_ms=NOW + 4_000,
        runs=2,
    )
    assert (
        explain(facts)[0].text
        == "Worker w one has run it for 1 min 5 s (run 2); its lease is renewed until 4.0 s from now"
    )


def test_what_people_and_handlers_wrote_cannot_steer_a_terminal() -> None:
    hostile = "\x1b[2J\u202e\r\nOK"
    facts = replace(OPEN, state=ItemState.FAILED, failure=f"ValueError: {hostile}", runs=1)
    paused = replace(OFFERED, paused=(f"mission:{hostile}",))
    for gate in (*explain(facts), *explain(paused)):
        assert (gate.text + gate.change).isprintable()


def test_no_gate_speaks_of_another_mission() -> None:
    """All slots may be busy with others' work: it says that they are, not with whose."""
    text = " ".join(gate.text for gate in explain(replace(OFFERED, busy=4, ahead=2)))
    assert (
        text
        == "all 4 slots of the 1 Worker that offer index are in use 2 items of its own Mission and capability come before it"
    )


def test_it_says_who_is_asked_by_name_and_who_of_them_is_not_there() -> None:
    asked = Offer("named", (ONE.agent, AgentId("two")), NOW + 5_000, is_over=False)
    (gate,) = explain(replace(OFFERED, offer=asked))
    assert gate.text == "it is offered by name, to w one, two (not live) for another 5.0 s"
    assert gate.change == "one of them; or `treadle offer m/a` offers it to everybody, with --to WORKER to some"
    (gate,) = explain(replace(OFFERED, offer=replace(asked, expires_ms=NOW - 90_000, is_over=True)))
    assert gate.text.startswith("its offer to w one, two (not live) is over since ")


@pytest.mark.parametrize(
    ("end_ms", "confidence", "expected"),
    [
        (NOW + 60_000, 80, "; its end is expected within 1 min (80 % sure)"),
        (NOW + 60_000, 0, "; its end is expected within 1 min (a guess)"),
        (NOW - 5_000, 66, "; its end was expected 5.0 s ago (66 % sure)"),
        (0, 0, "1 min from now"),
    ],
)
def test_of_what_runs_the_end_that_was_disclosed_is_said_with_how_sure_that_is(
    end_ms: int, confidence: int, expected: str
) -> None:
    said = Disclosure(NOW - 9_000, NOW - 9_000, end_ms, confidence, CapacityState.AVAILABLE, NOW - 8_000)
    active = replace(OPEN, state=ItemState.ACTIVE, started_ms=NOW - 9_000, lease_expires_ms=NOW + 60_000)
    (gate,) = explain(replace(active, forecast=said))
    assert gate.text.endswith(expected)


def test_of_what_runs_it_is_said_how_far_it_said_it_is() -> None:
    active = replace(OPEN, state=ItemState.ACTIVE, started_ms=NOW - 9_000, lease_expires_ms=NOW + 60_000)
    said = Said(30, 100, "upload", ("fetched", "checked"), "file 30", NOW - 4_000)
    (gate,) = explain(replace(active, progress=said))
    assert gate.text.endswith(
        "; it is at upload, 30 of 100 (30%): file 30, reached: fetched, checked, as it said 4.0 s ago"
    )
