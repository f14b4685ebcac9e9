"""What a submission asks for, against what the policy grants its account."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_new_item, a_new_mission
from treadle.coordinator.core.granting import bears_risk, check_granted, gated, over_quota
from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import NewMission, Queued, Risk
from treadle.shared.policy import DEFAULT_POLICY, Approval, Policy
from treadle.shared.policy_file import parse

POLICY = parse(
    """
    classes.urgent.weight = 8
    [[accounts]]
    match = "acme"
    queued = 100
    classes = ["standard", "urgent"]
    [[missions]]
    match = "acme/*"
    weight_max = 20
    queued = 7
    """,
    name="p",
)


def asking(account: str = "acme", priority_class: str = "standard", weight: float = 1.0) -> NewMission:
    mission = a_new_mission("m-1", a_new_item("a"))
    return replace(mission, account=account, priority_class=priority_class, weight=weight)


@pytest.mark.parametrize(
    ("policy", "mission"),
    [
        (DEFAULT_POLICY, asking()),
        (DEFAULT_POLICY, asking(weight=10.0)),
        (POLICY, asking(priority_class="urgent", weight=20.0)),
        (POLICY, asking(account="other", weight=10.0)),
    ],
)
def test_what_is_granted_is_taken(policy: Policy, mission: NewMission) -> None:
    check_granted(policy, mission)


@pytest.mark.parametrize(
    ("policy", "mission", "said"),
    [
        (
            DEFAULT_POLICY,
            asking(priority_class="urgent"),
            'priority_class: "urgent" is no class of the policy; use one of standard',
        ),
        (
            POLICY,
            asking(priority_class="gold"),
            'priority_class: "gold" is no class of the policy; use one of standard, urgent',
        ),
        (
            POLICY,
            asking(account="other", priority_class="urgent"),
            'priority_class: the policy does not grant "urgent" to account "other"; use one of standard',
        ),
        (
            POLICY,
            asking(account="other", weight=10.5),
            'weight: 10.5, but the policy grants this Mission of account "other" at most 10 (weight_max)',
        ),
        (
            POLICY,
            asking(weight=21.0),
            'weight: 21, but the policy grants this Mission of account "acme" at most 20 (weight_max)',
        ),
    ],
)
def test_what_is_more_than_granted_is_refused_naming_both(policy: Policy, mission: NewMission, said: str) -> None:
    with pytest.raises(Misuse) as refused:
        check_granted(policy, mission)
    assert str(refused.value) == said


def test_what_the_policy_wants_approved_waits_for_it_and_stays_the_same_content() -> None:
    items = tuple(replace(a_new_item(risk), risk=risk, digest=f"of {risk}") for risk in Risk)
    mission = replace(asking(), items=items)
    for least, waiting in ((None, []), (Risk.LOW, ["low", "high"]), (Risk.HIGH, ["high"])):
        made = gated(replace(POLICY, approval=Approval(least)), mission)
        assert [item.item for item in made.items if item.gates == "approval"] == waiting
        assert [replace(item, gates="") for item in made.items] == list(items)
    assert bears_risk(items)
    assert not bears_risk(items[:1])


def test_how_many_items_may_wait_is_what_account_and_mission_are_granted() -> None:
    assert POLICY.queued("acme", "m-1") == Queued(100, 7)
    assert DEFAULT_POLICY.queued("acme", "m-1") == Queued(None, None)
    assert (POLICY.bounds_queued, DEFAULT_POLICY.bounds_queued) == (True, False)


@pytest.mark.parametrize(
    ("of", "who"),
    [({"account": "a%20b"}, 'account "a b" has 1 item that has'), ({"mission": "m"}, 'mission "m" has 1')],
)
def test_a_refusal_for_too_many_items_names_whose_bound_the_numbers_and_what_to_do(
    of: dict[str, str], who: str
) -> None:
    refused = over_quota(
        Refused("x", code="QUOTA_EXCEEDED", details=of | {"unfinished": "1", "coming": "2000", "bound": "2"})
    )
    assert str(refused).startswith(who)
    assert "and 2,000 more would be over the 2 that the policy grants (queued); try again once enough" in str(refused)
