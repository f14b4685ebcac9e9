"""A Worker follows the policy: it hears a version in any reply, reads the policy once, and goes by it from then on."""

from __future__ import annotations

import logging

from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.names import shown
from treadle.shared.store import Authority, policies

from .tenure import Tenure

_log = logging.getLogger("treadle.worker")


class Policing:
    """Which version of the policy one session goes by; what it says is with the tree that decides by it."""

    def __init__(self, authority: Authority, configured: int) -> None:
        """`configured`: the Capacity Slots that the Worker was started with."""
        self._authority, self._store = authority, authority.store
        self._configured = configured
        self._has_begun = False
        self._heard = 0
        self._read = 0
        """The newest version that was read, also where it could not be followed."""

    def hear(self, version: int) -> None:
        """A reply says which version its partition knows of."""
        self._heard = max(self._heard, version)

    async def follow(self, tenure: Tenure, now_ms: int) -> None:
        """Has a session go by the newest policy that was heard of; one that cannot be read is said, and the old one stays.

        The store knows of another number of slots before it is decided by it: then what is as wide may be taken.
        """
        if not self._has_begun:
            await self._begin()
        if self._heard <= self._read:
            return
        standing = await policies.read(self._store)
        if standing is None:  # what was noted is not there: the store is looked at elsewhere
            self._read = self._heard
            return
        read = max(self._heard, standing.change.version)
        try:
            policy = standing.policy()
        except (Misuse, Corrupt) as error:
            _log.error("version %d of the policy is not followed, the one before stays: %s", read, error)
            self._read = read
            return
        slots = policy.worker_slots(tenure.session.agent, self._configured)
        _log.info("version %d of the policy, by %s", policy.version, shown(standing.change.actor))
        if slots != tenure.slots:
            _log.info("%d Capacity Slots by the policy, %d before; what runs goes on", slots, tenure.slots)
            await self._authority.resize(tenure.session, slots)
        tenure.govern(policy, slots, now_ms)
        self._read = read

    async def _begin(self) -> None:
        """Makes up for whoever was killed when the policy was set and not noted everywhere."""
        version = await policies.version(self._store)
        if version > 0:
            await policies.note_everywhere(self._store, version)
        self.hear(version)
        self._has_begun = True
