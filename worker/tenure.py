"""What one session holds and does with what it is told: runs, queues, leases, the directory. No loop and no waiting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import anyio
from treadle.shared.answers import ItemView
from treadle.shared.errors import Corrupt
from treadle.shared.model import (
    Capability,
    DirectoryEntry,
    Event,
    EventKind,
    Grant,
    GroupId,
    Lease,
    LeaseId,
    NodeUsage,
    Session,
)
from treadle.shared.names import name_of, shown
from treadle.shared.policy import Policy
from treadle.shared.resources import Resources, left, together
from treadle.shared.store import (
    AskYield,
    Block,
    Disclose,
    Fail,
    Hold,
    Operation,
    Outcome,
    ReserveSlot,
    Save,
    Start,
    Submit,
    Take,
    Turn,
    TurnReply,
    Yield,
    directed_to,
    events_of,
)
from treadle.shared.versions import shelf

from .asked import AskedByName
from .core.bars import Bars
from .core.inbox import Inbox
from .core.queues import ENDS_A_RUN, Queues
from .core.waiting import Waiting
from .disclosing import Disclosing
from .handlers import Handler
from .lanes import Lanes
from .owning import Owning
from .preempting import Preempting
from .renewal import Renewals
from .reserving import Reserving
from .slots.progressing import Progressing
from .slots.run import Desk, End, Run, Ticket
from .taking import Taking

_log = logging.getLogger("treadle.worker")
HALTED_S = 60.0
"""A Group that was halted here is looked at again, if it is heard of, so much later: it may have been repaired."""


class Tenure:
    """One Session Epoch of this Worker, from its opening to its end."""

    def __init__(
        self,
        session: Session,
        *,
        handlers: Mapping[Capability, Handler],
        slots: int,
        resources: Resources = (),
        groups: str,
        partitions: int,
        desk: Desk,
        begin: Callable[[Run], None],
    ) -> None:
        self.session = session
        self.slots, self.resources = slots, resources
        self.lanes: Lanes[Ticket] = Lanes(partitions)
        self.renewals = Renewals(ttl_s=session.lease_ttl_ms / 1000, partitions=partitions)
        self.inbox = Inbox(session.agent)
        self.queues = Queues(session.agent, session.epoch)
        self.sought = (*dict.fromkeys(map(shelf, session.capabilities)), directed_to(session.agent))
        """Under which names the directory is looked at: its capabilities, and what is offered to it by name."""
        self.asked = AskedByName(session, slots=slots, resources=resources, serves=self.serves)
        cut_off = {shelf(name) for name, one in handlers.items() if one.is_cut_off}
        cut_off -= {shelf(name) for name, one in handlers.items() if not one.is_cut_off}
        self.taking = Taking(session.agent, self.sought, slots=slots, resources=resources, cut_off=cut_off)
        self.reserving = Reserving(self.taking, self.lanes, life_ms=session.lease_ttl_ms)
        self.preempting = Preempting(self.taking.ready, self.lanes)
        self.disclosing = Disclosing(lease_ttl_ms=session.lease_ttl_ms)
        self.progressing = Progressing(self.lanes)
        self.runs: dict[LeaseId, Run] = {}
        """By lease, not by item: one that lost its item still fills its slot until it has unwound (S16)."""
        self.owned = Waiting()
        self.owning = Owning(self.owned, self.lanes, self.taking.ready)
        self.due_ms: dict[int, int | None] = {}
        self.is_stopping = False
        self.is_over = False
        self.halted: set[GroupId] = set()
        self.bars = Bars()
        self._halted_s: dict[GroupId, float] = {}
        self._handlers = handlers
        self._desk = desk
        self._pattern = groups
        self._begin = begin
        self._cursors: dict[GroupId, tuple[int, int]] = {}

    # --- what is free, and what to ask for ---

    @property
    def free_slots(self) -> int:
        """Width not used by runs."""
        return self.slots - sum(run.grant.width for run in self.runs.values())

    @property
    def open_slots(self) -> int:
        """Width for anybody's work: not what is kept for a wide item."""
        return self.free_slots - self.reserving.width_of(self.free_slots, self.spare)

    @property
    def spare(self) -> Resources:
        """What else than slots is not used by runs."""
        return left(self.resources, (run.grant.resources for run in self.runs.values())) if self.resources else ()

    def turns(self, now_ms: int) -> list[Turn]:
        """The turns to send now: what runs ask, items to start, and what to take."""
        self.progressing.tell(self.runs, anyio.current_time())
        free, unused = self.free_slots - self.lanes.reserved, self.spare
        if self.is_stopping:
            self.owning.give_all_back()
            return self.lanes.freeze({}, self._moved(), ())
        # Slots whose ends travel with these turns: whoever follows in one is granted in the same round trip.
        for run in self._leaving(self.lanes.leaving()):
            free += run.grant.width
            unused = together(unused, run.grant.resources)
            self.preempting.ended(run)
        self.reserving.go_on(now_ms)
        spare = left(unused, self.lanes.filled)
        open_slots = free - self.reserving.width_of(free, spare)
        started = self.owning.start(open_slots, self.taking.open_to_all(spare), now_ms)
        free -= sum(grant.width for grant in started)
        unused, spare = (left(one, [grant.resources for grant in started]) for one in (unused, spare))
        if self.owned:
            self.owning.give_back(self.runs.values(), now_ms)
        self._disclose(now_ms)
        takes = self.taking.takes(free, now_ms, unused=unused, spare=spare)
        self.reserving.begin(free, self.runs.values(), now_ms)
        if self.reserving.kept is None:
            takes = self.preempting.favour(takes, free, now_ms)
            if free <= 0 and self.free_slots <= 0:
                self.preempting.consider(self.runs.values(), anyio.current_time(), now_ms, unused)
        return self.lanes.freeze(takes, self._moved(), self.taking.spare, self.taking.provided)

    def _disclose(self, now_ms: int) -> None:
        waiting = (grant for grant in self.owned.accepted() if not self.owning.holds(grant, now_ms))
        for partition, said in self.disclosing.due(self.runs.values(), waiting, now_ms, is_full=self.open_slots <= 0):
            self.lanes.ask(partition, said, Ticket())

    def _moved(self) -> dict[int, list[tuple[GroupId, int]]]:
        cursors: dict[int, list[tuple[GroupId, int]]] = {}
        for group, (partition, seq) in self._cursors.items():
            cursors.setdefault(partition, []).append((group, seq))
        return cursors

    @property
    def resumes_ms(self) -> int | None:
        """When something may be taken whose rate is used up until then, or the store is to be told what slots are kept for."""
        known = [at for at in (self.taking.ready.resumes_ms, self.reserving.renews_ms) if at is not None]
        return None if self.is_stopping else min(known, default=None)

    def govern(self, policy: Policy, slots: int, now_ms: int) -> None:
        """Goes by a policy, and by so many slots, from the next decision on; what runs above them goes on to its end."""
        self.slots = self.asked.slots = self.taking.slots = slots
        self._desk.workshop.resize(slots)
        self.taking.ready.govern(policy, now_ms)
        self.disclosing.interval_ms = round(1000 * policy.disclosure.interval_s)
        self.taking.slot_freed()

    # --- what the store says ---

    def admit(
        self,
        entries: Iterable[DirectoryEntry],
        now_ms: int,
        *,
        nodes: Sequence[NodeUsage] = (),
        whole: int | None = None,
    ) -> None:
        """Folds directory entries, and what accounts and classes had; `whole`: they are all of that partition."""
        theirs = [self.asked.sift(entry) for entry in entries]
        theirs = [entry for entry in theirs if self.serves(entry.group)]
        for entry in theirs:
            if entry.group in self.halted and anyio.current_time() - self._halted_s[entry.group] >= HALTED_S:
                self.halted.discard(entry.group)
        shut = self.halted | self.bars.groups
        self.taking.fold(theirs, shut, now_ms, nodes=nodes, whole=whole)
        self.disclosing.learn(theirs)
        self._forget(theirs)

    def serves(self, group: GroupId) -> bool:
        """Whether this Worker works for a Mission (`--groups`)."""
        return self._pattern == "*" or fnmatchcase(name_of(group), self._pattern)

    def answer_offers(self, entry: DirectoryEntry, items: Sequence[ItemView], now_ms: int) -> None:
        """Judges what a Group offers to this Worker by name: declines are asked, the rest may be taken."""
        before = len(self.runs) + len(self.owned)
        declines = self.asked.judge(entry.group, items, before=before, now_ms=now_ms)
        for operation in declines:
            self.lanes.ask(entry.partition, operation, Ticket())
        self.admit([replace(entry, takeable=max(0, entry.takeable - len(declines)))], now_ms)

    def _leaving(self, operations: Iterable[Operation]) -> Iterator[Run]:
        for operation in operations:
            if isinstance(operation, Submit | Fail | Block):
                run = self.runs.get(operation.lease)
                if run is not None and run.leaves_its_slot:
                    yield run

    def vacate(self, turn: Turn) -> None:
        """Frees the slots of runs whose end this answered turn carried, before anything granted with it begins."""
        for run in self._leaving(turn.operations):
            self.finished(run)

    def answer(self, turn: Turn, reply: TurnReply, *, asked_s: float) -> None:
        """Takes the answer to a turn that was first sent at `asked_s`: tickets, runs to begin, Events, directory."""
        tickets = self.lanes.answered(turn)
        for group, _ in turn.cursors:
            self._cursors.pop(group, None)
        self._receive(turn, reply)
        for operation, outcome, ticket in zip(turn.operations, reply.outcomes, tickets, strict=True):
            if isinstance(operation, Save | Yield):
                self._saved(operation, outcome)
            if isinstance(operation, ReserveSlot | AskYield):
                self.preempting.answered(turn.partition, operation, outcome, reply.envelope.now_ms)
            if isinstance(operation, Start):
                self.owning.answered(operation, outcome, reply.envelope.now_ms)
            if isinstance(operation, Hold):
                self.reserving.answered(operation, outcome, reply.envelope.now_ms)
            if isinstance(operation, Disclose):
                self.disclosing.answered(operation, outcome, reply.at_ms)
            for grant in outcome.grants:
                self._granted(grant, asked_s)
            if isinstance(operation, Take) and outcome.code.startswith("LOG_"):
                _log.error("group %s: %s; it is halted, other Groups go on", shown(operation.group), outcome.code)
            if ticket is not None:
                ticket.answer(outcome)
            if outcome.code == "MEMBERSHIP_STALE":
                self.expel(turn.partition, operation.group)
        self.taking.answered(turn, reply, free=self.free_slots, spare=self.spare)
        self.admit(reply.entries, reply.envelope.now_ms, nodes=reply.nodes)
        self.taking.settle(turn, reply)

    def _saved(self, operation: Save | Yield, outcome: Outcome) -> None:
        """Ends the run of a stored Yield or a refused save, whether or not its handler still waits for the answer."""
        run = self.runs.get(operation.lease)
        if run is not None and not outcome.done:
            run.lose(outcome.code)
        elif run is not None and isinstance(operation, Yield):
            run.stop(End.YIELDED)

    def inherit(self, grants: Iterable[Grant]) -> None:
        """Takes on what an older session of this Agent held."""
        self.owning.inherit(grants, self.session.capabilities, self.slots, self.resources)

    def _granted(self, grant: Grant, asked_s: float) -> None:
        self.reserving.granted(grant)
        if grant.lease is None:
            _log.info("%s/%s: taken, it waits for a free slot", shown(grant.group), shown(grant.item))
            self.owned.add(grant, anyio.current_time())
            return
        if self.renewals.is_over(asked_s):
            _log.warning("%s/%s: its lease was over before its grant came", shown(grant.group), shown(grant.item))
            return
        run = Run(grant, grant.lease, self._handlers[grant.capability], self._desk)
        run.wants_yield = self.is_stopping
        self.runs[run.lease.lease_id] = run
        self.taking.ready.pin(grant.group)
        self.renewals.hold(grant.partition, grant.lease, asked_s=asked_s)
        if _log.isEnabledFor(logging.INFO):  # of short work there is much
            _log.info("%s: taken and started, attempt %d (%s)", run.name, grant.lease.number, grant.capability)
        self._begin(run)

    def _receive(self, turn: Turn, reply: TurnReply) -> None:
        events = events_of(turn, self.session, reply)
        for bell in reply.bells:
            mine = [event for event in events.get(bell.group, []) if bell.first <= event.seq <= bell.last]
            self.hear(turn.partition, bell.group, bell.previous, bell.first, bell.last, mine)

    def hear(self, partition: int, group: GroupId, previous: int, first: int, last: int, events: list[Event]) -> None:
        """Takes a link of the chain of Events that concern this Worker; an empty one is a doorbell."""
        try:
            received = self.inbox.receive(group, previous, first, last, events)
        except Corrupt as error:
            self.halt(group, error)
            return
        self.fold(partition, group, received.fresh)

    def fold(self, partition: int, group: GroupId, events: Iterable[Event]) -> None:
        """Folds Events that are new to this Worker, and stops the runs that they end."""
        try:
            for event in (one for one in events if not one.is_void):
                self.queues.fold(event)
                if event.kind is EventKind.PREEMPTION_OVERDUE:
                    self.preempting.overdue(event, self.runs)
                elif event.kind in ENDS_A_RUN:
                    self._lose_what_ended(event)
                elif event.kind is EventKind.MEMBERSHIP_CHANGED and event.get("agent") == self.session.agent:
                    self.bars.lift(group, partition)
                if event.item and self.owned.has_blocked:
                    self.owned.follow(event, self.queues.get(event.group, event.item), anyio.current_time())
        except Corrupt as error:
            self.halt(group, error)
        self._cursors[group] = (partition, self.inbox.cursor(group))

    def _lose_what_ended(self, event: Event) -> None:
        if event.kind is EventKind.FAILED and "@" in event.by:
            return  # a run's own end; by anybody else it is a command
        for run in list(self.runs.values()):
            # Read late, behind a break in the chain, what led to a run is no end of it.
            if run.key == (event.group, event.item) and event.seq > run.grant.seq:
                held = self.queues.get(event.group, run.grant.item)
                if held is None or held.lease_id != run.lease.lease_id:
                    self.lose(run.lease, event.kind.value)

    @property
    def behind(self) -> list[GroupId]:
        """Groups whose log must be read before their Cursor can move on."""
        return sorted(self.inbox.behind().keys() - self.halted)

    def _forget(self, entries: Iterable[DirectoryEntry]) -> None:
        """Lets go of Groups with nothing to take and nothing owned: a Worker outlives the Missions it worked for."""
        behind = self.inbox.behind()
        for entry in entries:
            if not entry.takeable and entry.group not in behind and not self.queues.owns(entry.group):
                self.inbox.forget(entry.group)
                self.halted.discard(entry.group)
                self._halted_s.pop(entry.group, None)

    def expel(self, partition: int, group: GroupId) -> None:
        """Ends all that this Worker does in a Group whose Membership was ended (R6): others have its items now."""
        self.bars.put(group, partition, anyio.current_time())
        for lease in [run.lease for run in self.runs.values() if run.grant.group == group]:
            self.lose(lease, "MEMBERSHIP_STALE")
        self.leave(group)

    def leave(self, group: GroupId) -> None:
        """Lets go of a Group that this Agent is no member of."""
        for forget in (self.owned.drop_group, self.queues.drop_group, self.inbox.forget, self.taking.ready.remove):
            forget(group)
        self._cursors.pop(group, None)

    def halt(self, group: GroupId, error: Corrupt) -> None:
        """Takes nothing more of a Group whose log cannot be trusted; other Groups go on."""
        name = shown(group)
        what = f"`treadle verify {name}` tells what differs, `treadle repair {name}` puts it right; other Groups go on"
        _log.error("group %s is halted here: %s; %s", name, error, what)
        self.halted.add(group)
        self._halted_s[group] = anyio.current_time()
        self.taking.ready.remove(group)

    # --- ends ---

    def lose(self, lease: Lease, why: str) -> None:
        """The lease is not ours any more: its handler is cancelled, with the reason in the log."""
        run = self.runs.get(lease.lease_id)
        self.renewals.drop(lease.lease_id)
        if run is not None:
            run.lose(why)

    def closing(self, lease: Lease) -> None:
        """A run is about to end by itself: what it said last travels before that, and a refused renewal is no loss."""
        self.progressing.closing(self.runs, lease, anyio.current_time())
        self.renewals.closing(lease.lease_id)

    def finished(self, run: Run) -> None:
        """The slot of a run is free."""
        self.renewals.drop(run.lease.lease_id)
        if self.runs.pop(run.lease.lease_id, None):
            self.owned.ran(run.grant.capability, run.lasted_s)
            self.disclosing.ran(run)
            self.progressing.finished(run)
            self.preempting.ended(run)
            self.taking.ready.unpin(run.grant.group)
        if run.is_blocked:
            self.owned.block(run.grant, self.queues.get(*run.key), anyio.current_time())
        self.taking.slot_freed()

    def stop(self) -> None:
        """From here on nothing is taken, and handlers yield at their next safe point."""
        self.is_stopping = True
        self.preempting.stop()
        self.reserving.let_go()
        for run in self.runs.values():
            run.ask_yield()

    def give_up(self, why: str) -> None:
        """The session is over: every run is cancelled, every question answered as stale, later ones too."""
        self.is_over = True
        for run in list(self.runs.values()):
            self.lose(run.lease, why)
        for ticket in self.lanes.abandon():
            ticket.answer(Outcome("AUTH_STALE_SESSION"))

    @property
    def is_done(self) -> bool:
        """Whether nothing runs, waits or is unanswered."""
        return not self.runs and not self.owned and self.lanes.is_idle
