"""Which wide item slots are kept free for, until when others may use them, and when that is over (scheduler.md rule 8). Pure.

the least key does not fit what is free -> Reservation -> only what must end before t_R -> it fits, and is taken first

Without it a wide item would wait for ever behind narrow ones that fill each slot as it gets free. How long a kept slot is
idle is bounded by the longest run that goes on when the item's turn comes: from then on nothing is started that may outlast it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, ItemId
from treadle.shared.resources import Resources, covers

from .nodes import Leaf

_SAID = re.compile(r"[*+&]")


class Wide(NamedTuple):
    """The first item of a Group whose turn it is, and which needs more slots or resources than are free."""

    partition: int
    group: GroupId
    capability: Capability
    item: ItemId
    width: int
    resources: Resources = ()


class Besides(NamedTuple):
    """Resources of a Worker: all that it has, what no run uses, and what of that no unanswered turn may fill either."""

    all: Resources = ()
    unused: Resources = ()
    spare: Resources = ()


NOTHING = Besides()


@dataclass(frozen=True, slots=True)
class Reservation:
    """One Worker's, of what it has free and what gets free, until there is enough for a wide item.

    Where slots are missing it is of all of them; where only resources are, of those that it needs and all its slots but one.
    """

    wide: Wide
    until_ms: int
    """t_R in the store's time, set once: what must be over before may use them meanwhile."""

    def lets_in(self, entry: DirectoryEntry, now_ms: int) -> bool:
        """Whether the first item of a Group is cut off before t_R, whatever it does; never judged by an estimate."""
        return entry.head_timeout_ms > 0 and now_ms + entry.head_timeout_ms < self.until_ms


def wide_of(leaf: Leaf) -> Wide:
    """A Group's first item, as what slots may be kept for."""
    entry = leaf.in_order()[0]
    return Wide(leaf.partition, leaf.group, entry.capability, entry.head_item, entry.head_width, entry.head_needs)


def open_to(entry: DirectoryEntry, agent: AgentId) -> DirectoryEntry:
    """What of a Group this Worker may take from: where another keeps slots for its first item, what is behind that."""
    return entry if entry.head_holder in ("", agent) else behind(entry)


def behind(entry: DirectoryEntry) -> DirectoryEntry:
    """A Group without its first item; what the next one needs its directory does not tell."""
    return replace(entry, takeable=max(0, entry.takeable - 1), head=_SAID.split(entry.head, maxsplit=1)[0])


def gathers(needs: Resources) -> bool:
    """Whether what is needed gets free bit by bit; a single one its turn alone gives to whoever comes first."""
    return sum(count for _, count in needs) > 1


def slots_for(wide: Wide, spare: Resources) -> int:
    """How many slots are kept for it: while resources are missing all but the one that comes with them, as a run ends."""
    return wide.width if covers(spare, wide.resources) else wide.width - 1


def expected_ms(width: int, free: int, runs: Iterable[tuple[int, int]], now_ms: int) -> int:
    """t_R: when so many slots are expected to be free; `runs`: of each when it is expected to end, and its width."""
    at_ms = now_ms
    for end_ms, freed in sorted(runs):
        if free >= width:
            break
        free, at_ms = free + freed, max(at_ms, end_ms)
    return at_ms


def still_first(wide: Wide, leaf: Leaf | None, slots: int, now_ms: int) -> bool:
    """Whether slots are kept for it any longer: it heads its Group, may be taken, and fits this Worker and its quotas."""
    if leaf is None or wide.width > slots or not leaf.is_ready(now_ms):
        return False
    return wide_of(leaf) == wide and all(node.slots_left >= wide.width for node in leaf.path())
