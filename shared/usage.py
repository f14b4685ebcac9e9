"""The service of a Group, account or class, as the store counts it (scheduler.md, rule 1), and what may be taken of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

STARTS_EPOCH_MS = 1_735_689_600_000
"""Starts are summed relative to 2025-01-01, so that the sums stay exact integers (design.md 3.10)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The service of one node (Group, account or class), over all Workers, in slot-milliseconds (scheduler.md, rule 1)."""

    used_ms: int = 0
    """Of the runs that ended."""
    running: int = 0
    """Sum of the widths that run now."""
    starts_ms: int = 0
    """Sum of width * (start - STARTS_EPOCH_MS) of what runs now."""
    estimate_ms: int = 0
    """Sum of width * e^ of what runs now, e^ being what it was at each start."""
    typical_ms: int = 0
    """e^: the running estimate of one run, in milliseconds; 0 is cold."""
    offset: int = 0
    """Virtual time given at entries, in slot-milliseconds per unit of weight."""
    entry: int = 0
    """How often this node became ready after it was not."""
    entry_ms: int = 0
    served: bool = False
    """Whether something was accepted since that entry."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What one partition knows of the service of a class (`c:<class>`) or of an account in a class (`a:<class>:<account>`)."""

    partition: int
    node: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Queued:
    """How many items that have not ended an account and a Mission may have; None is no bound."""

    account: int | None = None
    mission: int | None = None
    version: int | None = None
    """Of the policy that says so, where a store that knows of a newer one is to refuse; None: it is not asked."""


UNBOUNDED = Queued()


class Limits(NamedTuple):
    """What stops a take before the next item (scheduler.md, rules 2 and 5); None is no limit.

    `charge_...`: the node's charge in the item's partition, `used + max(n*t - s, e)` in slot-milliseconds, above which nothing
    more is given. `slots_...`: the widths that may run there. `rate_...`: how many may be taken in one window of Redis' time,
    and its length in milliseconds.
    """

    charge_group: int | None = None
    charge_account: int | None = None
    charge_class: int | None = None
    slots_group: int | None = None
    slots_account: int | None = None
    rate_group: tuple[int, int] | None = None
    rate_account: tuple[int, int] | None = None

    def wire(self) -> str:
        """As `take.lua` reads it: `-` where nothing is limited, else seven fields."""
        numbers = (self.charge_group, self.charge_account, self.charge_class, self.slots_group, self.slots_account)
        rates = (self.rate_group, self.rate_account)
        fields = [
            *("-" if number is None else str(number) for number in numbers),
            *("-" if rate is None else f"{rate[0]}/{rate[1]}" for rate in rates),
        ]
        return "-" if set(fields) == {"-"} else ",".join(fields)
