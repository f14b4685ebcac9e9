"""Which share of the slots each Group has: by its weights, by what it can use now, and in fact. Pure.

Groups, policy, Workers -> claims -> level by level `fill` -> shares
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.shared.facts import ENDED, GroupFacts, WorkerFacts
from treadle.shared.model import GroupId
from treadle.shared.names import token
from treadle.shared.policy import Policy
from treadle.shared.versions import shelf


@dataclass(frozen=True, slots=True)
class Claim:
    """Where a Group stands in the tree of class, account and Group, with its weight at each level and the slots it can use."""

    priority_class: str
    account: str
    weights: tuple[float, float, float]
    most: float = math.inf
    account_most: float = math.inf


@dataclass(frozen=True, slots=True)
class Share:
    """Of all that the Groups share which have not ended; None of one that has."""

    due: float | None
    """What its weights give it while all of them have enough to do and nothing is capped."""
    attainable: float | None
    """Of the slots of the live Workers, what it can have now; None where there is none."""
    had: float | None
    """Of the service that they had; None where there was none."""


def shares(
    groups: Sequence[GroupFacts], policy: Policy, workers: Sequence[WorkerFacts], used_ms: Mapping[GroupId, int]
) -> list[Share]:
    """The share of each Group, in their order. `workers`: the live ones; `used_ms`: the service that counts, by Group."""
    live = [one for one in groups if one.state not in ENDED]
    slots = sum(one.slots for one in workers)
    due = attainable([_claim(one, policy, None) for one in live], 1.0)
    can = attainable([_claim(one, policy, workers) for one in live], slots)
    total_ms = sum(used_ms.get(one.group, 0) for one in live)
    found = {
        one.group: Share(
            by_weight, most / slots if slots else None, used_ms.get(one.group, 0) / total_ms if total_ms else None
        )
        for one, by_weight, most in zip(live, due, can, strict=True)
    }
    return [found.get(one.group, Share(None, None, None)) for one in groups]


def attainable(claims: Sequence[Claim], slots: float) -> list[float]:
    """The slots that each Group can have, shared from the root down, so that the weights of the levels multiply.

    What a Group cannot use goes to its siblings first. The cap of an account counts in each of its classes, and two Groups that
    need the same few slots are counted as if each had them alone: then they can have less.
    """
    classes: dict[str, dict[str, list[int]]] = {}
    for index, claim in enumerate(claims):
        classes.setdefault(claim.priority_class, {}).setdefault(claim.account, []).append(index)
    found = [0.0] * len(claims)
    of_accounts = {
        (name, account): min(claims[members[0]].account_most, sum(claims[index].most for index in members))
        for name, accounts in classes.items()
        for account, members in accounts.items()
    }
    of_classes = {name: sum(of_accounts[name, account] for account in accounts) for name, accounts in classes.items()}

    def weight(members: list[int], level: int) -> float:
        return claims[members[0]].weights[level]

    for_classes = fill(
        slots, [(weight(next(iter(one.values())), 0), of_classes[name]) for name, one in classes.items()]
    )
    for (name, accounts), of_class in zip(classes.items(), for_classes, strict=True):
        bounds = [(weight(members, 1), of_accounts[name, account]) for account, members in accounts.items()]
        for members, of_account in zip(accounts.values(), fill(of_class, bounds), strict=True):
            own = fill(of_account, [(claims[index].weights[2], claims[index].most) for index in members])
            for index, given in zip(members, own, strict=True):
                found[index] = given
    return found


def fill(slots: float, bounds: Sequence[tuple[float, float]]) -> list[float]:
    """min(c, lambda * w) for each (w, c), with the lambda by which they sum to `slots`, or each c where these sum to less.

    What one gets, by that lambda, is its attainable share min(w, c / lambda) (scheduler.md).
    """
    order = sorted(range(len(bounds)), key=lambda index: bounds[index][1] / bounds[index][0])
    weights = [0.0]
    for index in reversed(order):
        weights.append(weights[-1] + bounds[index][0])
    found = [0.0] * len(bounds)
    for index in order:
        weight, most = bounds[index]
        found[index] = min(most, slots * weight / weights.pop())
        slots -= found[index]
    return found


def weight_of(one: GroupFacts, policy: Policy) -> float:
    """The weight of a Group, which may be the policy's."""
    weight = policy.mission(token(one.account, field="account"), one.group).weight
    return one.weight if weight is None else weight


def _claim(one: GroupFacts, policy: Policy, workers: Sequence[WorkerFacts] | None) -> Claim:
    """What a Group claims; without Workers by its weights alone."""
    account = token(one.account, field="account")
    of_account, own = policy.account(account), policy.mission(account, one.group)
    weights = (policy.class_weight(one.priority_class), of_account.weight, weight_of(one, policy))
    if workers is None:
        return Claim(one.priority_class, one.account, weights)
    quota = math.inf if own.slots is None else own.slots
    return Claim(
        one.priority_class,
        one.account,
        weights,
        min(quota, _reach(one, workers)),
        math.inf if of_account.slots is None else of_account.slots,
    )


def _reach(one: GroupFacts, workers: Sequence[WorkerFacts]) -> int:
    """The slots of the Workers that could take something of a Group now; where nothing is takeable those that run for it."""
    if one.state != "active" or not one.takeable:
        return one.running
    return max(one.running, sum(worker.slots for worker in workers if _may_take(worker, one.takes)))


def _may_take(worker: WorkerFacts, takes: Sequence[str]) -> bool:
    """Whether something stands in a place of the index that this Worker looks at: of its capabilities, or by its name."""
    places = {f">{worker.agent}", *(shelf(name) for name in (*worker.capabilities, *worker.versions))}
    return not places.isdisjoint(takes)
