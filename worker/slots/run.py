"""One run of one WorkItem: its grant, its lease, its handler, why it is stopped.

A run never speaks to the store. It asks its desk (the session at work, `shift.py`) for one operation at a time and waits
for the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Protocol

import anyio
from treadle.shared import codec
from treadle.shared.model import Grant, GroupId, ItemId, Lease, LeaseId
from treadle.shared.names import shown
from treadle.shared.progress import Said
from treadle.shared.redaction import Secrets
from treadle.shared.store import Operation, Outcome

from ..handlers import Handler
from .budget import Budget
from .workshop import Workshop

_NO_STATE = codec.pack({}, field="checkpoint", limit=codec.CHECKPOINT_MAX)
_log = logging.getLogger("treadle.worker")


class End(StrEnum):
    """Why a run is no longer wanted, as its handler is told and its log says."""

    LEASE_LOST = "lease_lost"
    """The item is another's: nothing this run does will be accepted."""
    YIELDED = "yielded"
    """It reached a safe point after yielding was asked; its Checkpoint is stored."""
    RETURNED = "returned"
    """The grace of a shutdown is over; the item goes back at its last Checkpoint."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A run's question and, once it is there, its outcome."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome | None = None

    def answer(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.answered.set()


class Desk(Protocol):
    """Who carries out a run's operations."""

    async def ask(self, partition: int, operation: Operation) -> Outcome:
        """The outcome of one operation, however often it has to be sent. Raises what makes this Worker stop."""
        ...

    def closing(self, lease: Lease) -> None:
        """Says that this lease is about to be ended by its own run, so that a refused renewal is no loss."""
        ...

    def progress(self, run: Run, said: Said) -> None:
        """Takes how far a run says it is; it never waits, from whatever thread."""
        ...

    @property
    def workshop(self) -> Workshop:
        """What all slots of the Worker share."""
        ...


class Bodies(Protocol):
    """Where a run's Checkpoint and dependency results are read."""

    async def read(self, partition: int, wanted: list[tuple[GroupId, ItemId, str]]) -> list[bytes | None]:
        """The bodies, however often the store has to be asked. Raises what makes this Worker stop."""
        ...


@dataclass(eq=False)
class Run:
    """A started item, its handler and its cancel scope."""

    grant: Grant
    lease: Lease
    handler: Handler
    desk: Desk
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    end: End | None = None
    lost_why: str = ""
    """The code that says how its lease was lost."""
    wants_yield: bool = False
    when_asked: Callable[[], None] | None = None
    """Called once its slot is asked for, for a handler that cannot look at it here."""
    checkpoint_number: int = 0
    checkpoint_digest: str = ""
    """Of the state that is saved under that number; '' where the next save is a new one whatever it holds."""
    checkpoint_damaged: int = 0
    """How many of the kept Checkpoints could not be trusted."""
    is_blocked: bool = False
    """Whether its end is stored as a block: the item is still this Worker's."""
    has_returned: bool = False
    """Whether its handler is done, or given up: nothing it still asks is asked of the store."""
    has_result: bool = False
    """Whether it came to a result."""
    folder: Path | None = None
    """Where it asked for one."""
    began_s: float = field(default_factory=anyio.current_time)
    budget: Budget = field(default_factory=Budget)
    credentials: Secrets = field(default_factory=Secrets)
    state: bytes = _NO_STATE
    """Of the Checkpoint it began with; where what it spends is kept, of the last one it saved."""

    def __post_init__(self) -> None:
        self.checkpoint_number = self.grant.checkpoint_number

    @property
    def key(self) -> tuple[GroupId, ItemId]:
        return (self.grant.group, self.grant.item)

    @property
    def target(self) -> tuple[GroupId, ItemId, int, LeaseId]:
        """What each of its operations begins with: whose it is, and by which right."""
        grant = self.grant
        return (grant.group, grant.item, grant.ownership_epoch, self.lease.lease_id)

    @cached_property
    def name(self) -> str:
        return f"{shown(self.grant.group)}/{shown(self.grant.item)}"

    @property
    def is_over(self) -> bool:
        """Whether nothing of its handler counts any more."""
        return self.end is not None or self.has_returned

    @property
    def why(self) -> str:
        """Why it is to end, or has ended, as its handler is told; '' while it goes on."""
        if self.end is End.LEASE_LOST:
            return f"lease lost ({self.lost_why})"
        if self.end is not None:
            return "yielded at its checkpoint" if self.end is End.YIELDED else "the Worker stops, its grace is over"
        if self.has_returned:
            return "its end is recorded"
        return "its slot is asked for: the next checkpoint ends it" if self.wants_yield else ""

    @property
    def leaves_its_slot(self) -> bool:
        """Whether nothing of its handler runs any more: only its end is to be stored."""
        return self.has_returned and self.handler.ends_with_its_run

    @property
    def lasted_s(self) -> float:
        return anyio.current_time() - self.began_s

    def ask_yield(self) -> None:
        """Asks it for its slot: its next checkpoint ends it."""
        self.wants_yield = True
        if self.when_asked is not None:
            self.when_asked()

    def stop(self, end: End) -> None:
        """Cancels the handler, once; the first reason stands."""
        if self.end is None:
            self.end = end
            self.scope.cancel()

    def lose(self, why: str) -> None:
        """The lease is not ours any more: says so once, with the reason, and cancels the handler."""
        if self.end is None:
            _log.warning("%s: lease lost (%s), its handler is cancelled; attempt %d", self.name, why, self.lease.number)
            self.lost_why = why
            self.stop(End.LEASE_LOST)
