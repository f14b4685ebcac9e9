"""What this Worker discloses of the items it owns: when they start and end, seldom, and nothing of short ones (WRK-012).

directory entries, ended runs -> histories -> forecast -> `Disclose` operations, which ride in the next turn
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treadle.shared.disclosure import Disclosure
from treadle.shared.model import Capability, DirectoryEntry, Grant, GroupId, ItemId, LeaseId
from treadle.shared.policy import DEFAULT_POLICY
from treadle.shared.store import Disclose, Outcome

from .core.forecast import History, Runs, Waits, forecast, is_material
from .slots.run import Run

FIRST_MS = 1_000
"""What has ended by then is not worth an Event more: its acceptance was its start."""
LOOK_EACH_MS = 250
AT_ONCE_MAX = 16
"""Of one look; the rest a look later."""
HISTORIES_MAX = 1_024
TYPICALS_MAX = 16_384

_Key = tuple[GroupId, ItemId, LeaseId | None]
"""One run; without a lease, the wait for it."""


@dataclass(slots=True)
class _Said:
    next_ms: int
    """Before that nothing is said of it."""
    disclosed: Disclosure | None = None
    is_asked: bool = False
    """Whether the store has not answered yet, or said that it is not ours any more."""


class Disclosing:
    """One session's histories, and its memory of what it disclosed."""

    def __init__(self, *, lease_ttl_ms: int) -> None:
        self.interval_ms = round(1000 * DEFAULT_POLICY.disclosure.interval_s)
        """An item is disclosed at most once in so long; the store holds every Worker to it."""
        self._lease_ttl_ms = lease_ttl_ms
        self._histories: dict[tuple[GroupId, Capability], History] = {}
        self._typical_ms: dict[GroupId, int] = {}
        self._said: dict[_Key, _Said] = {}
        self._looked_ms = -LOOK_EACH_MS

    def learn(self, entries: Iterable[DirectoryEntry]) -> None:
        """Notes each Group's own e^, for items of which no run was seen here."""
        typical = self._typical_ms
        for entry in entries:
            if entry.usage.typical_ms > 0:
                typical[entry.group] = entry.usage.typical_ms
        while len(typical) > TYPICALS_MAX:
            del typical[next(iter(typical))]

    def ran(self, run: Run) -> None:
        """A run is over; it counts where it came to its result from its beginning."""
        if not run.has_result or run.end is not None or run.grant.checkpoint_number:
            return
        key = (run.grant.group, run.grant.capability)
        history = self._histories.pop(key, None) or History()
        history.add(round(run.lasted_s * 1000))
        self._histories[key] = history  # the latest last
        if len(self._histories) > HISTORIES_MAX:
            del self._histories[next(iter(self._histories))]

    def due(
        self, runs: Iterable[Run], waiting: Iterable[Grant], now_ms: int, *, is_full: bool
    ) -> list[tuple[int, Disclose]]:
        """What is to be said now, by partition, of what runs, and of what is accepted and waits; `is_full`: no slot is free."""
        if 0 <= now_ms - self._looked_ms < LOOK_EACH_MS:
            return []
        self._looked_ms = now_ms
        before, self._said = self._said, {}
        found: list[tuple[int, Disclose]] = []
        for grant, lease, item in self._present(runs, waiting):
            key = (grant.group, grant.item, lease)
            begun_ms = item.since_ms if isinstance(item, Runs) else now_ms
            said = self._said[key] = before.get(key) or _Said(begun_ms + FIRST_MS)
            if said.is_asked or now_ms < said.next_ms or len(found) == AT_ONCE_MAX:
                continue
            history = self._histories.get((grant.group, grant.capability)) or History()
            typical_ms = self._typical_ms.get(grant.group, 0)
            now = forecast(history, item, now_ms, typical_ms=typical_ms, is_full=is_full)
            if said.disclosed is None or is_material(said.disclosed, now, now_ms):
                said.is_asked = True
                target = (grant.group, grant.item, grant.ownership_epoch, lease)
                found.append((grant.partition, Disclose(*target, self.interval_ms, now)))
        return found

    def answered(self, operation: Disclose, outcome: Outcome, at_ms: int) -> None:
        """What came of one, as of the store's time: recorded, too soon, or not ours any more."""
        said = self._said.get((operation.group, operation.item, operation.lease))
        if said is None:
            return
        if outcome.done:
            said.disclosed, said.is_asked, said.next_ms = operation.said, False, at_ms + operation.interval_ms
        elif outcome.code == "RATE_LIMITED":
            said.is_asked, said.next_ms = False, outcome.at_ms

    def _present(
        self, runs: Iterable[Run], waiting: Iterable[Grant]
    ) -> Iterator[tuple[Grant, LeaseId | None, Runs | Waits]]:
        for run in runs:
            if not run.is_over:
                yield run.grant, run.lease.lease_id, Runs(run.lease.expires_ms - self._lease_ttl_ms)
        for grant in waiting:
            yield grant, None, Waits(grant.start_by_ms)
