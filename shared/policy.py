"""What an Organization's policy grants: weights, quotas, classes, Slots, when to preempt, how often to disclose. Pure.

A rule is a pattern and what it grants; the first one that matches decides, alone: rules are not merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .model import Risk
from .names import name_of
from .usage import Queued

STANDARD_CLASS = "standard"
"""The class of a Mission that names none; it is always there."""
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000.0
"""Service divided by a smaller weight would not stay exact in the store."""
GRANTED_MAX = 10.0
"""The largest weight a Mission may have where no rule says otherwise."""

Granted = TypeVar("Granted")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `starts` starts in each window of `per_s` seconds of the store's time."""

    starts: int
    per_s: float

    @property
    def window_ms(self) -> int:
        return int(self.per_s * 1000)


@dataclass(frozen=True, slots=True)
class AccountRule:
    """What an account is granted; None is no cap."""

    weight: float = 1.0
    slots: int | None = None
    """Sum of the widths of what runs at once."""
    queued: int | None = None
    """Items that have not ended."""
    rate: Rate | None = None
    classes: tuple[str, ...] = (STANDARD_CLASS,)
    """The classes its Missions may name."""


@dataclass(frozen=True, slots=True)
class MissionRule:
    """What a Mission's Group is granted; None is no cap."""

    weight: float | None = None
    """None: as its Mission was granted at its submission."""
    weight_max: float = GRANTED_MAX
    """The largest weight that a submission may ask for."""
    slots: int | None = None
    queued: int | None = None
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """When a run may be asked to yield (scheduler.md, rule 9), and when a warning says that it has not."""

    enabled: bool = True
    minimum_run_s: float = 30.0
    overdue_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Disclosure:
    """How often at most an item's forecast is told anew."""

    interval_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Approval:
    """Which items a person has to approve before anybody starts them, besides those that ask for it."""

    risk: Risk | None = None
    """Those of at least this risk; None: no others."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[Granted]):
    """What is granted to the names that `match` matches."""

    match: str
    """A name in which `*` stands for any characters; of a Mission `account/mission`, a slash of the account's being %2F."""
    grant: Granted


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the policy; every question is answered by names as the store keeps them, which are tokens."""

    version: int = 0
    """0: the default policy, which no store holds."""
    classes: tuple[tuple[str, float], ...] = ((STANDARD_CLASS, 1.0),)
    accounts: tuple[Rule[AccountRule], ...] = ()
    missions: tuple[Rule[MissionRule], ...] = ()
    workers: tuple[Rule[int], ...] = ()
    preemption: Preemption = field(default_factory=Preemption)
    disclosure: Disclosure = field(default_factory=Disclosure)
    approval: Approval = field(default_factory=Approval)

    def class_weight(self, name: str) -> float:
        """The weight of a class; 1 for one that an older version had, so that its Groups go on."""
        return next((weight for known, weight in self.classes if known == name), 1.0)

    def account(self, token: str) -> AccountRule:
        """What an account is granted."""
        name = name_of(token)
        return next((rule.grant for rule in self.accounts if matches(rule.match, name)), AccountRule())

    def mission(self, account: str, group: str) -> MissionRule:
        """What the Group of a Mission of an account is granted."""
        names = name_of(account), name_of(group)
        return next((rule.grant for rule in self.missions if _matches_both(rule.match, names)), MissionRule())

    def queued(self, account: str, group: str) -> Queued:
        """How many items that have not ended an account and one of its Missions may have."""
        return Queued(self.account(account).queued, self.mission(account, group).queued)

    @property
    def bounds_queued(self) -> bool:
        """Whether anybody is granted only so many items that have not ended."""
        bounds = [*(rule.grant.queued for rule in self.accounts), *(rule.grant.queued for rule in self.missions)]
        return any(bound is not None for bound in bounds)

    def worker_slots(self, agent: str, configured: int) -> int:
        """How many Capacity Slots a Worker has, which was started with `configured` ones."""
        name = name_of(agent)
        return next((rule.grant for rule in self.workers if matches(rule.match, name)), configured)

    def wants_approval(self, risk: Risk) -> bool:
        """Whether a person has to approve an item of this risk."""
        order = tuple(Risk)
        least = self.approval.risk
        return least is not None and order.index(risk) >= order.index(least)


DEFAULT_POLICY = Policy()
"""What holds where no policy was applied: one class, equal accounts, no caps."""


def matches(pattern: str, name: str) -> bool:
    """Whether `name` is `pattern`, each `*` of it standing for any characters; in time linear in both."""
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    if not name.startswith(first):
        return False
    at = len(first)
    *middle, last = rest
    for part in middle:
        if (found := name.find(part, at)) < 0:
            return False
        at = found + len(part)
    return len(name) - at >= len(last) and name.endswith(last)


def split(pattern: str) -> tuple[str, str]:
    """The pattern of an account and that of its Missions, of an `account/mission`."""
    account, _, mission = pattern.partition("/")
    return account.replace("%2F", "/"), mission


def covers(wide: str, narrow: str) -> bool:
    """Whether `wide` matches every name that `narrow` matches: exactly where it matches a `narrow` with unheard-of letters."""
    return matches(wide, narrow.replace("*", "\0"))


def _matches_both(pattern: str, names: tuple[str, str]) -> bool:
    return all(matches(part, name) for part, name in zip(split(pattern), names, strict=True))
