"""Keeping leases: what is to be renewed when (pure), and the thread that does it off the event loop (design.md 4).

A blocked event loop does not lose its leases, a stopped or dead process does. The thread has a connection of its own.

Leases are counted by a clock that goes on while the machine sleeps, from before they were asked for, so that they are over
here before they are over in the store (S5).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from treadle.shared.errors import TreadleError, Unavailable
from treadle.shared.model import Lease, LeaseId
from treadle.shared.store import Envelope, Held

BEAT_TTLS = 2
"""Every partition hears of a session this often, in lease TTLs, also where it holds nothing there."""
_log = logging.getLogger("treadle.worker")


def lease_clock() -> float:
    """Seconds since some moment, of sleep too: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC as macOS has it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class _Kept:
    held: Held
    confirmed_s: float
    """Local time just before the grant or the last good renewal was asked for: its TTL counts from there."""
    is_closing: bool = False


class Renewals:
    """The leases of one session, by Lease ID, on the local clock `now`."""

    def __init__(self, *, ttl_s: float, partitions: int, now: Callable[[], float] = lease_clock) -> None:
        self.ttl_s = ttl_s
        self.period_s = ttl_s / 4
        self.look_s = ttl_s / 8
        """How often it is looked what is due."""
        self.now = now
        self._wanted = self._done = 0
        """How often all was to be read again, and up to which of them it was."""
        self._partitions = partitions
        self._kept: dict[LeaseId, _Kept] = {}
        self._beat_s: float | None = None

    def hold(self, partition: int, lease: Lease, *, asked_s: float) -> None:
        """Keeps a lease that was granted by a call sent at `asked_s`."""
        held = Held(partition, lease.group, lease.item, lease.ownership_epoch, lease.lease_id)
        self._kept[lease.lease_id] = _Kept(held, asked_s)

    def closing(self, lease_id: LeaseId) -> None:
        """Its own run ends it: a refused renewal of it is normal from here on."""
        if kept := self._kept.get(lease_id):
            kept.is_closing = True

    def drop(self, lease_id: LeaseId) -> None:
        self._kept.pop(lease_id, None)

    def is_over(self, since_s: float) -> bool:
        """Whether nothing may be done any more under a lease that was asked for, or confirmed, then: before the store's own TTL
        by as long as it may take to see it.
        """
        return self.now() - since_s >= self.ttl_s - self.look_s

    def distrust(self) -> None:
        """Has every lease, and the session in every partition, read again before it is trusted."""
        self._wanted += 1

    @property
    def is_trusted(self) -> bool:
        return self._done == self._wanted

    @property
    def distrusted(self) -> int:
        return self._wanted

    def trusted(self, up_to: int) -> None:
        """All was read since it was distrusted for that time."""
        self._done = up_to

    def due(self, now_s: float) -> dict[int, list[Held]]:
        """What to renew now: leases older than TTL/4, by partition; every partition once in a while."""
        due: dict[int, list[Held]] = {}
        for kept in list(self._kept.values()):
            if now_s - kept.confirmed_s >= self.period_s or not self.is_trusted:
                due.setdefault(kept.held.partition, []).append(kept.held)
        if self._beat_s is None or not self.is_trusted or now_s - self._beat_s >= BEAT_TTLS * self.ttl_s:
            self._beat_s = now_s
            for partition in range(self._partitions):
                due.setdefault(partition, [])  # behind those that hold leases
        return due

    def interrupted(self) -> None:
        """A round did not reach every partition: the next one begins anew."""
        self._beat_s = None

    def answered(self, leases: list[Held], codes: list[str], *, asked_s: float) -> list[tuple[LeaseId, str]]:
        """Notes the codes of a renewal asked for at `asked_s`; gives the leases that are lost, with why."""
        lost: list[tuple[LeaseId, str]] = []
        for held, code in zip(leases, codes, strict=True):
            kept = self._kept.get(held.lease)
            if kept is None:
                continue
            if code == "OK":
                kept.confirmed_s = max(kept.confirmed_s, asked_s)
            elif not kept.is_closing:
                lost.append((held.lease, code))
        return lost

    def expired(self) -> list[LeaseId]:
        """Leases that nobody confirmed in time: by our own clock they are over, whatever the store says later."""
        return [
            lease for lease, kept in list(self._kept.items()) if self.is_over(kept.confirmed_s) and not kept.is_closing
        ]


class Door(Protocol):
    """How a renewal reaches the store."""

    def renew(self, partition: int, leases: list[Held]) -> tuple[Envelope, list[str]]: ...

    def close(self) -> None: ...


class RenewalThread:
    """Renews until stopped. What it learns it hands to `report`, which must be safe to call from a thread."""

    def __init__(self, renewals: Renewals, door: Door, report: Callable[[Report], None]) -> None:
        self._renewals = renewals
        self._door = door
        self._report = report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="treadle-renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops it and waits for it; the connection is closed. Twice is fine."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._renewals.ttl_s + 5)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._renewals.look_s):
                renew_due(self._renewals, self._door, self._report)
        except BaseException as error:  # what it did not expect fences the Worker: it is never only logged
            self._report(Report(fault=error))
        finally:
            self._door.close()


@dataclass(frozen=True, slots=True)
class Report:
    """What a round of renewals found."""

    lost: tuple[tuple[LeaseId, str], ...] = ()
    due_ms: dict[int, int | None] | None = None
    fault: BaseException | None = None


def renew_due(renewals: Renewals, door: Door, report: Callable[[Report], None]) -> None:
    """One round: renews what is due, partition by partition, and reports losses, due times and faults.

    What is over by our own clock is said before the store is asked: after a stop its handlers run on already.
    """
    _report_expired(renewals, report)
    up_to, is_whole = renewals.distrusted, True
    for partition, leases in renewals.due(renewals.now()).items():
        asked_s = renewals.now()
        try:
            envelope, codes = door.renew(partition, leases)
        except Unavailable as error:
            # Each partition would cost a time-out of its own, while leases run out unsaid: the rest is due again soon.
            _log.debug("renewal in partition %d: %s", partition, error)
            renewals.interrupted()
            is_whole = False
            break
        except TreadleError as error:
            report(Report(fault=error))
        else:
            lost = renewals.answered(leases, codes, asked_s=asked_s)
            report(Report(tuple(lost), {partition: envelope.due_ms}))
    if is_whole and not renewals.is_trusted:
        renewals.trusted(up_to)
        report(Report())
    _report_expired(renewals, report)


def _report_expired(renewals: Renewals, report: Callable[[Report], None]) -> None:
    if over := renewals.expired():
        report(Report(tuple((lease, "WORK_LEASE_EXPIRED") for lease in over)))
