"""A planned Mission can be stored, can end, and is recognised when it comes again; what could not is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator.core.graph import DEPENDENTS_MAX
from treadle.coordinator.core.missions import plan_mission, plan_standing, standing_id
from treadle.coordinator.specs import MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.model import NewMission, Urgency
from treadle.shared.names import name_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = 1_893_456_000_000


def item(id_: str, **fields: Any) -> WorkSpec:
    return WorkSpec(**{"id": id_, "capability": "index", **fields})


def plan(*work: WorkSpec, actor: str = "ann@host", now_ms: int = NOW_MS, **fields: Any) -> NewMission:
    spec = MissionSpec(**{"objective": "index the archive", "work": work, **fields})
    return plan_mission(spec, mission_id="nightly", actor=actor, now_ms=now_ms)


def refusal(*work: WorkSpec, **fields: Any) -> str:
    with pytest.raises(Misuse) as caught:
        plan(*work, **fields)
    return str(caught.value)


# --- what a plan holds -----------------------------------------------------------------------------------------------


def test_a_plan_holds_what_was_written_and_the_defaults() -> None:
    mission = plan(item("a"))
    assert (mission.mission, mission.group, mission.objective) == ("nightly", "nightly", "index the archive")
    assert (mission.actor, mission.account, mission.weight, mission.priority_class) == (
        "ann%40host",
        "ann%40host",
        1.0,
        "standard",
    )
    assert mission.deadline_ms == NOW_MS + 30 * 86_400_000
    planned = mission.items[0]
    assert codec.unpack(planned.inputs, what="inputs") == {}
    assert (planned.contract, planned.after, planned.width, planned.urgency) == (b"", (), 1, Urgency.NORMAL)
    assert (planned.business_impact, planned.deadline_ms, planned.start_by_s) == (0, 0, 60)


def test_every_field_of_an_item_reaches_the_plan() -> None:
    deadline = datetime(2030, 1, 2, 2, 0, 0, 5_999, tzinfo=timezone(timedelta(hours=2)))
    mission = plan(
        item("first"),
        item("a b/ü", inputs={"z": 1, "a": [2]}, after=["first"], deadline=deadline, urgency="critical"),
        item("wide", slots=4, business_impact=7, start_by_s=5, timeout_s=0.0015),
        account="acme & co",
        deadline=deadline,
    )
    assert (mission.account, mission.deadline_ms) == ("acme%20%26%20co", NOW_MS + 86_400_005)
    named, wide = mission.items[1], mission.items[2]
    assert (named.item, name_of(named.item), named.after) == ("a%20b%2F%C3%BC", "a b/ü", ("first",))
    assert (named.deadline_ms, named.urgency) == (NOW_MS + 86_400_005, Urgency.CRITICAL)
    assert list(codec.unpack(named.inputs, what="inputs")) == ["z", "a"]  # type: ignore[call-overload]
    assert (wide.width, wide.business_impact, wide.start_by_s) == (4, 7, 5)
    assert (named.timeout_ms, wide.timeout_ms) == (0, 2), "in whole milliseconds, none of which is too early"


def test_items_come_in_topological_order_and_else_as_given() -> None:
    mission = plan(item("d", after=["b", "c"]), item("c", after=["a"]), item("x"), item("b", after=["a"]), item("a"))
    assert [planned.item for planned in mission.items] == ["x", "a", "c", "b", "d"]
    given_order = plan(item("b"), item("a"), item("c", after=["b"]))
    assert [planned.item for planned in given_order.items] == ["b", "a", "c"]


@st.composite
def graphs(draw: st.DrawFn) -> list[WorkSpec]:
    """Any graph without a cycle, written in any order."""
    count = draw(st.integers(1, 20))
    work = [
        item(f"i{index}", after=[f"i{other}" for other in sorted(draw(st.sets(st.integers(0, index - 1), max_size=4)))])
        if index
        else item("i0")
        for index in range(count)
    ]
    return draw(st.permutations(work))


@given(graphs())
def test_no_item_stands_before_what_it_waits_for(work: list[WorkSpec]) -> None:
    mission = plan(*work)
    seen: set[str] = set()
    for planned in mission.items:
        assert seen.issuperset(planned.after)
        seen.add(planned.item)
    assert len(seen) == len(work)


@given(graphs(), st.data())
def test_an_edge_back_is_refused_as_a_cycle(work: list[WorkSpec], data: st.DataObject) -> None:
    after = {one.id: list(one.after) for one in work}
    last = data.draw(st.sampled_from(work)).id
    reached = [last]
    for name in reached:
        reached += [other for other in after[name] if other not in reached]
    first = data.draw(st.sampled_from(reached))
    after[first] = [*(name for name in after[first] if name != last), last]
    message = refusal(*(item(name, after=others) for name, others in after.items()))
    assert "is the item itself" in message if first == last else "after: cycle i" in message


# --- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ([item("a"), item("b"), item("a")], 'work[2] (id "a"): id: is also that of work[0]'),
        (
            [item("a"), item("b", after=["zz"])],
            'work[1] (id "b"): after: unknown item "zz"; name an item of this Mission',
        ),
        ([item("merge"), item("b", after=["mrege"])], 'after: unknown item "mrege"; did you mean "merge"?'),
        ([item("a", after=["a"])], 'work[0] (id "a"): after: "a" is the item itself'),
        ([item("a"), item("b", after=["a", "a"])], 'work[1] (id "b"): after: "a" is there twice; name it once'),
        ([item("a", after=["b"]), item("b", after=["a"])], 'work[0] (id "a"): after: cycle a -> b -> a, each waiting'),
        (
            [item("x", after=["c"]), item("c", after=["b"]), item("a", after=["c"]), item("b", after=["a"])],
            'work[1] (id "c"): after: cycle c -> b -> a -> c, each waiting',
        ),
        (
            [item("a", capability="No Such!")],
            "work[0] (id \"a\"): capability: 'No Such!' is not a capability name; use 1 to 64",
        ),
        ([item("a", capability="")], "work[0] (id \"a\"): capability: '' is not a capability name"),
        ([item("x" * 257)], f'work[0] (id "{"x" * 40}..."): id: 257 bytes, must be 1 to 256'),
        (
            [item("b", inputs={"items": [{"id": 2**64}]})],
            'work[0] (id "b"): inputs.items[0].id: 18446744073709551616 is',
        ),
        ([item("b", inputs={1: 2})], 'work[0] (id "b"): inputs: key 1 is of type int, must be str'),
        (
            [item("b", inputs={"f": print})],
            'work[0] (id "b"): inputs.f: a value of type builtin_function_or_method cannot',
        ),
        (
            [item("b", inputs={"blob": "x" * (2 << 20)})],
            'work[0] (id "b"): inputs: 2,097,163 bytes when packed, at most 1,048,576; keep large data elsewhere',
        ),
        (
            [item("b", deadline=datetime(2029, 12, 31, tzinfo=UTC))],
            'work[0] (id "b"): deadline: 2029-12-31T00:00:00+00:00 is in the past, the store\'s time is 2030-01-01T',
        ),
        (
            [item("b", deadline=datetime(9999, 1, 1, tzinfo=UTC))],
            'work[0] (id "b"): deadline: 9999-01-01T00:00:00+00:00 is too',
        ),
    ],
)
def test_what_could_not_be_stored_or_never_end_is_refused(work: list[WorkSpec], said: str) -> None:
    message = refusal(*work)
    assert said in message
    assert len(message) < 400


def test_a_long_cycle_is_shown_cut() -> None:
    work = [item(f"i{index}", after=[f"i{(index + 1) % 256}"]) for index in range(256)]
    assert "cycle i0 -> i1 -> i2 -> i3 -> i4 -> i5 -> ... 256 items ... -> i0, each" in refusal(*work)


def test_the_mission_s_own_id_actor_account_and_deadline_are_checked() -> None:
    assert refusal(item("a"), account="x" * 257) == "account: 257 bytes, must be 1 to 256"
    assert refusal(item("a"), actor="") == "account: 0 bytes, must be 1 to 256"
    assert refusal(item("a"), actor="", account="acme") == "actor: 0 bytes, must be 1 to 256"
    assert refusal(item("a"), deadline=NOW).startswith("deadline: 2030-01-01T00:00:00+00:00 is in the past")
    assert plan(item("a"), deadline=NOW + timedelta(milliseconds=1)).deadline_ms == NOW_MS + 1
    spec = MissionSpec(objective="x", work=[item("a")])
    with pytest.raises(Misuse, match=r"^id: 0 bytes"):
        plan_mission(spec, mission_id="", actor="ann", now_ms=NOW_MS)


def test_too_many_that_wait_for_one_are_refused() -> None:
    waiting = [item(f"i{index}", after=["a"]) for index in range(DEPENDENTS_MAX)]
    assert len(plan(item("a"), *waiting).items) == DEPENDENTS_MAX + 1
    message = refusal(item("a"), *waiting, item("one more", after=["a"]))
    assert message.startswith('work[0] (id "a"): 16,385 items wait for it, at most 16,384; put items in between')


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs: its work, however busy the machine is."""
    lines = 0

    def trace(_frame: FrameType, event: str, _given: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def test_planning_stays_near_linear() -> None:
    """Eight times as many items, the longest chain there can be: not sixty-four times the work."""

    def work_for(count: int) -> int:
        work = [item(f"i{index}", after=[f"i{index - 1}"] if index else []) for index in range(count)]
        return lines_run(lambda: plan(*work))

    assert work_for(8_000) < 9 * work_for(1_000)


def test_a_cycle_as_long_as_the_mission_is_found_in_no_more_work_than_a_few_looks_at_each_item() -> None:
    def work_for(count: int) -> int:
        work = [item(f"i{index}", after=[f"i{(index + 1) % count}"]) for index in range(count)]

        def refuse() -> None:
            assert f"... {count} items ..." in refusal(*work)

        return lines_run(refuse)

    assert work_for(16_000) < 9 * work_for(2_000)


def test_among_many_names_nobody_guesses() -> None:
    work = [item(f"i{index}") for index in range(6_000)]
    message = refusal(*work, item("z", after=["i99999"]))
    assert message.endswith('after: unknown item "i99999"; name an item of this Mission, or leave it out')


def test_a_growing_mission_is_planned_as_such() -> None:
    mission = plan(open=True, keep_results_s=60)
    assert (mission.items, mission.open, mission.keep_results_s) == ((), True, 60)
    assert not plan(item("a")).open


def test_a_standing_mission_is_the_same_for_everybody_and_fits_its_account() -> None:
    first, again = plan_standing("acme \N{ROCKET}", actor="ann"), plan_standing("acme \N{ROCKET}", actor="bob")
    assert (first.digest, first.mission) == (again.digest, "jobs:acme \N{ROCKET}")
    assert (first.open, first.items, name_of(first.account)) == (True, (), "acme \N{ROCKET}")
    assert plan_standing("other", actor="ann").digest != first.digest
    assert standing_id("x" * 251) == "jobs:" + "x" * 251
    with pytest.raises(Misuse, match=r"^account: 252 bytes, at most 251 for one-off jobs"):
        standing_id("x" * 252)
    with pytest.raises(Misuse, match=r"^account: 0 bytes"):
        standing_id("")


# --- the digest ------------------------------------------------------------------------------------------------------


def test_the_digest_does_not_depend_on_time_actor_or_order() -> None:
    first = plan(item("a", inputs={"x": 1, "y": {"p": 1, "q": (2, 3)}}), item("b"), account="acme")
    again = plan(
        item("b"),
        item("a", inputs={"y": {"q": [2, 3], "p": 1}, "x": 1}),
        account="acme",
        actor="bob@other",
        now_ms=NOW_MS + 5_000,
    )
    assert again.digest == first.digest
    assert len(first.digest) == 32


BASE: dict[str, Any] = {"inputs": {"x": 1}, "after": ["first"]}
CHANGED_ITEMS: list[dict[str, Any]] = [
    {"inputs": {"x": 2}},
    {"inputs": {"x": True}},
    {"inputs": {}},
    {"after": []},
    {"capability": "other"},
    {"slots": 2},
    {"urgency": "high"},
    {"business_impact": 1},
    {"start_by_s": 61},
    {"deadline": NOW + timedelta(days=1)},
    {"not_before": NOW + timedelta(days=1)},
    {"not_before": timedelta(seconds=1)},
    {"retry": 4},
    {"timeout_s": 10.0},
]
CHANGED_MISSIONS: list[dict[str, Any]] = [
    {"objective": "other"},
    {"account": "other"},
    {"weight": 2},
    {"deadline": NOW + timedelta(days=30)},
    {"open": True},
    {"keep_results_s": 60},
    {"budget_slot_s": 60},
]


@pytest.mark.parametrize("change", CHANGED_ITEMS)
def test_the_digest_tells_other_items_apart(change: dict[str, Any]) -> None:
    assert plan(item("first"), item("a", **{**BASE, **change})).digest != plan(item("first"), item("a", **BASE)).digest


@pytest.mark.parametrize("change", CHANGED_MISSIONS)
def test_the_digest_tells_other_missions_apart(change: dict[str, Any]) -> None:
    assert plan(item("a"), **change).digest != plan(item("a")).digest


PROGRAM = """
from treadle.coordinator.core.missions import plan_mission
from treadle.coordinator.specs import MissionSpec, WorkSpec
inputs = {name: {"n": 1} for name in {"one", "two", "three", "four", "five", "six"}}
work = [WorkSpec(id=name, capability="index", inputs=inputs) for name in {"a", "b", "c", "d", "e"}]
spec = MissionSpec(objective="x", account="acme", work=work)
print(plan_mission(spec, mission_id="m", actor="ann", now_ms=1893456000000).digest)
"""
DIGEST = "f7c12654aba4328ea150e2515ad78a77"
"""Pinned: another form of the content would turn each repeated submission into a collision."""


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_digest_is_the_same_in_every_process_whatever_its_hash_seed(seed: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
    )
    assert (ran.stderr, ran.stdout.strip()) == ("", DIGEST)
