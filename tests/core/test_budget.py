"""A budget is never below 0, and what is saved of it is what a run that goes on begins with (S22)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator import specs
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.worker import OverBudget
from treadle.worker.slots import budget
from treadle.worker.slots.budget import AMOUNT_MAX, MISSIONS_MAX, ROOM, Budget, Spending, budget_of

NAMES = st.sampled_from(["tokens", "tool_calls", "cents"])
AMOUNTS = st.integers(0, 50)


@given(
    st.dictionaries(NAMES, AMOUNTS),
    st.lists(st.one_of(st.tuples(NAMES, AMOUNTS), st.sampled_from(["save", "crash", "fail"])), max_size=60),
)
def test_s22_nothing_goes_below_0_or_is_charged_twice_whatever_happens_to_the_attempts(
    limits: dict[str, int], steps: list[Any]
) -> None:
    """Against a plain account: what is spent since the last save is lost by a crash, and kept by a failure."""
    one = budget_of({"budgets": limits}, "m/a")
    state, kept = b"", one.seal(b"")
    spent: dict[str, int] = {}
    saved: dict[str, int] = {}
    for step in steps:
        if isinstance(step, tuple):
            name, amount = step
            reaches = name not in limits or spent.get(name, 0) + amount <= limits[name]
            if reaches:
                one.spend(name, amount)
                spent[name] = spent.get(name, 0) + amount
            else:
                with pytest.raises(OverBudget) as over:
                    one.spend(name, amount)
                said = (over.value.dimension, over.value.asked, over.value.left)
                assert said == (name, amount, limits[name] - spent.get(name, 0))
        elif step == "save":
            state += b"."
            kept, saved = one.seal(state), dict(spent)
        else:
            if step == "fail" and not one.is_saved:
                kept, saved = one.seal(state), dict(spent)
            one = budget_of({"budgets": limits}, "m/a")
            assert one.open(kept, "Checkpoint") == state
            spent = dict(saved) if limits else {}
        assert {name: amount for name, amount in one.spent.items() if amount} == {
            name: amount for name, amount in spent.items() if amount
        }
        assert all(one.left(name) == limit - spent.get(name, 0) >= 0 for name, limit in limits.items())


def test_s22_threads_that_spend_at_once_never_spend_more_than_there_is() -> None:
    one, made = Budget({"tokens": 1_000}), list[int]()

    def spend() -> None:
        done = 0
        while True:
            try:
                one.spend("tokens", 3)
            except OverBudget:
                made.append(done)
                return
            done += 1

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == 333
    assert one.left("tokens") == 1


def test_a_budget_that_does_not_reach_says_what_is_left_and_is_final() -> None:
    one = Budget({"tokens": 10_000})
    one.spend("tokens", 9_920)
    with pytest.raises(OverBudget, match=r"^budget tokens: 120 asked, 80 left of 10,000; give the item more") as over:
        one.spend("tokens", 120)
    assert not over.value.retryable
    one.spend("tokens", 80)
    assert one.left("tokens") == 0


def test_without_a_budget_it_is_only_counted_and_a_checkpoint_is_the_state_alone() -> None:
    one = Budget()
    one.spend("tokens", AMOUNT_MAX)
    assert (one.left("tokens"), one.here) == (None, {"tokens": AMOUNT_MAX})
    assert one.seal(b"state") == b"state" == one.open(b"state", "it")
    assert one.is_saved


@pytest.mark.parametrize(
    ("dimension", "amount", "said"),
    [
        (7, 1, "dimension 7 is not a name such as 'tokens'"),
        ("To kens", 1, "dimension 'To kens' is not a name"),
        ("tokens", -1, "tokens: -1, must be a whole number, 0 to 1,000,000,000,000"),
        ("tokens", 1.5, "tokens: 1.5, must be a whole number"),
        ("tokens", True, "tokens: True, must be a whole number"),
        ("tokens", AMOUNT_MAX + 1, "must be a whole number, 0 to"),
    ],
)
def test_what_cannot_be_spent_is_refused(dimension: Any, amount: Any, said: str) -> None:
    one = Budget({"tokens": 5})
    with pytest.raises(Misuse, match=said):
        one.spend(dimension, amount)
    assert one.left("tokens") == 5


def test_an_item_spends_in_so_many_dimensions_and_no_more() -> None:
    one = Budget()
    for number in range(32):
        one.spend(f"d{number}", 1)
    with pytest.raises(Misuse, match="d32: the 33th dimension of one item"):
        one.spend("d32", 1)


@pytest.mark.parametrize(
    "raw",
    [
        {"state": b"x"},
        {"state": "x", "spent": {}},
        {"state": b"x", "spent": {"tokens": -1}},
        {"state": b"x", "spent": {"tokens": 1.5}},
        {"state": b"x", "spent": {f"d{number}": 1 for number in range(33)}},
        [],
    ],
)
def test_a_checkpoint_that_says_nothing_of_what_was_spent_is_not_taken_for_unspent(raw: object) -> None:
    with pytest.raises(Corrupt, match="Checkpoint of m/a: is no state with what was spent"):
        Budget({"tokens": 5}).open(codec.pack(raw, field="x", limit=9_000), "Checkpoint of m/a")


@pytest.mark.parametrize("budgets", [7, {"tokens": -1}, {"tokens": "5"}, {f"d{number}": 1 for number in range(17)}])
def test_a_contract_whose_budgets_are_none_is_not_taken_for_unlimited(budgets: object) -> None:
    with pytest.raises(Corrupt, match="contract of m/a: its budgets are"):
        budget_of({"budgets": budgets}, "m/a")


def test_a_state_that_leaves_no_room_for_what_was_spent_is_refused_by_name() -> None:
    with pytest.raises(Misuse, match="checkpoint with what its run has spent"):
        Budget({"tokens": 5}).seal(bytes(codec.CHECKPOINT_MAX))


def test_s22_what_was_spent_is_not_taken_for_saved_where_its_checkpoint_was_refused() -> None:
    one = Budget({"tokens": 5})
    one.spend("tokens", 5)
    with pytest.raises(Misuse, match="checkpoint with what its run has spent"):
        one.seal(bytes(codec.CHECKPOINT_MAX))
    assert not one.is_saved
    later = Budget({"tokens": 5})
    assert (later.open(one.seal(b"state"), "it"), later.left("tokens")) == (b"state", 0)


def test_s22_a_state_that_was_saved_once_has_room_for_whatever_is_spent_later() -> None:
    one, state = Budget({"tokens": AMOUNT_MAX}), bytes(codec.CHECKPOINT_MAX - ROOM)
    one.seal(state)
    for number in range(2 * budget.DIMENSIONS_MAX):
        one.spend(f"{number:02}".ljust(64, "x"), AMOUNT_MAX)
    assert Budget({"tokens": AMOUNT_MAX}).open(one.seal(state), "it") == state


def test_a_state_that_was_saved_with_less_room_is_sealed_again_as_far_as_it_fits() -> None:
    one = Budget({"tokens": 5})
    one.spend("tokens", 5)
    assert Budget({"tokens": 5}).open(one.seal(bytes(codec.CHECKPOINT_MAX - 100), is_new=False), "it")
    with pytest.raises(
        Misuse, match=r"checkpoint with what its run has spent: .* bytes when packed, at most 1,048,576"
    ):
        one.seal(bytes(codec.CHECKPOINT_MAX - 10), is_new=False)


def test_what_is_only_counted_stands_still_at_its_bound_and_is_read_again() -> None:
    one = Budget({"tokens": 5})
    for _ in range(3):
        one.spend("bytes", AMOUNT_MAX)
    later = Budget({"tokens": 5})
    later.open(one.seal(b"state"), "it")
    assert later.spent == {"bytes": AMOUNT_MAX}


def test_a_worker_adds_up_what_its_last_missions_spent() -> None:
    spending = Spending()
    assert dict(spending.add("m0", {"tokens": 5})) == {"tokens": 5}
    assert dict(spending.add("m0", {"tokens": 2, "tool_calls": 1})) == {"tokens": 7, "tool_calls": 1}
    for number in range(1, MISSIONS_MAX + 1):
        spending.add(f"m{number}", {"tokens": number})
    assert dict(spending.of("m0")) == {}, "the oldest is forgotten"
    assert dict(spending.of("m7")) == {"tokens": 7}


def test_what_may_be_asked_for_is_what_a_worker_takes() -> None:
    assert (specs.AMOUNT_MAX, specs.BUDGETS_MAX) == (budget.AMOUNT_MAX, budget.DIMENSIONS_MAX)
