"""What a policy grants to whom: the first rule that matches, and the default where none does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.model import Risk
from treadle.shared.names import token
from treadle.shared.policy import (
    DEFAULT_POLICY,
    AccountRule,
    Approval,
    MissionRule,
    Policy,
    Rate,
    Rule,
    covers,
    matches,
)

PATTERNS = st.text("ab*", max_size=6)
NAMES = st.text("abc", max_size=8)


def test_without_a_policy_all_are_equal_and_nothing_is_capped() -> None:
    assert DEFAULT_POLICY.version == 0
    assert DEFAULT_POLICY.class_weight("standard") == 1.0
    assert DEFAULT_POLICY.account("acme") == AccountRule(1.0, None, None, None, ("standard",))
    assert DEFAULT_POLICY.mission("acme", "m-1") == MissionRule(None, 10.0, None, None, None)
    assert DEFAULT_POLICY.worker_slots("w-1", 4) == 4


def test_a_person_approves_what_bears_at_least_the_risk_that_the_policy_names() -> None:
    wanted = {least: [one for one in Risk if Policy(approval=Approval(least)).wants_approval(one)] for least in Risk}
    assert wanted == {
        Risk.NONE: [Risk.NONE, Risk.LOW, Risk.HIGH],
        Risk.LOW: [Risk.LOW, Risk.HIGH],
        Risk.HIGH: [Risk.HIGH],
    }
    assert not any(map(DEFAULT_POLICY.wants_approval, Risk))


def test_the_first_rule_that_matches_decides_alone() -> None:
    policy = Policy(
        accounts=(Rule("acme", AccountRule(slots=2)), Rule("acme*", AccountRule(weight=3.0, queued=7))),
        workers=(Rule("gpu-*", 1), Rule("*", 8)),
    )
    assert policy.account("acme") == AccountRule(slots=2)
    assert policy.account("acme-2") == AccountRule(weight=3.0, queued=7)
    assert policy.account("other") == AccountRule()
    assert (policy.worker_slots("gpu-1", 4), policy.worker_slots("w", 4)) == (1, 8)


def test_names_are_compared_as_people_write_them() -> None:
    policy = Policy(accounts=(Rule("Büro {1}: a/b", AccountRule(weight=2.0)),))
    assert policy.account(token("Büro {1}: a/b", field="account")).weight == 2.0


@pytest.mark.parametrize(
    ("account", "mission", "is_meant"),
    [
        ("team", "x/nightly-1", True),
        ("team", "nightly-1", False),
        ("team/x", "nightly-1", False),
        ("team", "x/", False),
    ],
)
def test_an_account_never_gets_what_a_rule_grants_to_another_ones_missions(
    account: str, mission: str, is_meant: bool
) -> None:
    policy = Policy(missions=(Rule("team/x/n*", MissionRule(slots=1)),))
    names = token(account, field="account"), token(mission, field="mission")
    assert policy.mission(*names) == (MissionRule(slots=1) if is_meant else MissionRule())


def test_a_slash_of_an_account_is_written_encoded() -> None:
    policy = Policy(missions=(Rule("team%2Fx/*", MissionRule(slots=1)),))
    assert policy.mission(token("team/x", field="account"), "m").slots == 1
    assert policy.mission("team", token("x/m", field="mission")).slots is None


def test_a_class_that_is_gone_weighs_one() -> None:
    policy = Policy(classes=(("standard", 1.0), ("urgent", 8.0)))
    assert (policy.class_weight("urgent"), policy.class_weight("gone")) == (8.0, 1.0)


def test_the_window_of_a_rate_is_whole_milliseconds() -> None:
    assert Rate(10, 60.0).window_ms == 60_000


@given(PATTERNS, NAMES)
def test_a_star_stands_for_any_characters(pattern: str, name: str) -> None:
    said = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    assert matches(pattern, name) is said


@given(PATTERNS, PATTERNS, NAMES)
def test_what_a_narrower_pattern_matches_the_wider_one_matches(wide: str, narrow: str, name: str) -> None:
    if covers(wide, narrow) and matches(narrow, name):
        assert matches(wide, name)


@given(PATTERNS, PATTERNS)
def test_where_a_pattern_does_not_cover_another_a_name_shows_it(wide: str, narrow: str) -> None:
    witness = narrow.replace("*", "c")
    assert covers(wide, narrow) or (matches(narrow, witness) and not matches(wide, witness))
