"""One Worker of the laboratory: the real `Ready` and `plan`, and around them what `taking.py` and `reserving.py` do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lab.books import Books, Reply, Run
from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId
from treadle.shared.store import Take
from treadle.worker.core.nodes import Leaf
from treadle.worker.core.reservations import Reservation, Wide, behind, expected_ms, open_to, still_first
from treadle.worker.core.schedule import FALLBACKS_MAX, FALLBACKS_MIN, View, plan
from treadle.worker.core.tree import Ready
from treadle.worker.taking import CHARGED_ROUNDS

HOLD_MS = 30_000
"""How long a reservation of a wide item lasts that is not renewed."""


class LabWorker:
    """One Worker: its slots, what it knows, what it runs."""

    def __init__(self, number: int, slots: int, capabilities: Sequence[str], partitions: int, draw: int) -> None:
        self.number = number
        self.slots = slots
        self.draw = draw
        self.capabilities = tuple(Capability(name) for name in capabilities)
        self.ready = Ready(AgentId(f"worker-{number}"), self.capabilities)
        self.versions = [0] * partitions
        self.running: list[Run] = []
        self._used = 0
        self.is_alive = True
        self.fallbacks = FALLBACKS_MAX
        self.has_budgets = True
        """Whether its takes are limited by what others may be charged meanwhile (rule 5)."""
        self.reserves = False
        """Whether it keeps slots for items that do not fit yet (rule 8)."""
        self.kept: Reservation | None = None
        self.was_kept: list[tuple[str, int, int, int]] = []
        """For which items it kept slots: since when, t_R, until when."""
        self._kept_ms = 0
        self.asked = 0
        """Takes asked for, and how many of them a budget stopped."""
        self.refused = 0
        self._rounds = 0
        self.is_stopped = False
        """Whether a budget stopped one of the last ones."""
        self.wide: Wide | None = None

    @property
    def free(self) -> int:
        """Below 0 where it was given less slots than it uses."""
        return self.slots - self._used

    def begin(self, run: Run) -> None:
        self.running.append(run)
        self._used += run.work.width

    def end(self, run: Run) -> None:
        self.running.remove(run)
        self._used -= run.work.width

    def look(self, books: Books, partitions: Iterable[int], now_ms: int) -> None:
        """Read what changed in the directory of some partitions."""
        for partition in partitions:
            found = books.look(partition, self.versions[partition], now_ms)
            self.versions[partition] = found.version
            self.ready.service(found.nodes, now_ms, whole=partition if found.full else None)
            if found.full:
                self.ready.replace(partition, self._mine(found.entries), now_ms)
            else:
                self.ready.update(self._mine(found.entries), now_ms)

    def wanted(self, now_ms: int) -> dict[int, tuple[list[Take], int]]:
        """By partition: the list to take from and the width to fill, as `worker/taking.py` makes them."""
        free = self.free
        lists: dict[int, tuple[list[Take], int]] = {}
        planned = 0
        self._rounds = self._rounds + 1 if self.is_stopped else 0
        charges = self.has_budgets and self._rounds < CHARGED_ROUNDS
        view = View(
            self.ready,
            free,
            draw=self.draw,
            fallbacks=self.fallbacks,
            charges=charges,
            slots=self.slots if self.reserves else 0,
            kept=self.kept,
            cut_off=self.capabilities,
        )
        made = plan(view, now_ms)
        self.wide = made.wide
        for take in made.takes:
            listed, width = lists.get(take.partition, ([], 0))
            listed.append(Take(take.group, take.capability, take.most, take.offset, take.limits, take.sets))
            most = 0 if take.fallback else take.most * take.width
            lists[take.partition] = (listed, width + most)
            planned += most
        for partition, (listed, width) in lists.items():
            if not self.wide and not self.kept:
                lists[partition] = (listed, width + max(0, free - planned))
            break
        return lists

    def _mine(self, entries: Iterable[DirectoryEntry]) -> list[DirectoryEntry]:
        return [open_to(entry, self.ready.agent) for entry in entries]

    def _first(self, group: GroupId) -> Leaf | None:
        return next((node for node in self.ready.path_of(group) if isinstance(node, Leaf)), None)

    def go_on(self, books: Books, now_ms: int) -> None:
        """Keep slots no longer for what is not to be waited for any more."""
        wide = self.kept and self.kept.wide
        if wide and not still_first(wide, self._first(wide.group), self.slots, now_ms):
            books.hold(wide.group, wide.item, self.ready.agent, 0, now_ms)
            self.done(now_ms)

    def done(self, now_ms: int) -> None:
        """The item that slots were kept for has them, or needs them no more."""
        assert self.kept is not None
        self.was_kept.append((self.kept.wide.item, self._kept_ms, self.kept.until_ms, now_ms))
        self.kept = None

    def keep(self, books: Books, now_ms: int) -> bool:
        """Have slots kept for what did not fit, where no other Worker does; whether what may be taken has changed."""
        wide, self.wide = self.wide, None
        if wide is None or self.kept is not None:
            return False
        if books.hold(wide.group, wide.item, self.ready.agent, now_ms + HOLD_MS, now_ms):
            ends = [(now_ms + self._left_ms(run, now_ms), run.work.width) for run in self.running]
            self.kept = Reservation(wide, expected_ms(wide.width, self.free, ends, now_ms))
            self._kept_ms = now_ms
        elif (leaf := self._first(wide.group)) is not None:
            self.ready.update([behind(leaf.in_order()[0])], now_ms)
        return True

    def _left_ms(self, run: Run, now_ms: int) -> int:
        standings = self.ready.standing_of(run.group)
        return max(0, (standings[-1].usage.typical_ms if standings else 0) - (now_ms - run.start_ms))

    def answered(self, replies: Sequence[Reply], wanted: int, now_ms: int) -> None:
        """Fold what came of a round's takes."""
        codes = [code for reply in replies for code in reply.codes]
        given = sum(len(reply.started) for reply in replies)
        self.is_stopped = "SHARE" in codes
        self.asked += len(codes)
        self.refused += codes.count("SHARE")
        if codes:
            self.fallbacks = FALLBACKS_MAX if given < wanted else max(FALLBACKS_MIN, self.fallbacks // 2)
        for reply in replies:
            self.ready.service(reply.nodes, now_ms)
            self.ready.update(self._mine(reply.entries), now_ms)
