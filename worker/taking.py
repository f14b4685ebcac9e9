"""What this Worker asks to take, and what it learns of what came of that: the directory as it stands for its own slots.

directory entries -> ready -> decide -> takes, by partition -> their answers -> passed over, or asked again
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, ItemId, NodeUsage
from treadle.shared.resources import Resources, common, covers, left
from treadle.shared.store import Take, Turn, TurnReply

from .core.reservations import Besides, Reservation, Wide, behind, open_to
from .core.schedule import FALLBACKS_MAX, FALLBACKS_MIN, View, plan
from .core.tree import Ready
from .lanes import Takes

FRUITLESS_MAX = 8
"""Takes in a row that give nothing although something is listed, before it waits for the next look."""
GIVE_WAY_MS = 1_000
"""For how long slots are not kept again for an item for which the store said no."""
CHARGED_ROUNDS = 2
"""Rounds in a row that budgets may leave slots free; the next one goes without (scheduler.md, rule 5)."""


class Taking:
    """One session's view of what may be taken, and its memory of what it asked for in vain."""

    def __init__(
        self,
        agent: AgentId,
        sought: Sequence[Capability],
        *,
        slots: int = 1,
        resources: Resources = (),
        cut_off: Collection[Capability] = (),
    ) -> None:
        self.slots, self._resources = slots, resources
        self.spare: Resources = ()
        """What the takes that were planned last may fill besides slots."""
        self.provided: int | None = None
        """Of which partition the first of them is that needs some of it."""
        self.ready = Ready(agent, sought)
        self.kept: Reservation | None = None
        """What free slots are kept for (`reserving.py`)."""
        self.wide: Wide | None = None
        """The item whose turn it was when the last takes were planned, and which did not fit."""
        self.kept_elsewhere: dict[tuple[GroupId, Capability], ItemId] = {}
        """First items for which other Workers keep slots free: what is behind them goes on."""
        self._given_way: dict[tuple[GroupId, Capability], tuple[ItemId, int]] = {}
        """First items for which the store had no slots kept here, and until when it is not asked again."""
        self._cut_off = cut_off
        self.is_hungry = True
        """Whether asking for work may give some: something changed since the last time nothing was got."""
        self._passed: dict[tuple[GroupId, Capability], tuple[str, int]] = {}
        """Head and number of what is too wide for what is free, or not for this Worker: asked for again once either changes,
        a slot gets free, or the whole directory is read."""
        self._set_by: dict[tuple[GroupId, Capability], DirectoryEntry] = {}
        self._alone: int | None = None
        """The partition that gets all free slots at the next take, since its head is wider than its share was."""
        self._fruitless = 0
        self._fallbacks = FALLBACKS_MAX
        self._rounds = 0
        """Rounds in a row in which a budget stopped a take."""
        self.is_stopped = False
        """Whether a budget stopped a take since the last ones were planned: other counters may be as old."""

    def takes(self, free: int, now_ms: int, *, unused: Resources = (), spare: Resources = ()) -> Takes:
        """What to take with so many free slots; nothing while nothing could be got.

        unused: what no run uses besides slots. spare: what of that no unanswered turn may fill either.
        """
        if self.ready.resumes_ms is not None and self.ready.resumes_ms <= now_ms:
            self.is_hungry = True
        self.ready.tick(now_ms)
        self._rounds = self._rounds + 1 if self.is_stopped else 0
        self.is_stopped, self.wide = False, None
        self.spare, self.provided = self.open_to_all(spare), None
        if free <= 0 or not self.is_hungry:
            return {}
        charges = self._rounds < CHARGED_ROUNDS
        view = View(
            self.ready,
            free,
            fallbacks=self._fallbacks,
            charges=charges,
            slots=self.slots,
            kept=self.kept,
            cut_off=self._cut_off,
            besides=Besides(self._resources, unused, spare),
        )
        alone, self._alone = self._alone, None
        takes: Takes = {}
        planned = 0
        made = plan(view, now_ms)
        self.wide, self.spare, self.provided = made.wide, made.spare, made.provided
        for action in made.takes:
            listed, width = takes.get(action.partition, ([], 0))
            listed.append(Take(action.group, action.capability, action.most, action.offset, action.limits, action.sets))
            wanted = 0 if action.fallback else action.most * action.width
            takes[action.partition] = (listed, width + wanted)
            planned += wanted
        if self.wide or self.kept:
            return takes
        if alone in takes:
            return {alone: (takes[alone][0], free)}
        for partition, (listed, width) in takes.items():
            # What is planned for no partition goes to the first: an item may be wider than one slot.
            takes[partition] = (listed, width + max(0, free - planned))
            break
        return takes

    def open_to_all(self, spare: Resources) -> Resources:
        """What of that is not kept for an item."""
        return left(spare, [common(spare, self.kept.wide.resources)]) if self.kept is not None else spare

    def fold(
        self,
        entries: Sequence[DirectoryEntry],
        shut: set[GroupId],
        now_ms: int,
        *,
        nodes: Sequence[NodeUsage] = (),
        whole: int | None = None,
    ) -> None:
        """Folds directory entries, those of `shut` Groups as empty; `whole`: they, and `nodes`, are all of that partition."""
        if whole is not None:
            self._passed.clear()
        mine = [
            replace(entry, takeable=0) if entry.group in shut else self._startable(entry, now_ms) for entry in entries
        ]
        self.ready.service(nodes, now_ms, whole=whole)
        if whole is None:
            self.ready.update(mine, now_ms)
        else:
            self.ready.replace(whole, mine, now_ms)
        # What an account's run that ended leaves of its quota stands in no entry.
        if any(entry.takeable and not entry.code for entry in mine) or (nodes and self.ready.has_work):
            self.is_hungry = True

    def _startable(self, entry: DirectoryEntry, now_ms: int) -> DirectoryEntry:
        """The entry, or one with nothing to take while all of it is known to be passed over here.

        Of what others keep slots for only what is behind it.
        """
        key = (entry.group, entry.capability)
        self.kept_elsewhere.pop(key, None)
        if entry.code or self._passed.get(key) != (entry.head, entry.takeable):
            self._set_by.pop(key, None)
            item, until_ms = self._given_way.get(key, ("", 0))
            mine = behind(entry) if item == entry.head_item and now_ms < until_ms else open_to(entry, self.ready.agent)
            if mine is not entry:
                self.kept_elsewhere[key] = entry.head_item
            elif item:
                del self._given_way[key]
            return mine
        self._set_by[key] = entry
        # A first item that lacks resources keeps its turn; nothing behind it fits.
        waits = entry.head_needs and self._has_all(entry)
        return replace(entry, takeable=1) if waits else replace(entry, code="CAPACITY")

    def give_way(self, wide: Wide, now_ms: int) -> None:
        """Goes on behind an item that slots cannot be kept for here, until its Group's next entry and a second at least."""
        self._given_way[wide.group, wide.capability] = (wide.item, now_ms + GIVE_WAY_MS)
        leaf = self.ready.leaf_of(wide.group)
        entry = leaf.offers.get(wide.capability) if leaf is not None else None
        if entry is not None and entry.head_item == wide.item:
            self.kept_elsewhere[wide.group, wide.capability] = wide.item
            self.ready.update([behind(entry)], 0)

    def answered(self, turn: Turn, reply: TurnReply, *, free: int, spare: Resources = ()) -> None:
        """Notes what a turn's takes gave, before its entries are folded; `free`, `spare`: slots and what else is free."""
        codes = self._codes(turn, reply)
        granted = _granted(reply)
        self.is_stopped = self.is_stopped or any(outcome.code == "SHARE" for outcome in reply.outcomes)
        for operation, outcome in zip(turn.operations, reply.outcomes, strict=True):
            if isinstance(operation, Take) and outcome.code == "QUOTA" and outcome.at_ms:
                self.ready.hold(operation.group, outcome.at_ms)
        if codes:
            self._fallbacks = FALLBACKS_MAX if granted < turn.slots else max(FALLBACKS_MIN, self._fallbacks // 2)
        if not granted:
            self._set_aside(turn, reply, {key for key, code in codes if code == "PASSED"}, free, spare)

    def settle(self, turn: Turn, reply: TurnReply) -> None:
        """Judges, once the entries of a turn's reply are folded, whether asking again may give something."""
        if self._codes(turn, reply):
            granted = _granted(reply)
            self._fruitless = 0 if granted else self._fruitless + 1
            self.is_hungry = granted > 0 or (self.ready.has_work and self._fruitless < FRUITLESS_MAX)

    def slot_freed(self) -> None:
        """A slot is free: what was too wide may fit now."""
        self.is_hungry = True
        self._passed.clear()
        set_by, self._set_by = self._set_by, {}
        self.ready.update([self._startable(entry, 0) for entry in set_by.values()], 0)

    def _codes(self, turn: Turn, reply: TurnReply) -> list[tuple[tuple[GroupId, Capability], str]]:
        return [
            ((operation.group, operation.capability), outcome.code)
            for operation, outcome in zip(turn.operations, reply.outcomes, strict=True)
            if isinstance(operation, Take)
        ]

    def _set_aside(
        self, turn: Turn, reply: TurnReply, wide: set[tuple[GroupId, Capability]], free: int, spare: Resources
    ) -> None:
        """Notes what needs more than what the turn could fill: asked again alone, else once a slot is free.

        Not a first item for which slots may be kept: out of its order its Group would lose its turn.
        """
        heads = {(one.group, one.capability): one for one in reply.entries}
        mine = {key for key in heads.keys() - self.kept_elsewhere.keys() if self._waits_here(heads[key], turn.slots)}
        wide = (wide & heads.keys()) - mine
        if wide and not self.kept and (turn.slots < free or not covers(turn.resources, spare)):
            self._alone = turn.partition
        else:
            self._passed.update({key: (heads[key].head, heads[key].takeable) for key in wide})

    def _waits_here(self, entry: DirectoryEntry, slots: int) -> bool:
        return entry.head_width > slots and self._has_all(entry)

    def _has_all(self, entry: DirectoryEntry) -> bool:
        """Whether the first item of a Group needs no more than this Worker has, and nobody else keeps anything for it."""
        fits = entry.head_width <= self.slots and covers(self._resources, entry.head_needs)
        return fits and open_to(entry, self.ready.agent) is entry


def _granted(reply: TurnReply) -> int:
    return sum(len(outcome.grants) for outcome in reply.outcomes)
