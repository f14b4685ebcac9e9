"""Preemption as one session carries it out: a slot reserved, a run asked, its slot held for who waited (protocol R46).

no slot free -> preempt (core) -> ReserveSlot -> AskYield -> the run yields at its next safe point -> FreeSlot and Take

Each step is durable before the next one is taken, and what a crash leaves between two of them ends by itself: a reservation by
its time, a request with the lease it names. A run is asked once; what becomes of it afterwards never leaves a slot uncounted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from treadle.shared.model import Capability, Event, GroupId, LeaseId
from treadle.shared.names import shown
from treadle.shared.resources import Resources, covers
from treadle.shared.store import AskYield, FreeSlot, Outcome, ReserveSlot, Take

from .core.nodes import Leaf
from .core.preemption import Running, Share, Waiting, preempt, share_of
from .core.schedule import View, decide, limits_of
from .core.tree import Ready
from .lanes import Lanes, Takes
from .slots.run import Run, Ticket

_log = logging.getLogger("treadle.worker")
HOLD_OFF_MS = 1_000
"""A Group that has all the slots that it may wait for, or lacks more than a slot, is not asked for again so soon."""
SPAN_MS_MAX = 86_400_000
"""The store's bound of a reservation, and of when a run is overdue (`_preempt.lua`)."""


@dataclass(slots=True)
class _Request:
    """One run that is asked for its slot, and who waits for it."""

    run: Run
    partition: int
    """Of the Group that waits."""
    group: GroupId
    capability: Capability
    until_ms: int
    """When its reservation is over."""
    is_reserved: bool = False
    """Whether the store has it: then it is to be given up once it is not needed."""


class Preempting:
    """The requests of one session, from the decision to the slot that they free."""

    def __init__(self, ready: Ready, lanes: Lanes[Ticket]) -> None:
        self._ready = ready
        self._lanes = lanes
        self._requests: dict[LeaseId, _Request] = {}
        self._freed: list[_Request] = []
        self._held_off: dict[GroupId, int] = {}

    # --- the decision ---

    def consider(self, runs: Collection[Run], now_s: float, now_ms: int, spare: Resources = ()) -> None:
        """Begins one request, where no slot is free and a run has more than the Group whose turn it is; else nothing.

        A slot is of no use to what needs more than `spare` besides.
        """
        terms = self._ready.policy.preemption
        if not terms.enabled or not self._ready.takeable:
            return
        old = [run for run in runs if now_s - run.began_s >= terms.minimum_run_s and self._may_be_asked(run)]
        if not old:
            return
        waiting, leaf = self._waiting(now_ms)
        if waiting is None or leaf is None:
            return
        if not covers(spare, leaf.resources):
            self._held_off[leaf.group] = now_ms + HOLD_OFF_MS
            return
        running = [self._running(run, now_s, now_ms) for run in old]
        pending = [
            self._path(one.group, now_ms, waits=True) for one in self._pending(now_ms) if one.group != leaf.group
        ]
        found = preempt(waiting, running, pending, minimum_run_ms=round(1000 * terms.minimum_run_s))
        if found is None:
            return
        (run,) = [run for run in old if run.lease.lease_id == found.lease]
        span_ms = _span_ms(terms.minimum_run_s + terms.overdue_s)
        self._requests[found.lease] = _Request(run, leaf.partition, found.group, found.capability, now_ms + span_ms)
        reserve = ReserveSlot(found.group, found.capability, found.lease, found.most, span_ms)
        self._lanes.ask(leaf.partition, reserve, Ticket())

    def _may_be_asked(self, run: Run) -> bool:
        return not (run.wants_yield or run.is_over or run.lease.lease_id in self._requests)

    def _waiting(self, now_ms: int) -> tuple[Waiting, Leaf] | tuple[None, None]:
        """The Group that gets the next slot, once those that wait for one already have theirs."""
        self._held_off = {group: until for group, until in self._held_off.items() if until > now_ms}
        promised: dict[GroupId, int] = {}
        for one in self._pending(now_ms):
            promised[one.group] = promised.get(one.group, 0) + 1
        number = 1 + sum(promised.values()) + len(self._held_off)
        for take in decide(View(self._ready, number, draw=1, fallbacks=0), now_ms):
            left = take.most - promised.get(take.group, 0)
            promised[take.group] = max(0, -left)
            if left > 0 and take.group not in self._held_off:
                leaf = self._ready.leaf_of(take.group)
                assert leaf is not None
                width = leaf.offers[take.capability].head_width
                return Waiting(take.group, take.capability, width, self._path(take.group, now_ms, waits=True)), leaf
        return None, None

    def _pending(self, now_ms: int) -> list[_Request]:
        return [one for one in self._requests.values() if one.until_ms > now_ms]

    def _running(self, run: Run, now_s: float, now_ms: int) -> Running:
        path = self._path(run.grant.group, now_ms, waits=False)
        return Running(run.lease.lease_id, run.grant.width, round(1000 * (now_s - run.began_s)), path)

    def _path(self, group: GroupId, now_ms: int, *, waits: bool) -> tuple[Share, ...]:
        path = self._ready.path_of(group)
        return tuple(share_of(node.name, node.standing, now_ms, waits=waits) for node in path)

    # --- the steps ---

    def answered(self, partition: int, operation: ReserveSlot | AskYield, outcome: Outcome, now_ms: int) -> None:
        """Takes the next step of a request, or lets go of it."""
        request = self._requests.get(operation.lease)
        if isinstance(operation, ReserveSlot) and not outcome.done:
            self._requests.pop(operation.lease, None)
            self._held_off[operation.group] = now_ms + HOLD_OFF_MS
        elif isinstance(operation, ReserveSlot) and request is None:  # its run ended meanwhile
            self._lanes.ask(partition, FreeSlot(operation.group, operation.lease), Ticket())
        elif isinstance(operation, ReserveSlot) and request is not None:
            request.is_reserved = True
            self._lanes.ask(request.run.grant.partition, self._ask(request), Ticket())
        elif request is not None and outcome.done:
            request.run.ask_yield()
            _log.info("%s: asked for its slot, it yields at its next checkpoint", request.run.name)
        elif request is not None:
            self._give_up(self._requests.pop(operation.lease))

    def _ask(self, request: _Request) -> AskYield:
        grant, lease = request.run.grant, request.run.lease.lease_id
        overdue_ms = _span_ms(self._ready.policy.preemption.overdue_s)
        return AskYield(grant.group, grant.item, grant.ownership_epoch, lease, overdue_ms)

    def _give_up(self, request: _Request) -> None:
        free = FreeSlot(request.group, request.run.lease.lease_id)
        self._lanes.ask(request.partition, free, Ticket())

    # --- the end ---

    def ended(self, run: Run) -> None:
        """The slot of a run is free, or about to be, however that came: it is kept for who waits for it."""
        request = self._requests.pop(run.lease.lease_id, None)
        if request is not None and request.is_reserved:
            self._freed.append(request)

    def favour(self, takes: Takes, free: int, now_ms: int) -> Takes:
        """The takes of this round, those for which slots were freed before all others; void where they have nothing left.

        Where a partition still has to answer, nothing can be taken there: the slot is kept until it can, within its time.
        """
        first: Takes = {}
        freed, self._freed = self._freed, []
        left = free
        for request in freed:
            found = self._found(request, left, now_ms)
            if found is None:
                self._give_up(request)
                continue
            take, width = found
            left -= width
            listed, before = first.get(request.partition, ([], 0))
            if self._lanes.awaits(request.partition):
                self._freed.append(request)
            else:
                self._give_up(request)
                listed = [*listed, take]
            first[request.partition] = (listed, before + width)
        return _before(first, takes, free) if first else takes

    def _found(self, request: _Request, free: int, now_ms: int) -> tuple[Take, int] | None:
        """The take of who waits for a freed slot, and its width; None where it has nothing that fits, or waited too long."""
        leaf = self._ready.leaf_of(request.group)
        if leaf is None or not leaf.is_ready(now_ms) or request.until_ms <= now_ms:
            return None
        entry = leaf.offers.get(request.capability)
        if entry is None or entry.head_width > free:
            return None
        offset, sets = leaf.offset_to_tell(now_ms)
        return Take(request.group, request.capability, 1, offset, limits_of(leaf), sets), entry.head_width

    def stop(self) -> None:
        """Nobody is asked any more, and nothing is held."""
        for request in (*self._requests.values(), *self._freed):
            if request.is_reserved:
                self._give_up(request)
        self._requests.clear()
        self._freed.clear()

    def overdue(self, event: Event, runs: Mapping[LeaseId, Run]) -> None:
        """Says once that a run has not reached a safe point since it was asked; nothing is cut."""
        run = runs.get(LeaseId(event.get("lease")))
        if run is not None:
            _log.warning(
                "PREEMPT_OVERDUE %s: asked for its slot and not at a checkpoint since, for %g s now; nothing is cut, "
                "call `checkpoint` more often in %s",
                *(run.name, self._ready.policy.preemption.overdue_s, shown(run.grant.capability)),
            )


def _span_ms(span_s: float) -> int:
    return max(1, min(SPAN_MS_MAX, round(1000 * span_s)))


def _before(first: Takes, takes: Takes, free: int) -> Takes:
    """The takes with others before them, and no more width in all than is free: what was planned last gives way."""
    joined = {partition: (list(listed), width) for partition, (listed, width) in takes.items()}
    for partition, (listed, width) in first.items():
        rest, planned = joined.get(partition, ([], 0))
        joined[partition] = ([*listed, *rest], max(planned, width))
    excess = sum(width for _, width in joined.values()) - free
    for partition, (listed, width) in reversed(list(joined.items())):
        cut = max(0, min(excess, width - first.get(partition, ([], 0))[1]))
        excess -= cut
        joined[partition] = (listed, width - cut)
    return {partition: one for partition, one in joined.items() if one[1] > 0}
