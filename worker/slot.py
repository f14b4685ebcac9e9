"""One run from its first line to its end: the handler called, what came of it judged, and that end stored."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import Any, cast

import anyio
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Misuse
from treadle.shared.inputs import plain
from treadle.shared.model import Grant, GroupId, ItemId, LeaseId
from treadle.shared.names import name_of
from treadle.shared.store import Fail as FailOperation
from treadle.shared.store import Operation, Release, Submit

from .contexts import SlotContext as SlotContext
from .contexts import ThreadContext
from .failures import Failure, failure_of, traceback_of
from .run import Bodies as Bodies
from .run import End
from .run import Run as Run
from .threads import Errand

_log = logging.getLogger("treadle.worker")


async def carry_out(run: Run, bodies: Bodies) -> None:
    """Runs the handler to its end and has that end stored; the slot is free when this returns."""
    attempt = _Attempt(run)
    with run.scope:
        # Outside of the attempt: that the store cannot give them is nothing the handler did.
        found = await bodies.read(run.grant.partition, wanted) if (wanted := _wanted(run.grant)) else []
        await attempt.make(found)
    run.has_returned = True
    await _record(run, attempt.ending, attempt.failure)
    if attempt.errand is not None:
        await attempt.errand.unwound()


async def _record(run: Run, ending: Operation | None, failure: Failure | None) -> None:
    """Has the end of a run stored, and says it."""
    if run.end is End.RETURNED:
        grant = run.grant
        ending, failure = Release(grant.group, grant.item, grant.ownership_epoch, "shutdown"), None
    elif run.end is not None:
        if run.end is End.YIELDED:
            _log.info("%s: yielded its slot at a checkpoint after %.3f s", run.name, run.lasted_s)
        return
    if ending is None:
        return
    run.desk.closing(run.lease)
    outcome = await run.desk.ask(run.grant.partition, ending)
    if not outcome.done:
        run.lose(outcome.code)
    elif failure is not None:
        again = "tried again" if outcome.at_ms else "final"
        _log.warning("%s: failed after %.3f s (%s): %s", run.name, run.lasted_s, again, failure)
    elif _log.isEnabledFor(logging.INFO):
        what = "given back at its last checkpoint" if run.end is End.RETURNED else "finished"
        _log.info("%s: %s after %.3f s", run.name, what, run.lasted_s)


class _Attempt:
    """One call of a handler, and what came of it."""

    def __init__(self, run: Run) -> None:
        self.ending: Operation | None = None
        self.failure: Failure | None = None
        self.errand: Errand | None = None
        self._run = run

    async def make(self, found: list[bytes | None]) -> None:
        """Calls the handler, and names the end of its run: a Submit or a Fail; neither, where the run was stopped."""
        run = self._run
        try:
            context, inputs = _given(run, found)
            timeout_s = _timeout_s(run)
        except Exception as error:  # they are the same at the next attempt
            self._fail(error, retryable=False)
            return
        limit = anyio.CancelScope()
        try:
            if run.handler.is_sync:
                threads = run.desk.threads
                self.errand = Errand(threads, run.name, partial(run.handler.function, context, inputs))
                limiter = await threads.admit(run.name)
                work = self.errand.run(limiter)
            else:
                work = run.handler.function(context, inputs)
            if timeout_s < math.inf:
                limit.deadline = anyio.current_time() + timeout_s
                with limit:
                    result = await work
            else:
                result = await work
        except anyio.get_cancelled_exc_class() as cancelled:
            if run.end is not None or run.scope.cancel_called:
                raise
            self._fail(cancelled, retryable=True)
        except BaseException as error:  # whatever a handler raises is its item's outcome, never the Worker's
            # Of a run that was stopped, a group of its tasks' cancellations is just how it unwinds.
            if run.end is None:
                over = _over_time(timeout_s) if limit.cancel_called else None
                self._fail(over or error, retryable=True)
        else:
            if limit.cancelled_caught:
                self._fail(_over_time(timeout_s), retryable=True)
            else:
                self._submit(result)

    def _submit(self, result: Any) -> None:
        try:
            raw = _pack_result(result)
        except Exception as error:  # the same code gives it again
            self._fail(error, retryable=False)
        else:
            self.ending = Submit(*self._target, codec.digest(raw), raw)

    def _fail(self, error: BaseException, *, retryable: bool) -> None:
        self.failure = failure_of(error, retryable=retryable, place=self._run.handler.line)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", self._run.name, traceback_of(error))
        raw = self.failure.evidence()
        self.ending = FailOperation(*self._target, codec.digest(raw), raw, retryable=self.failure.retryable)

    @property
    def _target(self) -> tuple[GroupId, ItemId, int, LeaseId]:
        grant = self._run.grant
        return (grant.group, grant.item, grant.ownership_epoch, self._run.lease.lease_id)


def _over_time(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"it took longer than its time-out of {timeout_s:g} s")


def _timeout_s(run: Run) -> float:
    """How long this attempt may take, by the item's contract."""
    if not run.grant.contract:
        return math.inf
    contract = codec.unpack(run.grant.contract, what=f"contract of {run.name}")
    timeout_s = contract.get("timeout_s", math.inf) if isinstance(contract, dict) else None
    if not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise Corrupt(f"contract of {run.name}: its time-out is {codec.shown(timeout_s)}, no number of seconds")
    return float(timeout_s)


def _pack_result(result: Any) -> bytes:
    try:
        return codec.pack(result, field="result", limit=codec.RESULT_MAX)
    except Misuse:
        # Only now: most results are plain, and looking through them costs more than packing.
        return codec.pack(plain(result), field="result", limit=codec.RESULT_MAX)


def _wanted(grant: Grant) -> list[tuple[GroupId, ItemId, str]]:
    """The bodies of a run: its dependencies' results, and last of all its Checkpoint."""
    wanted = [(grant.group, other, "rs") for other in grant.after]
    return [*wanted, (grant.group, grant.item, "ck")] if grant.checkpoint_number else wanted


def _given(run: Run, found: list[bytes | None]) -> tuple[SlotContext | ThreadContext, Any]:
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
    kind = ThreadContext if run.handler.is_sync else SlotContext
    form = run.handler.inputs
    return kind(run, inputs, state, results), inputs if form is None else form.read(inputs)
