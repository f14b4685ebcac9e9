"""Which share of the slots a Group is due, can have and had."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.coordinator.core.sharing import Claim, Share, attainable, fill, shares
from treadle.shared.facts import GroupFacts, WorkerFacts
from treadle.shared.model import AgentId, Capability, GroupId
from treadle.shared.policy_file import parse

bounds = st.lists(
    st.tuples(st.floats(0.001, 1_000.0), st.one_of(st.integers(0, 64).map(float), st.just(math.inf))), min_size=1
)
slots = st.integers(1, 256)
claims = st.lists(
    st.builds(
        lambda of, account, weight, most: Claim(
            of, account, (1.0, 1.0, weight), most, 8.0 if account == "a" else math.inf
        ),
        st.sampled_from(["standard", "urgent"]),
        st.sampled_from("ab"),
        st.floats(0.001, 1_000.0),
        st.one_of(st.integers(0, 64).map(float), st.just(math.inf)),
    ),
    min_size=1,
)


@given(bounds, slots)
def test_what_is_attainable_sums_to_all_slots_or_to_all_caps(bounds: list[tuple[float, float]], slots: int) -> None:
    found = fill(slots, bounds)
    assert math.fsum(found) == pytest.approx(min(slots, sum(most for _, most in bounds)))
    assert all(0 <= has <= most for has, (_, most) in zip(found, bounds, strict=True))


@given(bounds, slots)
def test_who_is_not_capped_has_the_most_for_its_weight_and_all_of_them_the_same(
    bounds: list[tuple[float, float]], slots: int
) -> None:
    found = fill(slots, bounds)
    by_weight = [has / weight for has, (weight, _) in zip(found, bounds, strict=True)]
    for has, (_, most), mine in zip(found, bounds, by_weight, strict=True):
        if has < most:
            assert mine == pytest.approx(max(by_weight), rel=1e-6)


@given(claims, slots)
def test_on_three_levels_nothing_exceeds_a_cap_and_no_slot_is_left_that_somebody_can_use(
    claims: list[Claim], slots: int
) -> None:
    found = attainable(claims, slots)
    assert all(has <= claim.most for has, claim in zip(found, claims, strict=True))
    caps: dict[tuple[str, str], float] = {}
    for claim in claims:
        place = claim.priority_class, claim.account
        caps[place] = min(claim.account_most, caps.get(place, 0.0) + claim.most)
    assert math.fsum(found) == pytest.approx(min(slots, sum(caps.values())))


def test_the_weights_of_class_account_and_group_multiply() -> None:
    found = attainable(
        [
            *(Claim("urgent", "x", (3.0, 1.0, 1.0)), Claim("urgent", "x", (3.0, 1.0, 4.0))),
            *(Claim("urgent", "y", (3.0, 4.0, 1.0)), Claim("standard", "x", (1.0, 1.0, 1.0))),
        ],
        1.0,
    )
    assert found == pytest.approx([0.75 * 0.2 * 0.2, 0.75 * 0.2 * 0.8, 0.75 * 0.8, 0.25])


def test_a_narrow_group_with_nearly_all_of_the_weight_leaves_the_others_equal() -> None:
    found = attainable([Claim("s", "x", (1, 1, 18), 1.0), *[Claim("s", "x", (1, 1, 1))] * 2], 16)
    assert found == pytest.approx([1.0, 7.5, 7.5])


def a_group(mission: str, account: str = "x", **fields: Any) -> GroupFacts:
    one = GroupFacts(mission, GroupId(mission), 0, "active", account, 1.0, "standard", 9, 0, 0, 1, 1, takes=("index",))
    return replace(one, **fields)


def a_worker(name: str, slots: int, *capabilities: str) -> WorkerFacts:
    return WorkerFacts(AgentId(name), 1, tuple(map(Capability, capabilities)), slots, 10_000, 0, 0)


def test_shares_are_of_the_groups_that_have_not_ended_by_policy_capability_and_what_there_is_to_take() -> None:
    policy = parse(
        '[[accounts]]\nmatch = "x"\nweight = 3\nslots = 6\n[[missions]]\nmatch = "y/narrow"\nweight = 9\n', name="p"
    )
    groups = [
        a_group("free"),
        a_group("idle", takeable=0, running=2, takes=()),
        a_group("narrow", "y", takes=("gpu~1", ">w-9")),
        a_group("ended", state="ended"),
        a_group("paused", "y", state="paused"),
    ]
    workers = [a_worker("w-1", 8, "index"), a_worker("w-2", 4, "index", "gpu~1.2.0")]
    found = shares(groups, policy, workers, {GroupId("free"): 300, GroupId("idle"): 100, GroupId("ended"): 700})
    assert found[3] == Share(None, None, None)
    live = [one for one in found if one.due is not None]
    assert [one.due for one in live] == pytest.approx([0.375, 0.375, 0.225, 0.025])
    assert [one.attainable for one in live] == pytest.approx([4 / 12, 2 / 12, 4 / 12, 0.0])
    assert [one.had for one in live] == [0.75, 0.25, 0.0, 0.0]


def test_where_no_worker_is_live_and_nothing_was_used_there_is_no_share_to_tell() -> None:
    (found,) = shares([a_group("m")], parse("", name="p"), [], {})
    assert found == Share(1.0, None, None)
