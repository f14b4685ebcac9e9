"""The laboratory: Workers with the real `Ready` and `decide` on a virtual clock, against the store's model.

Calls take no time. A Worker decides with what it knows, sends one turn to each partition, folds the replies, and goes on
while it is given something; besides, it reads the directory each `stale_ms` (0: before each decision). What happens at
one instant is done in an order drawn from the seed, ends before arrivals' news reaches anybody.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from builders import NOW_MS
from lab.books import NOBODY, Books, Reply, Run, Work
from lab.workers import HOLD_MS, LabWorker
from treadle.shared.model import GroupId
from treadle.shared.policy import DEFAULT_POLICY, Policy
from treadle.worker.core.schedule import DRAW
from treadle.worker.taking import FRUITLESS_MAX


@dataclass(frozen=True, slots=True)
class Ended:
    """One run that is over: whose it was, on which Worker, and when."""

    group: GroupId
    worker: int
    start_ms: int
    end_ms: int
    width: int
    item: str


@dataclass(slots=True, order=True)
class _Event:
    at_ms: int
    order: float
    number: int
    act: Callable[[], object] = field(compare=False)


class Lab:
    """Workers, a store's model and a clock that jumps from one event to the next."""

    def __init__(
        self,
        workers: int = 1,
        slots: int = 1,
        *,
        stale_ms: int = 0,
        in_phase: bool = False,
        partitions: int = 1,
        seed: int = 0,
        draw: int = DRAW,
        capabilities: Sequence[str] = ("index",),
        reserves: bool = False,
    ) -> None:
        self.books = Books(partitions)
        self.now_ms = NOW_MS
        self.stale_ms = stale_ms
        self.random = random.Random(seed)
        self.draw = draw
        self.ended: list[Ended] = []
        self.changes: list[tuple[int, GroupId, int]] = []
        """Each instant at which a Group's running width changed, and by how much."""
        self.waits: dict[GroupId, list[tuple[int, int, str]]] = {}
        """Of each Group: when an item came, when it first started, its id."""
        self.workers: list[LabWorker] = []
        self.reserves = reserves
        """Whether Workers that join from now on keep slots for wide items."""
        self.is_work_conserving = True
        """Whether each free slot is held against what waits: not so where items may be wider than it."""
        self.reads_all = True
        """Whether a Worker that a budget stopped reads all partitions before it decides again, as `Shift` does."""
        self.meddle: Callable[[LabWorker], None] | None = None
        """Done to a Worker before each of its decisions: what a test breaks on purpose."""
        self._in_phase = in_phase
        self._came: dict[tuple[GroupId, str], int] = {}
        self._events: list[_Event] = []
        self._numbers = 0
        self._items = 0
        self._over: dict[LabWorker, list[Run]] = {}
        self._is_news = False
        self._policy = DEFAULT_POLICY
        for _ in range(workers):
            self.join(slots, capabilities)

    # --- what happens ---

    def join(self, slots: int, capabilities: Sequence[str] = ("index",)) -> LabWorker:
        """A Worker comes, and reads the whole directory."""
        worker = LabWorker(len(self.workers), slots, capabilities, len(self.books.versions), self.draw)
        worker.ready.govern(self._policy, self.now_ms)
        worker.reserves = self.reserves
        self.workers.append(worker)
        self._is_news = True
        if self.stale_ms:
            self._sweep(worker, 0 if self._in_phase else self.random.randrange(self.stale_ms))
        return worker

    def govern(self, policy: Policy) -> None:
        """All Workers follow a policy from now on, those that join later too."""
        self._policy = policy
        for worker in self.workers:
            worker.ready.govern(policy, self.now_ms)

    def crash(self, worker: LabWorker, lapse_ms: int) -> None:
        """A Worker dies: its leases lapse after a time, and its items are takeable again, from their start."""
        worker.is_alive = False
        runs = list(worker.running)
        for run in runs:
            worker.end(run)

        def lapse() -> None:
            for run in runs:
                self._close(run, worker)
                self.books.give_back(run, run.work.run_ms, self.now_ms)
            self._is_news = True

        self.at(self.now_ms + lapse_ms, lapse)

    def withdraw(self, group: str, item: str) -> None:
        """An item that waits is cancelled."""
        self.books.withdraw(group, item, self.now_ms)
        self._came.pop((GroupId(group), item), None)
        self._is_news = True

    def _lapse(self, group: GroupId, item: str) -> None:
        """Renew a reservation whose holder lives; else it is over, and everybody hears of it."""
        agent, until_ms = self.books.holds.get((group, item), (NOBODY, 0))
        holder = next((one for one in self.workers if one.ready.agent == agent), None)
        if holder is None:
            return
        if holder.is_alive and self.now_ms < until_ms:
            self.books.hold(group, item, agent, self.now_ms + HOLD_MS, self.now_ms)
            self.at(self.now_ms + HOLD_MS // 3, lambda: self._lapse(group, item))
        elif self.now_ms < until_ms:
            self.at(until_ms, lambda: self._lapse(group, item))
        else:
            del self.books.holds[group, item]
            self.books.touch(group, self.now_ms)
            self._is_news = True

    def open(self, group: str, *, runs_ms: Iterable[int] = (), **of: Any) -> None:
        """A new Group, as `Books.open`; with items of such runs."""
        self.books.open(group, **of)
        self.add(group, runs_ms)

    def add(self, group: str, runs_ms: Iterable[int], *, width: int = 1) -> None:
        """Queue items of a Group by the length of their runs."""
        works = [Work(f"{number:07d}", ms, width) for number, ms in enumerate(runs_ms, start=self._items)]
        self._items += len(works)
        self.add_works(group, works)

    def add_works(self, group: str, works: Sequence[Work]) -> None:
        name = GroupId(group)
        for work in works:
            self._came[name, work.item] = self.now_ms
        self.waits.setdefault(name, [])
        self.books.add(name, works, self.now_ms)
        self._is_news = True

    def at(self, at_ms: int, act: Callable[[], object]) -> None:
        """Have something happen at an instant."""
        self._numbers += 1
        heapq.heappush(self._events, _Event(at_ms, self.random.random(), self._numbers, act))

    def each(self, period_ms: int, act: Callable[[], object], *, until_ms: int) -> None:
        """Have something happen now and again and again."""

        def again() -> None:
            act()
            if self.now_ms + period_ms < until_ms:
                self.at(self.now_ms + period_ms, again)

        self.at(self.now_ms, again)

    def waiting(self, group: GroupId) -> list[int]:
        """When those items of a Group came that never started so far."""
        return [came for (name, _), came in self._came.items() if name == group]

    # --- the clock ---

    def run(self, until_ms: int) -> None:
        """Go on to an instant, from event to event."""
        self._rounds()
        while self._events and self._events[0].at_ms <= until_ms:
            self.now_ms = self._events[0].at_ms
            while self._events and self._events[0].at_ms == self.now_ms:
                heapq.heappop(self._events).act()
            self._rounds()
            self.check()
        self.now_ms = until_ms

    def for_s(self, span_s: float) -> None:
        """Go on for so long."""
        self.run(self.now_ms + round(span_s * 1_000))

    def check(self) -> None:
        """No slot is free while something is there that fits it (bound c), and none is used twice (S16)."""
        for worker in self.workers:
            assert worker.free >= 0, f"worker {worker.number} runs more than its {worker.slots} slots"
            if worker.free and worker.is_alive and self.is_work_conserving:
                assert not self.books.takeable(worker.capabilities), (
                    f"worker {worker.number} has {worker.free} free slots at {self.now_ms}, and work waits"
                )

    def _rounds(self) -> None:
        over, self._over = self._over, {}
        for worker, runs in over.items():
            self._round(worker, runs)
        news, self._is_news = self._is_news, False
        if not news:
            return
        idle = [worker for worker in self.workers if worker.is_alive and worker.free > 0]
        self.random.shuffle(idle)
        for worker in idle:
            if not self.books.takeable(worker.capabilities):
                continue
            worker.look(self.books, range(len(worker.versions)), self.now_ms)
            self._round(worker, [])

    def _round(self, worker: LabWorker, over: Sequence[Run]) -> None:
        """The turns of one Worker until nothing more is given: what is over travels with the first."""
        if not worker.is_alive:
            return
        for run in over:
            worker.end(run)
            self._close(run, worker)
        fruitless, has_looked = 0, False
        while fruitless < FRUITLESS_MAX:
            if not self.stale_ms or (worker.is_stopped and self.reads_all):
                worker.look(self.books, range(len(worker.versions)), self.now_ms)
            if self.meddle:
                self.meddle(worker)
            worker.go_on(self.books, self.now_ms)
            lists = worker.wanted(self.now_ms) if worker.free > 0 else {}
            has_begun = worker.keep(self.books, self.now_ms)
            if has_begun and worker.kept is not None:
                wide = worker.kept.wide
                self.at(self.now_ms + HOLD_MS // 3, partial(self._lapse, wide.group, wide.item))
            given, replies = 0, list[Reply]()
            ends = {run: self.books.lines[run.group].partition for run in over}
            for partition in sorted({*lists, *ends.values()}):
                listed, slots = lists.get(partition, ([], 0))
                mine = [run for run, at in ends.items() if at == partition]
                reply = self.books.turn(
                    partition, self.now_ms, ends=mine, takes=listed, slots=slots, agent=worker.ready.agent
                )
                replies.append(reply)
                given += len(reply.started)
                for run in reply.started:
                    self._begin(worker, run)
            worker.answered(replies, sum(slots for _, slots in lists.values()), self.now_ms)
            over = []
            fruitless = 0 if given else fruitless + 1
            if has_begun or (lists and (given or worker.ready.has_work)):
                continue
            if has_looked or not worker.free or not self.books.takeable(worker.capabilities):
                return
            # What came while it was full rang nobody else either: that token is still there for it to hear.
            worker.look(self.books, range(len(worker.versions)), self.now_ms)
            has_looked = True

    def _begin(self, worker: LabWorker, run: Run) -> None:
        worker.begin(run)
        if worker.kept is not None and (worker.kept.wide.group, worker.kept.wide.item) == (run.group, run.work.item):
            worker.done(self.now_ms)
        self.changes.append((self.now_ms, run.group, run.work.width))
        came = self._came.pop((run.group, run.work.item), None)
        if came is not None:
            self.waits[run.group].append((came, self.now_ms, run.work.item))
        self.at(run.end_ms, lambda: self._end(worker, run))

    def _end(self, worker: LabWorker, run: Run) -> None:
        if worker.is_alive and run in worker.running:
            self._over.setdefault(worker, []).append(run)

    def _close(self, run: Run, worker: LabWorker) -> None:
        self.changes.append((self.now_ms, run.group, -run.work.width))
        self.ended.append(Ended(run.group, worker.number, run.start_ms, self.now_ms, run.work.width, run.work.item))

    def _sweep(self, worker: LabWorker, phase_ms: int) -> None:
        def again() -> None:
            if worker.is_alive:
                worker.look(self.books, range(len(worker.versions)), self.now_ms)
                self.at(self.now_ms + self.stale_ms, again)

        self.at(self.now_ms + phase_ms, again)
