"""What this Worker owns and does not run yet, as one session deals with it: started once a slot is free, else given back."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import anyio
from treadle.shared.errors import STALE_CODES
from treadle.shared.model import Capability, Grant
from treadle.shared.names import shown
from treadle.shared.resources import Resources, covers
from treadle.shared.store import Outcome, Release, Start
from treadle.shared.versions import does, versioned

from .core.quarantine import Quarantine, told
from .core.tree import Ready
from .core.waiting import Waiting
from .lanes import Lanes
from .slots.run import Run, Ticket

_log = logging.getLogger("treadle.worker")
_NOT_OURS = STALE_CODES | {"INVALID_STATE_TRANSITION", "INVALID_COMMAND", "GROUP_NOT_FOUND"}
"""Codes of a refused start after which there is nothing to give back."""


class Owning:
    """The starts and releases of what waits for a slot of this Worker's own."""

    def __init__(self, waiting: Waiting, lanes: Lanes[Ticket], ready: Ready) -> None:
        self._waiting = waiting
        self._lanes = lanes
        self._ready = ready
        self._quarantine = Quarantine()

    def start(self, free: int, spare: Resources, now_ms: int) -> list[Grant]:
        """Asks for the start of what fits so many free slots, and what else is free; what it asked for."""
        started = list(self._waiting.startable(free, partial(self.holds, now_ms=now_ms), spare))
        for grant in started:
            self._quarantine.ask(grant)
            self._lanes.ask(grant.partition, Start.of(grant, self._ready.quota_of(grant.group)), Ticket())
        return started

    def holds(self, grant: Grant, now_ms: int) -> bool:
        """Whether a quarantine keeps it from its start."""
        return self._quarantine.holds(grant, now_ms=now_ms)

    def give_back(self, runs: Iterable[Run], now_ms: int) -> None:
        """Returns to everybody what has waited for too long: `runs` fill the slots."""
        lasted = [(run.grant.capability, run.lasted_s) for run in runs]
        holds = partial(self.holds, now_ms=now_ms)
        for grant in self._waiting.overdue(anyio.current_time(), now_ms, lasted, holds):
            _log.info("%s/%s: no slot is free for it here, given back", shown(grant.group), shown(grant.item))
            self.release(grant, "capacity")

    def give_all_back(self) -> None:
        """Returns all that waits: this Worker stops."""
        for grant in self._waiting.everything():
            self.release(grant, "shutdown")

    def release(self, grant: Grant, reason: str) -> None:
        """Returns one item to everybody."""
        release = Release(grant.group, grant.item, grant.ownership_epoch, reason)
        self._lanes.ask(grant.partition, release, Ticket())

    def inherit(
        self, grants: Iterable[Grant], capabilities: Iterable[Capability], slots: int, resources: Resources
    ) -> None:
        """Takes on what an older session of this Agent held; what this runtime cannot run goes back to everybody."""
        able = tuple(capabilities)
        for grant in grants:
            asked = versioned(grant.capability, grant.version)
            is_able = any(does(one, asked) for one in able)
            if is_able and grant.width <= slots and covers(resources, grant.resources):
                self._waiting.add(grant, anyio.current_time())
            else:
                self.release(grant, "unable")

    def answered(self, start: Start, outcome: Outcome, now_ms: int) -> None:
        """Keeps what may start once a quarantine is over; returns what else may not, as of a paused Group, to everybody."""
        grant = self._quarantine.answered(start.group, start.item)
        if outcome.code == "QUARANTINE":
            self._waiting.add(grant, anyio.current_time())
            if self._quarantine.begins(grant.partition, outcome.at_ms):
                _log.warning("partition %d is in %s", grant.partition, told(outcome.at_ms, now_ms))
        elif not outcome.done and outcome.code not in _NOT_OURS:
            _log.info("%s/%s: may not start (%s), given back", shown(start.group), shown(start.item), outcome.code)
            self.release(grant, outcome.code.lower())
