"""Whether this Worker does what it was asked to do by name: it accepts only what it can credibly begin (R25, WRK-005). Pure.

    decline(asked, means, now_ms) -> None: it is accepted in its turn | the reason to decline it

What is offered to everybody needs no answer: who does not take it leaves it to others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from treadle.shared.model import Capability
from treadle.shared.versions import does

QUEUE_MAX = 64
"""Items asked for by name that may wait here, a slot; what comes beyond that is better done elsewhere."""


class Reason(StrEnum):
    """Why an offer is declined: those of the protocol's reasons that a Worker finds by itself."""

    AUTHORIZATION = "authorization"
    CAPABILITY = "capability"
    CAPACITY = "capacity"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Asked:
    """One item that is offered to this Worker by name, as the store has it."""

    capability: Capability
    width: int
    deadline_ms: int
    """0: none."""
    expires_ms: int
    """Until when the offer may be accepted; 0: it holds."""


@dataclass(frozen=True, slots=True)
class Means:
    """What the Worker has to do it with."""

    capabilities: Collection[Capability]
    """As its session registered them: each by itself, and with its version."""
    slots: int
    serves: bool
    """Whether its Mission is one of those that this Worker works for (`--groups`)."""
    before: int = 0
    """Items that run here, that wait here, or that were asked for and are not declined."""
    typical_ms: int = 0
    """How long a run of this Mission usually takes; 0: nobody knows yet."""


def decline(asked: Asked, means: Means, now_ms: int) -> Reason | None:
    """Why the offer is declined, the reason that lasts longest first; None where it is to be accepted."""
    if not means.serves:
        return Reason.AUTHORIZATION
    if not any(does(one, asked.capability) for one in means.capabilities):
        return Reason.CAPABILITY
    if asked.width > means.slots or means.before >= QUEUE_MAX * means.slots:
        return Reason.CAPACITY
    if asked.deadline_ms and asked.deadline_ms <= now_ms + means.typical_ms:
        return Reason.DEADLINE
    rounds = means.before // means.slots
    if asked.expires_ms and rounds and now_ms + rounds * means.typical_ms >= asked.expires_ms:
        return Reason.CAPACITY
    return None
