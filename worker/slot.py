"""One Capacity Slot's run of one WorkItem: the concrete Context, and what became of the handler.

A run never speaks to the store. It asks its desk (the session at work, `shift.py`) for one operation at a time and waits
for the outcome.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, cast

import anyio
from anyio.lowlevel import checkpoint as let_others_run
from treadle.shared import codec
from treadle.shared.errors import TreadleError
from treadle.shared.model import Grant, GroupId, ItemId, Lease
from treadle.shared.names import name_of, shown
from treadle.shared.store import Fail as FailOperation
from treadle.shared.store import Operation, Outcome, Release, Save, Submit, Yield

from .handlers import Fail, Handler

EVIDENCE_MAX = 16_384
TEXT_MAX = 2_000
_log = logging.getLogger("treadle.worker")


class End(StrEnum):
    """Why a run is no longer wanted, as its handler is told and its log says."""

    LEASE_LOST = "lease_lost"
    """The item is another's: nothing this run does will be accepted."""
    YIELDED = "yielded"
    """It reached a safe point after yielding was asked; its Checkpoint is stored."""
    RETURNED = "returned"
    """The grace of a shutdown is over; the item goes back at its last Checkpoint."""


class Desk(Protocol):
    """Who carries out a run's operations."""

    async def ask(self, partition: int, operation: Operation) -> Outcome:
        """The outcome of one operation, however often it has to be sent. Raises what makes this Worker stop."""
        ...

    def closing(self, lease: Lease) -> None:
        """Says that this lease is about to be ended by its own run, so that a refused renewal is no loss."""
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
    wants_yield: bool = False
    checkpoint_number: int = 0
    checkpoint_digest: str = ""

    def __post_init__(self) -> None:
        self.checkpoint_number = self.grant.checkpoint_number

    @property
    def key(self) -> tuple[GroupId, ItemId]:
        return (self.grant.group, self.grant.item)

    @property
    def name(self) -> str:
        return f"{shown(self.grant.group)}/{shown(self.grant.item)}"

    def stop(self, end: End) -> None:
        """Cancels the handler, once; the first reason stands."""
        if self.end is None:
            self.end = end
            self.scope.cancel()

    def lose(self, why: str) -> None:
        """The lease is not ours any more: says so once, with the reason, and cancels the handler."""
        if self.end is None:
            _log.warning("%s: lease lost (%s), its handler is cancelled; attempt %d", self.name, why, self.lease.number)
            self.stop(End.LEASE_LOST)


class SlotContext:
    """The `Context` of `handlers.py` for one run."""

    def __init__(self, run: Run, inputs: dict[str, Any], state: dict[str, Any], results: Mapping[str, Any]) -> None:
        self._run = run
        self._inputs = inputs
        self._state = state
        self._results = results
        self._logger = _RunLogger(logging.getLogger("treadle.handler"), {"run": run.name})

    @property
    def mission(self) -> str:
        return name_of(self._run.grant.group)

    @property
    def item(self) -> str:
        return name_of(self._run.grant.item)

    @property
    def worker(self) -> str:
        return name_of(self._run.lease.agent)

    @property
    def attempt(self) -> int:
        return self._run.lease.number

    @property
    def inputs(self) -> dict[str, Any]:
        return self._inputs

    @property
    def results(self) -> Mapping[str, Any]:
        return self._results

    @property
    def checkpoint_state(self) -> dict[str, Any]:
        return self._state

    @property
    def cancelled(self) -> bool:
        return self._run.end is End.LEASE_LOST

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        return self._logger

    def progress(self, done: float, total: float = 1.0, *, note: str = "") -> None:
        self._logger.debug("progress %g of %g %s", done, total, printable(note))

    async def checkpoint(self, state: dict[str, Any]) -> None:
        """Stores `state`, then returns; or ends the run here, where yielding was asked or the lease is lost."""
        run = self._run
        raw = codec.pack(state, field="checkpoint", limit=codec.CHECKPOINT_MAX)
        digest = codec.digest(raw)
        grant, lease = run.grant, run.lease
        target = (grant.group, grant.item, grant.ownership_epoch, lease.lease_id)
        if digest != run.checkpoint_digest:
            # Before it is asked: once asked it is sent, also where the handler's own time-out ends this wait, and a
            # handler may save from several tasks.
            run.checkpoint_number, run.checkpoint_digest = run.checkpoint_number + 1, digest
            self._state = state
        number = run.checkpoint_number
        if run.wants_yield:
            run.desk.closing(lease)
            await run.desk.ask(grant.partition, Yield(*target, number, digest, raw, keep=False))
        else:
            await run.desk.ask(grant.partition, Save(*target, number, digest, raw))
        # Where the run was stopped, this raises the cancellation: the handler unwinds from its safe point.
        await let_others_run()


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[{(self.extra or {}).get('run')}] {msg}", kwargs


async def carry_out(run: Run, bodies: Bodies) -> None:
    """Runs the handler to its end and has that end stored; the slot is free when this returns."""
    grant, lease = run.grant, run.lease
    target = (grant.group, grant.item, grant.ownership_epoch, lease.lease_id)
    ending: Operation | None = None
    with run.scope:
        # Outside the `try`: that the store cannot give them is nothing the handler did.
        found = await bodies.read(grant.partition, wanted) if (wanted := _wanted(grant)) else []
        try:
            result = await run.handler.function(*_given(run, found))
            raw = codec.pack(result, field="result", limit=codec.RESULT_MAX)
            ending = Submit(*target, codec.digest(raw), raw)
        except Fail as failure:
            ending = _failed(target, failure, retryable=failure.retryable)
        except anyio.get_cancelled_exc_class() as cancelled:
            if run.end is None and not run.scope.cancel_called:
                ending = _failed(target, cancelled, retryable=False)
            else:
                raise
        except BaseException as error:  # whatever a handler raises is its item's outcome, never the Worker's
            # Of a run that was stopped, a group of its tasks' cancellations is just how it unwinds.
            if run.end is None:
                ending = _failed(target, error, retryable=False)
    if run.end is End.RETURNED:
        ending = Release(grant.group, grant.item, grant.ownership_epoch, "shutdown")
    elif run.end is not None:
        return
    if ending is not None:
        run.desk.closing(lease)
        outcome = await run.desk.ask(grant.partition, ending)
        if not outcome.done:
            run.lose(outcome.code)


class Bodies(Protocol):
    """Where a run's Checkpoint and dependency results are read."""

    async def read(self, partition: int, wanted: list[tuple[GroupId, ItemId, str]]) -> list[bytes | None]:
        """The bodies, however often the store has to be asked. Raises what makes this Worker stop."""
        ...


def _wanted(grant: Grant) -> list[tuple[GroupId, ItemId, str]]:
    """The bodies of a run: its dependencies' results, and last of all its Checkpoint."""
    wanted = [(grant.group, other, "rs") for other in grant.after]
    return [*wanted, (grant.group, grant.item, "ck")] if grant.checkpoint_number else wanted


def _given(run: Run, found: list[bytes | None]) -> tuple[SlotContext, dict[str, Any]]:
    """What the handler is called with."""
    grant = run.grant
    state: dict[str, Any] = {}
    if grant.checkpoint_number and (raw := found[-1]) is not None:
        state = cast("dict[str, Any]", codec.unpack(raw, what=f"Checkpoint of {run.name}"))
        run.checkpoint_digest = codec.digest(raw)
    results = {
        name_of(other): None if raw is None else codec.unpack(raw, what=f"result of {name_of(other)}")
        for other, raw in zip(grant.after, found, strict=False)
    }
    inputs = cast("dict[str, Any]", codec.unpack(grant.inputs, what=f"inputs of {run.name}"))
    return SlotContext(run, inputs, state, results), inputs


def _failed(target: tuple[GroupId, ItemId, int, Any], error: BaseException, *, retryable: bool) -> FailOperation:
    """The failure as Evidence: type name and bounded, printable text; never the exception object (BR-57)."""
    kind = type(error).__name__
    code = error.code if isinstance(error, TreadleError) else ""
    try:
        said = str(error)
    except Exception:  # an exception whose own text cannot be made is still this item's failure
        said = "(its text cannot be shown)"
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    evidence = {
        "type": printable(kind),
        "text": printable(said),
        "code": code,
        "place": printable(place),
        "retryable": retryable,
    }
    raw = codec.pack(evidence, field="failure", limit=EVIDENCE_MAX)
    return FailOperation(*target, codec.digest(raw), raw)


def printable(text: str) -> str:
    """`text` bounded, with what a terminal or a log must not get replaced."""
    shown = text[:TEXT_MAX].encode("utf-8", "backslashreplace").decode()
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in shown)
    return shown[: 2 * TEXT_MAX] + (" ..." if len(text) > TEXT_MAX else "")
