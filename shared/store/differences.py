"""How a Group's log and its items' own keys may differ: the log told again, each step by the table of states. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import Corrupt
from ..lifecycle import MISSION_MOVES, TERMINAL_ITEMS, TERMINAL_MISSIONS, is_ownerless, next_state
from ..model import Event, EventKind, GroupId, ItemState, MissionState
from ..projection import Projection

_ABSENT = {"w": "1", "oe": "0", "ln": "0", "ckn": "0"}
"""What a field that is not there stands for."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of a Group that is not everywhere the same."""

    where: str
    """`log`, `mission`, an item's token, or the name of a list of the partition."""
    what: str
    expected: str
    found: str


class Story:
    """What the Events of one Group tell of its Mission and of each item."""

    FIELDS = ("st", "cap", "w", "oe", "ln", "ckn")
    """What they tell of an item, by the names of its hash."""

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.mission: MissionState | None = None
        self._items: dict[str, dict[str, str]] = {}
        self._forgets = False
        """Whether items that were verified or cancelled may be unknown here: a Snapshot keeps some of them, in few words."""

    @classmethod
    def of(cls, snapshot: Projection) -> Story:
        """What a Snapshot tells, for the Events behind it to go on from."""
        story = cls(snapshot.group)
        story.mission, story._forgets = MissionState(snapshot.mission), True
        for name, item in snapshot.items.items():
            values = (item.state, item.capability, item.width, item.ownership_epoch, item.number, item.checkpoint)
            story._items[name] = dict(zip(cls.FIELDS, map(str, values), strict=True))
        for name, done in snapshot.finished.items():
            story._items[name] = {"st": done.state, "oe": str(done.ownership_epoch), "ln": str(done.number)}
        return story

    def fold(self, event: Event) -> None:
        """Follow one Event; Corrupt where the table of states has no such step."""
        if event.item is None:
            self._follow_mission(event)
            return
        item = self._items.get(event.item)
        if event.kind is EventKind.AUTHORIZED and item and item["st"] in TERMINAL_ITEMS:
            item = None  # its time was over, and its id is used anew
        try:
            known = ItemState(item["st"]) if item else None
            state = next_state(known, event.kind, ownerless=is_ownerless(event))
        except ValueError as problem:
            raise Corrupt(f"group {self.group}: Event {event.seq} of item {event.item}: {problem}") from None
        if item is None:
            item = self._items[event.item] = dict(_ABSENT)
        item["st"] = state
        match event.kind:
            case EventKind.AUTHORIZED:
                item["cap"], item["w"] = event.get("capability"), event.get("width")
            case EventKind.ACCEPTED:
                item["oe"] = event.get("epoch")
            case EventKind.STARTED:
                item["ln"] = event.get("number")
            case EventKind.PROGRESS_SAVED | EventKind.CHECKPOINTED | EventKind.BLOCKED:
                item["ckn"] = event.get("number")
            case _:
                pass

    def _follow_mission(self, event: Event) -> None:
        row = MISSION_MOVES.get(event.kind)
        if row is None:  # it says something of the Group
            return
        if self.mission not in row[0]:
            raise Corrupt(f"group {self.group}: Event {event.seq} ({event.kind}) of a Mission that is {self.mission}")
        self.mission = row[1]

    def differences(self, item: str, fields: Mapping[str, str]) -> Iterator[Difference]:
        """What an item's hash says otherwise."""
        told = self._items.get(item)
        if told is None and self._forgets and fields["st"] in (ItemState.VERIFIED, ItemState.CANCELLED):
            return
        if told is None:
            yield Difference(item, "st", "nothing", fields["st"])
            return
        for name in self.FIELDS:
            found = fields[name] or _ABSENT.get(name, "")
            if found != told.get(name, found):
                yield Difference(item, name, told[name], found)

    def missing(self, there: set[str]) -> list[Difference]:
        """Items that have not ended and are not there; of an ended Mission they went when their time was over."""
        if self.mission in TERMINAL_MISSIONS:
            return []
        gone = ((name, told["st"]) for name, told in self._items.items() if name not in there)
        return [Difference(name, "st", state, "nothing") for name, state in gone if state not in TERMINAL_ITEMS]
