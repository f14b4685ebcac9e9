"""What Workers answered, beside what the store knows: one list of gates, the one to act upon first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from treadle.coordinator.core.gates import Code
from treadle.coordinator.core.told import expected, explained
from treadle.shared.facts import ItemFacts, WorkerFacts
from treadle.shared.model import AgentId, Capability, ItemState, MissionState
from treadle.shared.reasons import Answer, Answers, Because, Level, Reason

NOW = 1_800_000_000_000
INDEX = Capability("index")
ONE = WorkerFacts(AgentId("w%20one"), 1, (INDEX,), 4, 10_000, NOW, 2)
OFFERED = ItemFacts(NOW, "m", "a", MissionState.ACTIVE, "active", ItemState.OFFERED, INDEX, workers=(ONE,))
QUEUED = replace(OFFERED, state=ItemState.QUEUED, owner=ONE.agent, start_by_ms=NOW + 9_000)


def said(*workers: list[Because], asked: int = 0) -> Answers:
    answers = [
        Answer(AgentId(f"w{number}"), tuple(Reason(because, Level.ACCOUNT) for because in because_of))
        for number, because_of in enumerate(workers)
    ]
    return Answers(asked or len(answers), tuple(answers))


@pytest.mark.parametrize(
    ("facts", "answers", "codes"),
    [
        (OFFERED, Answers(), [Code.NEXT]),
        (OFFERED, said([Because.NEXT]), [Code.NEXT]),
        (OFFERED, said(asked=2), [Code.NO_ANSWER]),
        (replace(OFFERED, ahead=2), said(asked=2), [Code.QUEUED, Code.NO_ANSWER]),
        (OFFERED, said([Because.FAIR_SHARE]), [Code.FAIR_SHARE]),
        (OFFERED, said([Because.FAIR_SHARE], [Because.NEXT]), [Code.NEXT]),
        (replace(OFFERED, ahead=1), said([Because.FAIR_SHARE, Because.QUEUED]), [Code.QUEUED, Code.FAIR_SHARE]),
        (replace(OFFERED, busy=4), said([Because.CAPACITY, Because.FAIR_SHARE]), [Code.CAPACITY, Code.FAIR_SHARE]),
        (OFFERED, said([Because.CAPACITY]), [Code.CAPACITY]),
        (replace(OFFERED, busy=2), said([Because.RESERVED], [Because.RESERVED]), [Code.RESERVED]),
        (OFFERED, said([Because.RESOURCES]), [Code.RESOURCES]),
        (OFFERED, said([Because.QUOTA, Because.CAPACITY]), [Code.QUOTA, Code.CAPACITY]),
        (OFFERED, said([Because.RATE]), [Code.QUOTA]),
        (OFFERED, said([Because.NOT_SERVED], [Because.STOPPING]), [Code.STOPPING, Code.NOT_SERVED]),
        (OFFERED, said([Because.TOO_WIDE], [Because.KEPT_OUT]), [Code.KEPT_OUT, Code.UNSCHEDULABLE]),
        (OFFERED, said([Because.TOO_WIDE], [Because.CAPACITY]), [Code.CAPACITY]),
        (OFFERED, said([Because.TOO_WIDE]), [Code.UNSCHEDULABLE]),
        (OFFERED, said([Because.SET_ASIDE]), [Code.HALTED]),
        (OFFERED, said([Because.UNHEARD]), [Code.UNHEARD]),
        (replace(OFFERED, paused=("all",)), said([Because.UNHEARD]), [Code.PAUSED]),
        (OFFERED, said([Because.UNHEARD], [Because.FAIR_SHARE]), [Code.FAIR_SHARE]),
        (QUEUED, said([Because.CAPACITY]), [Code.ACCEPTED, Code.CAPACITY]),
    ],
)
def test_what_workers_say_stands_beside_what_the_store_knows(
    facts: ItemFacts, answers: Answers, codes: list[Code]
) -> None:
    gates = explained(facts, answers)
    assert [gate.code for gate in gates] == codes
    assert all(gate.text and gate.change for gate in gates)


def test_it_is_said_how_many_workers_say_so() -> None:
    (gate,) = explained(OFFERED, said([Because.FAIR_SHARE]))
    assert gate.text == (
        "the Worker that could run it is giving the next slot to other work: its account has had its share for now"
    )
    (gate,) = explained(OFFERED, said([Because.FAIR_SHARE], [Because.FAIR_SHARE]))
    assert gate.text.startswith("all 2 Workers that could run it are giving the next slot to other work")
    one, other = explained(OFFERED, said([Because.FAIR_SHARE], [Because.CAPACITY], [Because.FAIR_SHARE]))
    assert one.text == "1 of 3 Workers that could run it is without a slot free now"
    assert other.text.startswith("2 of 3 Workers that could run it are giving")


def test_a_worker_that_is_too_small_is_not_counted_among_those_that_could_run_it() -> None:
    (gate,) = explained(replace(OFFERED, width=4), said([Because.TOO_WIDE], [Because.FAIR_SHARE]))
    assert gate.text.startswith("the Worker that could run it is giving the next slot to other work")
    stopping, full = explained(OFFERED, said([Because.STOPPING], [Because.CAPACITY]))
    assert stopping.text == "1 of 2 Workers that could run it is about to stop: nothing new is taken"
    assert full.text == "the Worker that could run it is without a slot free now"


def test_a_wide_item_that_its_quota_has_no_room_for_is_not_said_to_wait_for_runs_that_are_not_there() -> None:
    (gate,) = explained(replace(OFFERED, width=4), said([Because.QUOTA]))
    assert gate.text == "the policy leaves its account fewer than the 4 slots that it needs at once"
    assert gate.change == "runs of its account that end; where none runs, `slots` of 4 or more in the policy"


def test_one_item_comes_before_it_and_two_come() -> None:
    for ahead, text in ((1, "1 item of its own Mission and capability comes before it"), (2, "2 items of its own ")):
        (gate,) = explained(replace(OFFERED, ahead=ahead), Answers())
        assert gate.text.startswith(text)


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        ([(None, None)], ""),
        ([(0, None)], ""),
        ([(20, None)], "not before 20 s from now"),
        ([(20, 100)], "within 1 min 40 s, not before 20 s"),
        ([(0, 5), (None, None)], "within 5.0 s"),
        ([(20, None), (5, 50)], "within 50 s, not before 5.0 s"),
    ],
)
def test_the_soonest_of_what_the_workers_expect_is_said(
    windows: list[tuple[int | None, int | None]], text: str
) -> None:
    answers = tuple(
        Answer(AgentId(f"w{number}"), (Reason(Because.FAIR_SHARE, Level.MISSION, from_s, to_s),))
        for number, (from_s, to_s) in enumerate(windows)
    )
    assert expected(explained(OFFERED, Answers(len(answers), answers))[0]) == text


def test_a_hostile_name_cannot_steer_a_terminal() -> None:
    facts = replace(OFFERED, mission="\x1b[2J\u202e\r\nOK")
    for because in Because:
        for gate in explained(facts, said([because])):
            assert (gate.text + gate.change).isprintable()
