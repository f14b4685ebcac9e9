"""Whether the policy grants a Mission what it asks for, what is said where it does not, what a person must approve. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from treadle.shared.errors import Misuse, Refused
from treadle.shared.model import NewItem, NewMission, Risk
from treadle.shared.names import name_of
from treadle.shared.policy import Policy

from .readable import times
from .wording import quoted


def check_granted(policy: Policy, mission: NewMission) -> None:
    """Misuse where its class or its weight is more than its account is granted, naming both."""
    known = [name for name, _ in policy.classes]
    if mission.priority_class not in known:
        raise Misuse(
            f"priority_class: {quoted(mission.priority_class)} is no class of the policy; use one of {', '.join(known)}"
        )
    account = quoted(name_of(mission.account))
    allowed = policy.account(mission.account).classes
    if mission.priority_class not in allowed:
        raise Misuse(
            f"priority_class: the policy does not grant {quoted(mission.priority_class)} to account {account}; "
            f"use one of {', '.join(allowed)}"
        )
    most = policy.mission(mission.account, mission.group).weight_max
    if mission.weight > most:
        raise Misuse(
            f"weight: {mission.weight:g}, but the policy grants this Mission of account {account} at most {most:g} (weight_max)"
        )


def over_quota(refused: Refused) -> Refused:
    """A refusal for too many items, in the words of who submits: whose bound, how many there are, and what to do."""
    of = refused.details
    who = (
        f"mission {quoted(name_of(of['mission']))}" if "mission" in of else f"account {quoted(name_of(of['account']))}"
    )
    has, coming = int(of["unfinished"]), int(of["coming"])
    text = (
        f"{who} has {times(has, 'item')} that {'has' if has == 1 else 'have'} not ended, and {coming:,} more would be over "
        f"the {int(of['bound']):,} that the policy grants (queued); try again once enough have ended, or have the policy "
        "grant more (docs/policy.md)"
    )
    return Refused(text, code=refused.code, details=of)


def gated(policy: Policy, mission: NewMission) -> NewMission:
    """The Mission, with those of its items waiting for Approval that the policy wants approved."""
    return replace(mission, items=with_gates(policy, mission.items))


def with_gates(policy: Policy, items: Sequence[NewItem]) -> tuple[NewItem, ...]:
    """The items, each that the policy wants approved waiting for it; their digests are of what was asked for."""
    if policy.approval.risk is None:
        return tuple(items)
    return tuple([replace(item, gates="approval") if policy.wants_approval(item.risk) else item for item in items])


def bears_risk(items: Iterable[NewItem]) -> bool:
    """Whether the policy has to be asked about any of them."""
    return any(item.risk is not Risk.NONE for item in items)
