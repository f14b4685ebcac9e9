"""What this Worker is asked to do by name: judged before it is taken, and declined with the reason (R25).

directory entry of ">agent" -> not judged: withheld -> its items are read -> declines, and the entry as it is
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.shared.answers import ItemView
from treadle.shared.model import DirectoryEntry, GroupId, Session
from treadle.shared.names import shown
from treadle.shared.resources import Resources, covers
from treadle.shared.store import Decline, directed_to
from treadle.shared.versions import versioned

from .core.admission import Asked, Means, Reason, decline

_log = logging.getLogger("treadle.worker")
JUDGING = "ADMISSION"
"""The code of an entry that is withheld until its items have been read."""


class AskedByName:
    """The offers that name one Worker. One that was judged is not judged again while no other joins it."""

    def __init__(
        self, session: Session, *, slots: int, serves: Callable[[GroupId], bool], resources: Resources = ()
    ) -> None:
        self._place = directed_to(session.agent)
        self._capabilities = session.capabilities
        self.slots = slots
        self._resources = resources
        self._serves = serves
        self._judged: dict[GroupId, int] = {}
        self._withheld: dict[GroupId, DirectoryEntry] = {}

    @property
    def withheld(self) -> list[DirectoryEntry]:
        """Entries of Groups whose offers are to be read and judged."""
        return [self._withheld[group] for group in sorted(self._withheld)]

    def sift(self, entry: DirectoryEntry) -> DirectoryEntry:
        """The entry as it is, or withheld where it is of offers by name that were not judged yet."""
        if entry.capability != self._place:
            return entry
        self._withheld.pop(entry.group, None)
        if not entry.takeable or entry.code:
            self._judged.pop(entry.group, None)
        elif entry.takeable > self._judged.get(entry.group, 0):
            self._withheld[entry.group] = entry
            return replace(entry, code=JUDGING)
        else:
            self._judged[entry.group] = entry.takeable
        return entry

    def judge(self, group: GroupId, items: Sequence[ItemView], *, before: int, now_ms: int) -> list[Decline]:
        """Judges the offers of a Group that was withheld; gives what to decline. What is not may be taken in its turn."""
        entry = self._withheld.pop(group)
        means = Means(self._capabilities, self.slots, self._serves(group), before, entry.usage.typical_ms)
        declines: list[Decline] = []
        for item in items:
            expires_ms = item.offer.expires_ms if item.offer else 0
            asked = Asked(versioned(item.capability, item.version), item.width, item.deadline_ms, expires_ms)
            has_all = covers(self._resources, item.resources)
            reason = decline(asked, means, now_ms) if has_all else Reason.CAPACITY
            if reason is None:
                means = replace(means, before=means.before + 1)
                continue
            _log.info("%s/%s: declined (%s), it was offered here by name", shown(group), shown(item.item), reason)
            declines.append(Decline(group, item.item, reason))
        self._judged[group] = entry.takeable
        return declines
