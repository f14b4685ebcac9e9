"""One session at work: its connections, its tasks, its loop. Everything else rings the loop.

look and doorbells -> inbox, queues, directory -> decide -> one turn a partition -> runs in their slots
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import zlib
from collections import deque
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup
from treadle.shared.errors import Misuse, Stale, StoreChanged, TreadleError, Unavailable
from treadle.shared.model import Grant, GroupId, ItemId, Lease, Session
from treadle.shared.names import shown
from treadle.shared.progress import Said
from treadle.shared.store import Authority, Envelope, Operation, Outcome, RenewalDoor, Store, Take, Wake

from .explaining import Questions
from .opening import open_session
from .patience import HURRY_S, Patience
from .policing import Policing
from .reading import read_on
from .renewal import RenewalThread, Report, renew_due
from .slots.run import End, Run, Ticket
from .slots.slot import carry_out as carry_out
from .slots.workshop import Workshop
from .tenure import Tenure
from .terms import Terms as Terms
from .watchdog import Watchdog

SWEEP_S = 5.0
"""The directory and every due head are looked at this often at least, since a token can be lost."""
BUSY_LOOK_S = 1.0
"""The same while something runs here, or waits for what others use of a quota: of its end no token tells."""
TIMER = "- "  # how a token begins that only says that something is due sooner than it was
CLOSE_S = 5.0
_log = logging.getLogger("treadle.worker")


class Shift:
    """One session, from its opening to its end, with its connections, its renewal thread and its tasks."""

    def __init__(self, terms: Terms, patience: Patience, store: Store, *, lives: bool = False) -> None:
        self._terms = terms
        self._lives = lives
        """Whether this runtime had a session before: what that one ran was not lost with its Worker."""
        self._patience = patience
        self._nonce = patience.nonce()
        self._authority = Authority(store, log_keep=terms.log_keep)
        self._store = store
        self._rung = anyio.Event()
        self._wakes: deque[Wake] = deque()
        self._questions = Questions()
        self._heeded: anyio.Event | None = None
        """Set when what a token led to is answered."""
        self._fault: BaseException | None = None
        self._listens_for_tokens = True
        self._versions: dict[int, int] = {}
        self._unread: set[int] = set()
        self._asked_s: dict[int, float] = {}
        """By partition, when its unanswered turn was sent first: a lease it is granted counts from there."""
        self._swept_s = -SWEEP_S
        self._clock_ms = 0.0
        self._failures = 0
        self._stagger_s = zlib.crc32(terms.name.encode()) % 16 / 1000
        self._tenure: Tenure
        self._watchdog: Watchdog
        self._tasks: TaskGroup
        self._renewal: RenewalThread | None = None

    async def serve(self, opened: Callable[[Session], None]) -> None:
        """Opens a session, tells it, and works under it until told to stop or until it is over: then it raises why."""
        terms, store = self._terms, self._store
        session, owned = await self._patience.until_answered(self._open)
        self._tenure = Tenure(
            session,
            handlers=terms.handlers,
            slots=terms.slots,
            resources=terms.resources,
            groups=terms.groups,
            partitions=store.partitions,
            desk=self,
            begin=self._begin,
        )
        self._versions = dict.fromkeys(range(store.partitions), 0)
        if terms.renew_in == "task":  # of a simulator, as its clock is
            self._tenure.renewals.now = anyio.current_time
        self._policing = Policing(self._authority, terms.slots)
        over: TreadleError | None = None
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    await self._start(owned)
                    opened(session)
                    await self._work()
                except TreadleError as error:
                    over = error  # raised outside, where no group wraps it
                finally:
                    await self._wind_up()
                    self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                if self._renewal is not None:
                    await anyio.to_thread.run_sync(self._renewal.stop)
                await self._authority.aclose()
        if over is not None:
            raise over

    async def _start(self, owned: list[Grant]) -> None:
        await self._recover(owned)
        tenure = self._tenure
        door = RenewalDoor(self._store, tenure.session)
        if self._terms.renew_in == "thread":
            loop = asyncio.get_running_loop()

            def report(found: Report) -> None:
                loop.call_soon_threadsafe(self._reported, found)

            self._renewal = RenewalThread(tenure.renewals, door, report)
            self._renewal.start()
        else:
            self._tasks.start_soon(self._renew, door)
        self._tasks.start_soon(self._listen)
        self._watchdog = Watchdog(tenure.renewals, tenure.runs)
        self._tasks.start_soon(self._watchdog.watch)
        _log.info("agent %s: session %d is open", shown(tenure.session.agent), tenure.session.epoch)

    async def _wind_up(self) -> None:
        """Cancels what still runs and lets it unwind, within the grace: no slot outlives its session."""
        self._tenure.give_up("session over")
        with anyio.move_on_after(self._terms.grace_s, shield=True):
            for run in list(self._tenure.runs.values()):
                await run.done.wait()

    async def _open(self) -> tuple[Session, list[Grant]]:
        return await open_session(self._authority, self._terms, nonce=self._nonce, lives=self._lives)

    async def _recover(self, owned: list[Grant]) -> None:
        """Rebuilds the queues of what an older session left, from the log itself (C10): none, where it is given back."""
        self._tenure.inherit(owned)
        for group in sorted({grant.group for grant in owned}):
            await read_on(self._authority, self._tenure, group, self._patience.stop.is_set)

    # --- the loop ---

    async def _work(self) -> None:
        """Reads, folds, decides and carries out until the Worker is stopped and nothing is left."""
        tenure, stop = self._tenure, self._patience.stop
        self._tasks.start_soon(self._ring_on_stop)
        give_up_s = math.inf
        while True:
            if stop.is_set() and not tenure.is_stopping:
                tenure.stop()
                self._tasks.start_soon(self._grace)
                give_up_s = anyio.current_time() + self._terms.grace_s + tenure.renewals.ttl_s
            self._raise_faults()
            if tenure.is_stopping and (tenure.is_done or anyio.current_time() > give_up_s):
                break
            try:
                await self._round()
                self._failures = 0
            except Unavailable as error:
                self._failures += 1
                self._patience.complain(self._failures, error)
                await anyio.sleep(self._patience.back_off_s(self._failures))
                self._ring()  # what was not answered is repeated now, not at the next sweep
        with anyio.move_on_after(CLOSE_S):
            await self._authority.close_session(tenure.session)

    async def _round(self) -> None:
        await self._rest()
        self._raise_faults()
        await self._hear()
        await self._tick()
        await self._look()
        await self._questions.answer(self._store, self._tenure, self._now_ms())
        for group in self._tenure.behind:
            await read_on(self._authority, self._tenure, group)
        for entry in self._tenure.asked.withheld:
            items = await self._store.asked(entry.group, self._terms.name)
            self._tenure.answer_offers(entry, items, self._now_ms())
        await self._policing.follow(self._tenure, self._now_ms())
        if not self._watchdog.look():
            self._unread.update(self._versions)
            return  # until a round of renewals rings
        turns = self._tenure.turns(self._now_ms())
        if not turns:
            self._heed()
            await self._poke()
            return
        for turn in turns:
            self._asked_s.setdefault(turn.partition, self._tenure.renewals.now())
        answers = await self._authority.turns(self._tenure.session, turns)
        fault: TreadleError | None = None
        for turn in (turn for turn, answer in zip(turns, answers, strict=True) if not isinstance(answer, TreadleError)):
            self._tenure.vacate(turn)
        for turn, answer in zip(turns, answers, strict=True):
            if isinstance(answer, TreadleError):
                fault = answer
            else:
                self._learn(turn.partition, answer.envelope)
                if len(answer.entries) < sum(isinstance(operation, Take) for operation in turn.operations):
                    self._unread.add(turn.partition)  # a repeated call is answered without the directory
                self._tenure.answer(turn, answer, asked_s=self._asked_s.pop(turn.partition))
        if fault is not None:
            raise fault
        self._heed()
        self._ring()

    def _heed(self) -> None:
        """What was heard has led to what it can: the listener may go on, as full as this Worker is now."""
        if self._heeded is not None and not self._wakes:
            self._heeded.set()

    async def _rest(self) -> None:
        """Waits until something rings, is due, or the time of the next sweep."""
        known = [due for due in (*self._tenure.due_ms.values(), self._tenure.resumes_ms) if due is not None]
        now_s = anyio.current_time()
        until_s = self._swept_s + self._sweep_s
        if known:
            until_s = min(until_s, now_s + (min(known) - self._now_ms()) / 1000 + self._stagger_s)
        with anyio.move_on_after(max(0.0, until_s - now_s)):
            await self._rung.wait()
        self._rung = anyio.Event()

    @property
    def _sweep_s(self) -> float:
        """How long what is known of other Groups may be old: a busy Worker hears no tokens, so it looks more often."""
        is_behind = bool(self._tenure.runs) or self._tenure.taking.ready.takeable > 0
        return min(BUSY_LOOK_S if is_behind else SWEEP_S, self._tenure.renewals.ttl_s / 2)

    async def _hear(self) -> None:
        while self._wakes:
            wake = self._wakes.popleft()
            if wake.token is not None and not wake.token.startswith(TIMER):  # a timer's is handed to nobody
                self._tenure.lanes.token(wake.partition, wake.token)
            self._unread.add(wake.partition)  # a doorbell may be an offer to this Worker by name
            self._questions.hear(wake)
            if bell := wake.bell:
                self._tenure.hear(wake.partition, bell.group, bell.previous, bell.first, bell.last, [])

    async def _tick(self) -> None:
        now_ms = self._now_ms()
        for partition, due in list(self._tenure.due_ms.items()):
            if due is not None and due <= now_ms:
                envelope, _ = await self._authority.tick(partition)
                self._learn(partition, envelope)
                self._unread.add(partition)

    async def _look(self) -> None:
        now_s = anyio.current_time()
        if self._tenure.taking.is_stopped or now_s >= self._swept_s + self._sweep_s:  # as `_rest` reckons
            self._unread.update(self._versions)
            self._swept_s = now_s
        for partition in self._tenure.bars.lifted(now_s):
            self._versions[partition] = 0
            self._unread.add(partition)
        if not self._unread:
            return
        wanted = {partition: self._versions[partition] for partition in self._unread}
        found = await self._authority.look(wanted, self._tenure.sought)
        for partition, look in found.items():
            self._learn(partition, look.envelope)
            self._versions[partition] = look.version
            whole = partition if look.full else None
            self._tenure.admit(look.entries, look.envelope.now_ms, nodes=look.nodes, whole=whole)
        self._unread.difference_update(wanted)

    async def _poke(self) -> None:
        """Ends a wait that does not listen for tokens although a slot is free now."""
        if self._tenure.open_slots > 0 and not self._listens_for_tokens and not self._tenure.is_stopping:
            self._listens_for_tokens = True
            await self._authority.poke(self._tenure.session)

    # --- what rings ---

    def _ring(self) -> None:
        self._rung.set()

    def _begin(self, run: Run) -> None:
        self._tasks.start_soon(self._run, run)

    async def _run(self, run: Run) -> None:
        try:
            await carry_out(run, self)
        except TreadleError as error:
            self._fault = self._fault or error
        finally:
            self._tenure.finished(run)
            run.done.set()
            self._ring()

    # --- what runs ask: this is their desk ---

    @property
    def workshop(self) -> Workshop:
        return self._terms.workshop

    async def ask(self, partition: int, operation: Operation) -> Outcome:
        """The outcome of one operation: it travels with the next turn of its partition, until that is answered."""
        if self._tenure.is_over:
            return Outcome("AUTH_STALE_SESSION")
        ticket = Ticket()
        self._tenure.lanes.ask(partition, operation, ticket)
        self._ring()
        await ticket.answered.wait()
        assert ticket.outcome is not None
        return ticket.outcome

    def closing(self, lease: Lease) -> None:
        """A run is about to end this lease itself."""
        self._tenure.closing(lease)

    def progress(self, run: Run, said: Said) -> None:
        """What a run says of how far it is; from whatever thread."""
        self._tenure.progressing.say(run, said)

    async def read(self, partition: int, wanted: list[tuple[GroupId, ItemId, str]]) -> list[bytes | None]:
        """Bodies for a run, asked for until the store answers or the run is stopped."""
        for failures in itertools.count(1):
            try:
                return await self._authority.read(partition, wanted)
            except Unavailable as error:
                self._patience.complain(failures, error)
                await anyio.sleep(self._patience.back_off_s(failures))
        raise AssertionError("count() does not end")

    async def _listen(self) -> None:
        failures = 0
        while True:
            tokens = self._tenure.open_slots > 0 and not self._tenure.is_stopping
            self._listens_for_tokens = tokens
            try:
                wake = await self._authority.wait(self._tenure.session, tokens=tokens, timeout_s=SWEEP_S)
                failures = 0
            except Unavailable:
                failures += 1
                await anyio.sleep(self._patience.back_off_s(failures))
            except (Stale, StoreChanged, Misuse) as error:
                self._fault = self._fault or error
                self._ring()
                return
            except TreadleError as error:
                # What stands in an inbox is only a hint: whatever it was, the directory says what there is to do.
                failures += 1
                _log.error("%s; it is passed over", error)
                self._unread.update(self._versions)
                self._ring()
                await anyio.sleep(self._patience.back_off_s(failures))
            else:
                if wake is not None:
                    self._wakes.append(wake)
                    self._ring()
                if wake is not None and wake.token is not None:
                    # What it leads to may fill the slots: then the next token is for somebody who is idle.
                    self._heeded = anyio.Event()
                    await self._heeded.wait()

    def _reported(self, report: Report) -> None:
        """Takes what a renewal found at once: the loop may be waiting for an answer just now, a zombie must not."""
        self._fault = self._fault or report.fault
        self._tenure.due_ms.update(report.due_ms or {})
        lost = dict(report.lost)
        for run in list(self._tenure.runs.values()):
            if report.fault is not None:
                self._tenure.lose(run.lease, f"session over: {report.fault}")
            elif run.lease.lease_id in lost:
                self._tenure.lose(run.lease, lost[run.lease.lease_id])
        self._ring()

    async def _renew(self, door: RenewalDoor) -> None:
        """The renewal thread's work as a task: for a simulator's virtual clock."""
        try:
            while True:
                await anyio.sleep(self._tenure.renewals.look_s)
                renew_due(self._tenure.renewals, door, self._reported)
        finally:
            door.close()

    async def _ring_on_stop(self) -> None:
        await self._patience.stop.wait()
        self._ring()

    async def _grace(self) -> None:
        grace_s = self._terms.grace_s
        with anyio.move_on_after(grace_s):
            await self._patience.hurry.wait()
            grace_s = HURRY_S
            await anyio.sleep(grace_s)
        runs = list(self._tenure.runs.values())
        if runs:
            _log.warning("the grace of %g s is over, cut off: %s", grace_s, ", ".join(run.name for run in runs))
        for run in runs:
            run.stop(End.RETURNED)

    # --- time and faults ---

    def _learn(self, partition: int, envelope: Envelope) -> None:
        self._clock_ms = envelope.now_ms - anyio.current_time() * 1000
        self._tenure.due_ms[partition] = envelope.due_ms
        self._policing.hear(envelope.policy)

    def _now_ms(self) -> int:
        """The store's time as far as it is known: for waiting and ordering only, nothing is decided by it."""
        return int(self._clock_ms + anyio.current_time() * 1000)

    def _raise_faults(self) -> None:
        if self._fault is not None:
            raise self._fault
