"""Gaps of the event loop: how long nothing of this Worker ran, and what it must read again before it acts (design.md 4, S5).

A handler that blocks the loop, a process that was stopped, a machine that slept: behind the gap all looks as it did before
it, and leases, items and the session may be others' by now. The store would refuse what is sent; what is not sent is better.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import anyio
from treadle.shared.model import LeaseId

from .renewal import Renewals
from .slots.run import Run

BLOCKED_S = 1.0
"""A gap that is worth a warning."""
BEAT_S = 0.1
_log = logging.getLogger("treadle.worker")


class Watchdog:
    """Looks how long ago the loop was last seen alive; `runs` are those at work, for the warning."""

    def __init__(self, renewals: Renewals, runs: Mapping[LeaseId, Run]) -> None:
        self._renewals = renewals
        self._runs = runs
        self._seen_s = renewals.now()

    async def watch(self) -> None:
        """Looks all the time, until it is cancelled."""
        while True:
            await anyio.sleep(BEAT_S)
            self.look()

    def look(self) -> bool:
        """Whether this Worker may act. Not where its loop stood still for half a TTL, until its leases are read again.

        Of a lease that is renewed in time 5/8 of its TTL are left at least.
        """
        now_s = self._renewals.now()
        gap_s, self._seen_s = now_s - self._seen_s - BEAT_S, now_s
        is_long = gap_s >= self._renewals.ttl_s / 2
        if gap_s > BLOCKED_S or is_long:
            names = ", ".join(run.name for run in self._runs.values()) or "nothing"
            behind = "; nothing is started or sent before its leases are read again" if is_long else ""
            _log.warning("event loop blocked for %.1f s while running %s; use an await between%s", gap_s, names, behind)
        if is_long:
            self._renewals.distrust()
        return self._renewals.is_trusted
