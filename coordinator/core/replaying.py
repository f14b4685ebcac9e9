"""What the Events of an archive fold to, held against what its records say. Pure."""

from __future__ import annotations

from treadle.shared.archive import ArchivedItem, End, Header, Part, Record, Snapshot
from treadle.shared.errors import Corrupt
from treadle.shared.model import Event, ItemState
from treadle.shared.projection import Projection


class Replay:
    """Takes the parts of a sound archive in their order; Corrupt where Events and records tell two stories.

    Of an item that was verified or cancelled before many others the fold keeps the count alone, and that is compared.
    """

    def __init__(self) -> None:
        self.projection: Projection | None = None
        """What the Events fold to; None where their beginning was trimmed and no Snapshot stands for it."""
        self.states: dict[str, int] = {}
        """How many items are in each state, by their records."""
        self.mission = ""
        """Its state, by its record."""
        self._grew = False

    def take(self, part: Part) -> None:
        match part:
            case Header() if part.first == 1:
                self.projection = Projection(part.group, part.incarnation)
            case Record():
                self.mission = part.fields.get("state", "")
                self._grew = part.fields.get("form") in ("open", "sealed")
            case Snapshot():
                self.projection = Projection.unpack(part.group, part.raw)
            case Event() if self.projection is not None and part.seq > self.projection.through:
                self.projection.fold(part)
            case ArchivedItem():
                self._compare(part)
            case End():
                self._close()
            case _:  # before the Snapshot, or nothing to fold it with
                pass

    def _compare(self, item: ArchivedItem) -> None:
        state = item.fields.get("st", "?")
        self.states[state] = self.states.get(state, 0) + 1
        if self.projection is None:
            return
        told = self.projection.items.get(item.item) or self.projection.finished.get(item.item)
        if told is None:
            return
        _agree(f"item {item.item}: its state", state, told.state)
        _agree(f"item {item.item}: its Ownership Epoch", item.fields.get("oe", "0"), str(told.ownership_epoch))
        _agree(f"item {item.item}: its number of runs", item.fields.get("ln", "0"), str(told.number))
        if state == ItemState.VERIFIED:
            _agree(f"item {item.item}: its result's digest", item.fields.get("dg", ""), told.digest)

    def _close(self) -> None:
        told = self.projection
        if told is None:
            return
        _agree("the Mission's state", self.mission, told.mission)
        counts = {ItemState.VERIFIED: told.verified, ItemState.CANCELLED: told.cancelled, ItemState.FAILED: told.failed}
        for state, counted in counts.items():
            there = self.states.get(state, 0)
            if not (self._grew and there < counted):  # the items of one that grew go one by one, each after its time
                _agree(f"how many items are {state}", str(there), str(counted))


def _agree(what: str, recorded: str, told: str) -> None:
    if recorded != told:
        raise Corrupt(f"{what} is {recorded[:80]!r} by the record, {told!r} by the Events")
