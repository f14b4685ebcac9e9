"""A wrong field of a spec is refused by its name, with the value and the bound; checkers see the fields all the same.

The `type: ignore[...]` comments are part of the tests: mypy strict reports one that it does not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError
from treadle.coordinator.core.wording import NOT_YET
from treadle.coordinator.specs import WORK_MAX, MissionSpec, Retry, WorkSpec
from treadle.shared.errors import Misuse
from treadle.shared.inputs import Call
from treadle.shared.model import Capability, Urgency


def work_spec(**fields: Any) -> WorkSpec:
    return WorkSpec(**{"id": "b", "capability": "index", **fields})


def mission_spec(**fields: Any) -> MissionSpec:
    return MissionSpec(**{"objective": "index the archive", "work": [work_spec()], **fields})


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(Misuse) as caught:
        make()
    return str(caught.value)


def test_objective_and_work_are_enough() -> None:
    spec = MissionSpec(objective="index", work=[WorkSpec(id="a", capability="index")])
    assert (spec.id, spec.account, spec.weight, spec.priority_class, spec.deadline) == (
        None,
        None,
        1.0,
        "standard",
        None,
    )
    item = spec.work[0]
    assert (item.inputs, item.after, item.deadline, item.urgency) == ({}, (), None, Urgency.NORMAL)
    assert (item.business_impact, item.slots, item.start_by_s) == (0, 1, 60)


def test_what_the_public_example_writes_is_taken() -> None:
    deadline = datetime.now(UTC) + timedelta(hours=1)
    spec = MissionSpec(
        objective="...",
        account="acme",
        weight=3,
        work=[
            WorkSpec(id="a", capability="thumbnails", inputs={"files": ["x.png"]}),
            WorkSpec(id="b", capability="index", after=["a"], deadline=deadline, urgency="high"),
        ],
    )
    assert spec.work[1].after == ("a",)
    assert spec.work[1].urgency is Urgency.HIGH
    assert spec.work[1].deadline == deadline


def test_a_deadline_keeps_its_instant_whatever_its_zone_and_may_be_iso_text() -> None:
    instant = datetime(2031, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert work_spec(deadline=instant).deadline == datetime(2031, 3, 30, 0, 30, tzinfo=UTC)
    assert work_spec(deadline="2031-03-30T02:30:00+02:00").deadline == instant


def test_work_that_waits_is_tried_again_and_timed_out_takes_every_form() -> None:
    at = datetime(2031, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert work_spec(not_before=at).not_before == datetime(2031, 3, 30, 0, 30, tzinfo=UTC)
    assert work_spec(not_before=at.isoformat()).not_before == at
    assert work_spec(not_before=timedelta(seconds=5)).not_before == timedelta(seconds=5)
    assert (work_spec(retry=0).retry, work_spec(retry=100).retry) == (0, 100)
    assert work_spec(retry={"retries": 5, "first_s": 2}).retry == Retry(retries=5, first_s=2.0)
    assert (work_spec(timeout_s=2).timeout_s, work_spec(timeout_s=0.001).timeout_s) == (2.0, 0.001)


def test_a_retry_is_refused_by_its_own_fields_too() -> None:
    assert refusal(lambda: Retry(retries=-1)) == "retries: -1 must be 0 to 100"
    assert refusal(lambda: Retry(first_s=10, most_s=9.5)) == "most_s: 9.5 is less than first_s, 10"


def test_a_mission_that_grows_may_begin_with_nothing() -> None:
    spec = MissionSpec(objective="index", work=[], open=True, keep_results_s=60)
    assert (spec.work, spec.open, spec.keep_results_s) == ((), True, 60)


def test_a_typed_call_becomes_a_spec_with_what_is_said_beside_it() -> None:
    call = Call(Capability("index"), "1.0.0", {"n": 1}, lambda value: value)
    spec = WorkSpec.of(call, id="b", after=["a"], retry=2, slots=3)
    assert spec == work_spec(inputs={"n": 1}, after=["a"], retry=2, slots=3)
    assert refusal(lambda: WorkSpec.of(call, id="b", slots=0)) == 'WorkSpec (id "b"): slots: 0 must be 1 to 1,024'
    assert refusal(lambda: WorkSpec.of("index", id="b")).startswith("WorkSpec.of: takes what handler.spec(...)")  # type: ignore[arg-type]


def test_items_may_be_dicts_as_a_mission_file_has_them() -> None:
    spec = mission_spec(work=[{"id": "a", "capability": "index", "urgency": "critical"}])
    assert spec.work == (WorkSpec(id="a", capability="index", urgency=Urgency.CRITICAL),)


def test_a_spec_is_frozen_and_keeps_its_own_copy_of_what_it_was_given() -> None:
    inputs, after = {"n": 1}, ["a"]
    item = work_spec(inputs=inputs, after=after)
    inputs["n"] = 2
    after.append("c")
    assert (item.inputs, item.after) == ({"n": 1}, ("a",))
    with pytest.raises(ValidationError, match="frozen"):
        item.slots = 2  # type: ignore[misc]


def test_inputs_are_never_part_of_a_repr() -> None:
    assert "sesame" not in repr(mission_spec(work=[work_spec(inputs={"password": "sesame"})]))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"objective": ""}, "objective: '' is empty; say in a sentence"),
        ({"objective": " \n"}, "objective: ' \\n' is empty; say in a sentence"),
        ({"objective": "x" * 4001}, "objective: 4,001 characters, at most 4,000"),
        ({"objective": "\ud800"}, "objective: '\\ud800' holds a lone surrogate"),
        ({"objective": 1}, "objective: 1 must be a str"),
        ({"weight": 0}, "weight: 0 must be 0.001 to 1,000"),
        ({"weight": -1}, "weight: -1 must be 0.001 to 1,000"),
        ({"weight": 1000.5}, "weight: 1000.5 must be 0.001 to 1,000"),
        ({"weight": float("nan")}, "weight: nan must be 0.001 to 1,000"),
        ({"weight": float("inf")}, "weight: inf must be 0.001 to 1,000"),
        ({"weight": "3"}, "weight: '3' must be a number"),
        ({"weight": True}, "weight: True must be a number"),
        ({"priority_class": "Gold"}, "priority_class: 'Gold' must be a class of the policy"),
        ({"account": ""}, "account: '' must not be empty"),
        ({"id": ""}, "id: '' must not be empty"),
        ({"work": []}, "work: 0 items, must be 1 to 1,000,000; add a WorkSpec, or open=True to add them later"),
        ({"work": "a"}, "work: a value of type str must be a list, not one str"),
        (
            {"work": [work_spec()] * (WORK_MAX + 1)},
            "work: 1,000,001 items, at most 1,000,000 in one Mission; split it into several",
        ),
        ({"work": [None]}, "work[0]: a value of type NoneType must be a WorkSpec"),
        (
            {"deadline": datetime(2031, 1, 1)},
            "deadline: datetime.datetime(2031, 1, 1, 0, 0) has no time zone; use an aware",
        ),
        ({"wieght": 3}, "wieght: is not a field; did you mean weight?"),
        (
            {"xyz": 3},
            "xyz: is not a field; known: id, objective, work, account, weight, budget_slot_s, priority_class, deadline, open",
        ),
        ({"open": 1}, "open: 1 must be True or False"),
        ({"budget_slot_s": 0}, "budget_slot_s: 0 must be 0.001 to 1,000,000,000"),
        ({"budget_slot_s": math.nan}, "budget_slot_s: nan must be 0.001 to 1,000,000,000"),
        ({"keep_results_s": 59}, "keep_results_s: 59 must be 60 to 31,536,000"),
        ({"keep_results_s": 31_536_001}, "keep_results_s: 31536001 must be 60 to 31,536,000"),
        ({"keep_results_s": 60.5}, "keep_results_s: 60.5 must be a whole number"),
        ({"budget": 3}, "budget: is not available in this version; leave it out"),
    ],
)
def test_a_wrong_field_of_a_mission_is_named_with_its_value_and_bound(fields: dict[str, Any], said: str) -> None:
    message = refusal(lambda: mission_spec(**fields))
    assert message.startswith(said)
    assert len(message) < 300


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"slots": 0}, "slots: 0 must be 1 to 1,024"),
        ({"slots": 1025}, "slots: 1025 must be 1 to 1,024"),
        ({"slots": True}, "slots: True must be a whole number"),
        ({"slots": 1.5}, "slots: 1.5 must be a whole number"),
        ({"business_impact": -1}, "business_impact: -1 must be 0 to 99,999"),
        ({"business_impact": 100_000}, "business_impact: 100000 must be 0 to 99,999"),
        ({"start_by_s": 0}, "start_by_s: 0 must be 1 to 86,400"),
        ({"start_by_s": 86_401}, "start_by_s: 86401 must be 1 to 86,400"),
        ({"urgency": "hi"}, "urgency: 'hi' must be one of critical, high, normal, routine"),
        ({"after": "a"}, "after: 'a' must be a list, not one str"),
        ({"after": ["a", 3]}, "after[1]: 3 must be a str"),
        ({"after": {"a"}}, "after: {'a'} must be a list"),
        ({"capability": None}, "capability: None must be a str"),
        ({"deadline": 3600}, "deadline: 3600 is not a datetime; use an aware datetime"),
        (
            {"deadline": date(2031, 1, 1)},
            "deadline: datetime.date(2031, 1, 1) is not a datetime; use an aware datetime",
        ),
        ({"deadline": "soon"}, "deadline: 'soon' is not a date and time in ISO 8601"),
        ({"deadline": "2031-01-01T00:00:00"}, "deadline: datetime.datetime(2031, 1, 1, 0, 0) has no time zone"),
        ({"after": ["x"] * 1_001}, "after: 1,001 ids, at most 1,000; put an item in between"),
        (
            {"not_before": datetime(2031, 1, 1)},
            "not_before: datetime.datetime(2031, 1, 1, 0, 0) has no time zone; use an",
        ),
        ({"not_before": "2031-01-01T00:00"}, "not_before: '2031-01-01T00:00' has no time zone"),
        ({"not_before": "soon"}, "not_before: 'soon' is not a date and time in ISO 8601"),
        ({"not_before": 60}, "not_before: 60 is no time; use an aware datetime"),
        (
            {"not_before": timedelta(seconds=-1)},
            "not_before: datetime.timedelta(days=-1, seconds=86399) must be 0 to 3,650",
        ),
        ({"not_before": timedelta(days=3651)}, "not_before: datetime.timedelta(days=3651) must be 0 to 3,650 days"),
        ({"retry": -1}, "retry: -1 must be 0 to 100 retries"),
        ({"retry": 101}, "retry: 101 must be 0 to 100 retries"),
        ({"retry": True}, "retry: True must be a number of retries, 0 to 100, or a Retry"),
        ({"retry": 1.5}, "retry: 1.5 must be a number of retries, 0 to 100, or a Retry"),
        ({"retry": {"first_s": 0}}, "retry.first_s: 0 must be 0.001 to 2,592,000"),
        ({"retry": {"retries": 101}}, "retry.retries: 101 must be 0 to 100"),
        ({"retry": {"first_s": 5, "most_s": 1}}, "retry.most_s: 1 is less than first_s, 5"),
        ({"retry": {"tries": 5}}, "retry.tries: is not a field; did you mean retries?"),
        ({"timeout_s": 0}, "timeout_s: 0 must be 0.001 to 31,536,000"),
        ({"timeout_s": float("nan")}, "timeout_s: nan must be 0.001 to 31,536,000"),
        ({"timeout_s": "1"}, "timeout_s: '1' must be a number"),
        ({"resources": ["gpu"]}, "resources: a value of type list must be a dict of counts by name"),
        ({"resources": {"GPU": 1}}, "resources: 'GPU' is no name of a resource; a name is 1 to 64 of a-z"),
        ({"resources": {"gpu": 0}}, "resources: gpu=0 must be a whole number, 1 to 1,000,000"),
        ({"resources": {"gpu": 1.5}}, "resources: gpu=1.5 must be a whole number, 1 to 1,000,000"),
        ({"resources": {f"r{n}": 1 for n in range(9)}}, "resources: 9 names, at most 8"),
        ({"risk": "some"}, "risk: 'some' must be one of none, low, high"),
        ({"risk": 2}, "risk: 2 must be one of none, low, high"),
        ({"timeout_s": True}, "timeout_s: True must be a number"),
        ({"tools": ["A b"]}, "tools: 'A b' is no name of a tool; must be 1 to 64 of a-z"),
        ({"tools": [f"t{n}" for n in range(65)]}, "tools: 65 tools, at most 64"),
        ({"tools": "search"}, "tools: 'search' must be a list"),
        ({"budgets": ["tokens"]}, "budgets: ['tokens'] must be a dict"),
        ({"budgets": {"To kens": 1}}, "budgets: 'To kens' is no name of what is spent; must be 1 to 64"),
        ({"budgets": {"tokens": -1}}, "budgets: tokens: -1, must be a whole number, 0 to 1,000,000,000,000"),
        ({"budgets": {"tokens": 1.5}}, "budgets: tokens: 1.5, must be a whole number"),
        ({"budgets": {"tokens": True}}, "budgets: tokens: True, must be a whole number"),
        ({"budgets": {f"d{n}": 1 for n in range(17)}}, "budgets: 17 dimensions, at most 16"),
        ({"capabilty": "x"}, "capabilty: is not a field; did you mean capability?"),
        ({"inputs": ["sesame"]}, "inputs: a value of type list must be a dict"),
        ({"urgency": "x" * 10_000}, "urgency: 'xxx"),
    ],
)
def test_a_wrong_field_of_an_item_is_named_alone_and_inside_a_mission(fields: dict[str, Any], said: str) -> None:
    alone = refusal(lambda: work_spec(**fields))
    assert alone.startswith(f'WorkSpec (id "b"): {said}')
    raw = {"id": "b", "capability": "index", **fields}
    inside = refusal(lambda: mission_spec(work=[work_spec(id="a"), raw]))
    assert inside.startswith(f'work[1] (id "b"): {said}')
    assert len(inside) < 300
    assert "sesame" not in inside


@pytest.mark.parametrize("name", sorted(NOT_YET - {"budget", "owner", "definition_of_done", "final_approval"}))
def test_a_field_that_is_not_built_yet_says_so(name: str) -> None:
    assert refusal(lambda: work_spec(**{name: 1})) == (
        f'WorkSpec (id "b"): {name}: is not available in this version; leave it out'
    )


def test_every_wrong_field_is_said_up_to_three() -> None:
    message = refusal(lambda: mission_spec(weight=0, account="", priority_class="Gold", id="", objective=""))
    assert message.count("; ") >= 3
    assert message.endswith("; and 2 more")


def test_a_hostile_id_cannot_forge_a_line_of_a_message() -> None:
    message = refusal(lambda: work_spec(id="a\nERROR\x1b[31m\u202e" + "x" * 100, slots=0))
    assert message.startswith('WorkSpec (id "a\\nERROR\\x1b[31m\\u202exxx')
    assert message.isprintable()


def test_missing_fields_are_named_at_run_time_and_by_type_checkers() -> None:
    def no_work() -> None:
        MissionSpec(objective="x")  # type: ignore[call-arg]

    def no_id() -> None:
        WorkSpec(capability="index")  # type: ignore[call-arg]

    assert refusal(no_work) == "work: is required"
    assert refusal(no_id) == (
        'WorkSpec: id: is required; give it a name of its own, as id="a", or, for a job, enqueue("thumbnails", inputs), '
        "which makes one"
    )
    assert refusal(lambda: WorkSpec(id="a")) == (  # type: ignore[call-arg]
        'WorkSpec (id "a"): capability: is required; give the name of its handler, as capability="thumbnails"'
    )


def test_wrong_types_are_named_at_run_time_and_by_type_checkers() -> None:
    def number_as_objective() -> None:
        MissionSpec(objective=1, work=[work_spec()])  # type: ignore[arg-type]

    def unknown_field() -> None:
        WorkSpec(id="a", capability="index", colour="red")  # type: ignore[call-arg]

    def unknown_urgency() -> None:
        WorkSpec(id="a", capability="index", urgency="hi")  # type: ignore[arg-type]

    assert refusal(number_as_objective) == "objective: 1 must be a str"
    assert "colour: is not a field" in refusal(unknown_field)
    assert "urgency: 'hi' must be one of" in refusal(unknown_urgency)
