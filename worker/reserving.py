"""One session's reservation: slots and resources kept free for the item whose turn it is, told to the store, renewed, let go.

the turn of what does not fit -> Hold -> each third of its life again -> taken, or let go

The store has one Worker keep slots for an item; whoever is told that another does goes on behind it. What a crash leaves is
over with its time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from treadle.shared.model import Grant, GroupId, ItemId
from treadle.shared.names import shown
from treadle.shared.resources import Resources, capacity
from treadle.shared.store import Hold, Outcome

from .core.reservations import Reservation, expected_ms, slots_for, still_first
from .lanes import Lanes
from .slots.run import Run, Ticket
from .taking import Taking

_log = logging.getLogger("treadle.worker")


class Reserving:
    """At most one reservation at a time, from the decision to the grant of its item."""

    def __init__(self, taking: Taking, lanes: Lanes[Ticket], *, life_ms: int) -> None:
        self._taking = taking
        self._lanes = lanes
        self._life_ms = life_ms
        self._asked_ms = 0

    @property
    def kept(self) -> Reservation | None:
        """What free slots are kept for."""
        return self._taking.kept

    @property
    def renews_ms(self) -> int | None:
        """When the store is to be told next, in its own time; None where nothing is kept."""
        return None if self.kept is None else self._asked_ms + self._life_ms // 3

    def width_of(self, free: int, spare: Resources) -> int:
        """How many of so many free slots are kept, while so much is free besides."""
        return 0 if self.kept is None else max(0, min(free, slots_for(self.kept.wide, spare)))

    def keeps_for(self, group: GroupId, item: ItemId) -> bool:
        """Whether it is this item that slots are kept for here."""
        return self.kept is not None and (self.kept.wide.group, self.kept.wide.item) == (group, item)

    def is_known_for(self, group: GroupId, item: ItemId) -> bool:
        """Whether slots are kept for it, here or by another Worker."""
        elsewhere = self._taking.kept_elsewhere.items()
        return self.keeps_for(group, item) or any(one[0] == group and kept == item for one, kept in elsewhere)

    def go_on(self, now_ms: int) -> None:
        """Lets go of an item that is no more to be waited for; tells the store of any other in time."""
        if self.kept is None or self.renews_ms is None:
            return
        wide = self.kept.wide
        leaf = self._taking.ready.leaf_of(wide.group)
        if not still_first(wide, leaf, self._taking.slots, now_ms):
            self.let_go()
        elif now_ms >= self.renews_ms:
            self._ask(now_ms)

    def begin(self, free: int, runs: Collection[Run], now_ms: int) -> None:
        """Keeps slots for the item whose turn it was in the last decision, where it did not fit."""
        wide = self._taking.wide
        if wide is None or self.kept is not None:
            return
        ends = [(self._expected_end_ms(run, now_ms), run.grant.width) for run in runs]
        self._taking.kept = Reservation(wide, expected_ms(wide.width, free, ends, now_ms))
        what = capacity(wide.width, wide.resources)
        _log.info("%s/%s: slots are kept for it, it needs %s", shown(wide.group), shown(wide.item), what)
        self._ask(now_ms)

    def answered(self, hold: Hold, outcome: Outcome, now_ms: int) -> None:
        """Takes the store's word: where it is another's, or not to be had, what is behind it goes on."""
        if hold.keep and self.keeps_for(hold.group, hold.item):
            if not outcome.done and self.kept is not None:
                _log.info(
                    "%s/%s: no slots are kept for it here (%s)", shown(hold.group), shown(hold.item), outcome.code
                )
                self._taking.give_way(self.kept.wide, now_ms)
                self._taking.kept = None
            self._taking.is_hungry = True

    def granted(self, grant: Grant) -> None:
        """The item that slots were kept for is there: its reservation ended with its acceptance."""
        if self.keeps_for(grant.group, grant.item):
            self._taking.kept = None

    def let_go(self) -> None:
        """The slots are for everybody, at once."""
        if self.kept is not None:
            wide = self.kept.wide
            _log.info("%s/%s: slots are kept for it no longer", shown(wide.group), shown(wide.item))
            self._lanes.ask(wide.partition, Hold(wide.group, wide.item, keep=False), Ticket())
            self._taking.kept = None
            self._taking.slot_freed()

    def _ask(self, now_ms: int) -> None:
        assert self.kept is not None
        wide = self.kept.wide
        self._asked_ms = now_ms
        self._lanes.ask(wide.partition, Hold(wide.group, wide.item), Ticket())

    def _expected_end_ms(self, run: Run, now_ms: int) -> int:
        """By what runs of its Group usually take; of an unmeasured one nobody knows: it may end now."""
        leaf = self._taking.ready.leaf_of(run.grant.group)
        typical_ms = 0 if leaf is None else leaf.standing.usage.typical_ms
        return now_ms + max(0, typical_ms - round(1000 * run.lasted_s))
