"""What a quarantine after a change of the store's server keeps from being started, and until when (design.md 3.11). Pure."""

from __future__ import annotations

from treadle.shared.facts import NEVER_MS
from treadle.shared.model import Grant, GroupId, ItemId


class Quarantine:
    """What one session asked to start, and the partitions in which it may not for now: it keeps what it owns there."""

    def __init__(self) -> None:
        self._asked: dict[tuple[GroupId, ItemId], Grant] = {}
        self._until_ms: dict[int, int] = {}
        """By partition; one where a quarantine is over stays, it holds nothing."""

    def ask(self, grant: Grant) -> Grant:
        """Remembers what is asked to start; gives it back."""
        self._asked[grant.group, grant.item] = grant
        return grant

    def answered(self, group: GroupId, item: ItemId) -> Grant:
        """What was asked to start, and is not any more."""
        return self._asked.pop((group, item))

    def begins(self, partition: int, until_ms: int) -> bool:
        """Notes how long a partition's lasts; whether that is news."""
        known_ms = self._until_ms.get(partition, 0)
        self._until_ms[partition] = max(known_ms, until_ms)
        return until_ms > known_ms

    def holds(self, grant: Grant, now_ms: int) -> bool:
        """Whether this may not be started yet."""
        return self._until_ms.get(grant.partition, 0) > now_ms


def told(until_ms: int, now_ms: int) -> str:
    """How long one lasts, for a line of the log."""
    if until_ms >= NEVER_MS:
        return "quarantine until a person says `treadle new-incarnation`: its store went back in time"
    return (
        f"quarantine for {(until_ms - now_ms) / 1000:.1f} s more, since its server changed: what is owned starts then"
    )
