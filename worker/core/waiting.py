"""What a Worker owns and does not run: items that wait for a slot of its own, and blocked ones that may come back. Pure.

What cannot be started here soon is given back to everybody: another Worker may have a free slot (design.md 4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from treadle.shared.model import Capability, Event, Grant, GroupId, ItemId, ItemState
from treadle.shared.resources import Resources, covers, left

from .queues import Held

GIVE_BACK_S = 1.0
"""How long an accepted item waits for a slot, unless one is expected to be free within as long again."""


class Waiting:
    """The accepted items of one session in the order in which they came, and its blocked ones."""

    def __init__(self) -> None:
        self._accepted: deque[tuple[Grant, float]] = deque()
        self._blocked: dict[tuple[GroupId, ItemId], Grant] = {}
        self._typical_s: dict[Capability, float] = {}
        """How long runs of each capability took here of late."""

    def __len__(self) -> int:
        return len(self._accepted)

    @property
    def has_blocked(self) -> bool:
        """Whether something blocked may come back."""
        return bool(self._blocked)

    # --- what waits for a slot ---

    def add(self, grant: Grant, now_s: float) -> None:
        """An item that is accepted and not started."""
        self._accepted.append((grant, now_s))

    def startable(self, free: int, holds: Callable[[Grant], bool], spare: Resources = ()) -> Iterator[Grant]:
        """Takes out what may be started in so many free slots, with what else is free; nothing overtakes what does not fit.

        What is held back, by a quarantine, is no hindrance to others.
        """
        waiting, self._accepted = self._accepted, deque()
        while waiting:
            grant, since_s = waiting.popleft()
            if holds(grant):
                self._accepted.append((grant, since_s))
            elif grant.width <= free and covers(spare, grant.resources):
                free -= grant.width
                spare = left(spare, [grant.resources])
                yield grant
            else:
                self._accepted += [(grant, since_s), *waiting]
                break

    def overdue(
        self,
        now_s: float,
        now_ms: int,
        runs: Iterable[tuple[Capability, float]],
        holds: Callable[[Grant], bool],
    ) -> list[Grant]:
        """Takes out what has waited for too long; `runs`: capability and duration so far of what fills the slots.

        What is held back stays: it might not be started elsewhere either. While a slot is expected to be free soon all
        wait on, though none to the end of its start-by time.
        """
        if not self._accepted or now_s - self._accepted[0][1] < GIVE_BACK_S:
            return []
        soon = any(self._ends_soon(capability, lasted_s) for capability, lasted_s in runs)
        waiting, self._accepted = self._accepted, deque()
        given_back: list[Grant] = []
        for grant, since_s in waiting:
            has_time = soon and grant.start_by_ms - now_ms > 1000 * GIVE_BACK_S
            if now_s - since_s < GIVE_BACK_S or has_time or holds(grant):
                self._accepted.append((grant, since_s))
            else:
                given_back.append(grant)
        return given_back

    def accepted(self) -> Iterator[Grant]:
        """What waits for a slot, which it goes on doing."""
        return (grant for grant, _ in self._accepted)

    def everything(self) -> list[Grant]:
        """Takes out all that waits for a slot."""
        accepted, self._accepted = self._accepted, deque()
        return [grant for grant, _ in accepted]

    def drop_group(self, group: GroupId) -> None:
        """Forgets everything of a Group."""
        self._accepted = deque((grant, since_s) for grant, since_s in self._accepted if grant.group != group)
        self._blocked = {key: grant for key, grant in self._blocked.items() if grant.group != group}

    def ran(self, capability: Capability, lasted_s: float) -> None:
        """A run of this capability took so long."""
        known_s = self._typical_s.get(capability, lasted_s)
        self._typical_s[capability] = (4 * known_s + lasted_s) / 5

    def _ends_soon(self, capability: Capability, lasted_s: float) -> bool:
        """Whether a run is about to end, by what others of its capability took; one that took twice as long says nothing."""
        typical_s = self._typical_s.get(capability)
        return typical_s is not None and lasted_s <= 2 * typical_s and typical_s - lasted_s <= GIVE_BACK_S

    # --- what is blocked ---

    def block(self, grant: Grant, held: Held | None, now_s: float) -> None:
        """Keeps what is needed to start a blocked item again; its bodies come with that start."""
        self._blocked[grant.group, grant.item] = replace(grant, inputs=b"", contract=b"")
        self._resume(grant, held, now_s)

    def follow(self, event: Event, held: Held | None, now_s: float) -> None:
        """What an Event has left of an item's ownership: an unblocked item waits for a slot, a lost one is forgotten."""
        grant = self._blocked.get((event.group, event.item)) if event.item else None
        if grant is None or event.seq <= grant.seq:
            return
        if held is None:
            del self._blocked[grant.group, grant.item]
        else:
            self._resume(grant, held, now_s)

    def _resume(self, grant: Grant, held: Held | None, now_s: float) -> None:
        # Of a log that is read late its acceptance may be news too: then it is queued without the run that was blocked.
        if held and held.state is ItemState.QUEUED and grant.lease and held.number == grant.lease.number:
            del self._blocked[grant.group, grant.item]
            self.add(replace(grant, lease=None, start_by_ms=held.start_by_ms), now_s)
