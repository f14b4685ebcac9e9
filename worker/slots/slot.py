"""One run from its first line to its end: the handler called, what came of it judged, and that end stored."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import anyio
from treadle.shared import codec
from treadle.shared.errors import Corrupt, Expired, Misuse, Unavailable
from treadle.shared.model import Grant, GroupId, ItemId
from treadle.shared.names import name_of, shown
from treadle.shared.redaction import hiding
from treadle.shared.store import Block, Operation, Release, Submit, keys
from treadle.shared.store import Fail as FailOperation

from ..context import Blocked
from ..credentials import secrets_of
from .blocking import terms_of
from .budget import budget_of
from .checkpoints import POISON, DamagedError, checkpoint_of, stored, trusting
from .contexts import called
from .errand import Errand, Packed, Reported
from .failures import Failure, blocked_of, failure_of, traceback_of
from .given import Given
from .processes import process_errand
from .results import pack_result
from .run import Bodies as Bodies
from .run import End
from .run import Run as Run
from .service import RunService
from .tasks import TaskErrand
from .threads import ThreadErrand

_log = logging.getLogger("treadle.worker")


async def carry_out(run: Run, bodies: Bodies) -> None:
    """Runs the handler to its end and has that end stored; the slot is free when this returns."""
    attempt = _Attempt(run)
    try:
        with run.scope:
            # Outside of the attempt: that the store cannot give them is nothing the handler did.
            found = await bodies.read(run.grant.partition, wanted) if (wanted := _wanted(run.grant)) else []
            await attempt.make(found, bodies)
        run.has_returned, run.has_result = True, isinstance(attempt.ending, Submit)
        await _record(run, attempt.ending, attempt.failure)
    finally:
        if attempt.errand is not None:
            await attempt.errand.unwound()
        _settle(run)
        if run.folder is not None:
            await run.desk.workshop.pool.remove(run.folder)


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
    if not isinstance(ending, Submit | Block):
        try:
            await RunService(run).keep_spent()
        except (
            Misuse
        ) as error:  # of a Checkpoint that an earlier version of this program saved: no attempt would find room
            failure = failure_of(error, retryable=False)
            ending = FailOperation(*run.target, codec.digest(failure.evidence()), failure.evidence(), retryable=False)
    run.desk.closing(run.lease)
    outcome = await run.desk.ask(run.grant.partition, ending)
    if not outcome.done:
        run.lose(outcome.code)
    elif isinstance(ending, Block):
        run.is_blocked = True
        _log.info("%s: blocked after %.3f s: %s", run.name, run.lasted_s, shown(ending.reason))
    elif failure is not None:
        again = "tried again" if outcome.at_ms else "final"
        _log.warning("%s: failed after %.3f s (%s): %s", run.name, run.lasted_s, again, failure)
    elif _log.isEnabledFor(logging.INFO):
        what = "given back at its last checkpoint" if run.end is End.RETURNED else "finished"
        _log.info("%s: %s after %.3f s", run.name, what, run.lasted_s)


def _settle(run: Run) -> None:
    """Ends what the run had: whoever still holds its context finds no credentials; what it spent is added up and said."""
    run.credentials.forget()
    if spent := run.budget.here:
        sums = run.desk.workshop.spending.add(name_of(run.grant.group), spent)
        said = ", ".join(f"{amount:,} {name} ({sums[name]:,} by its Mission here)" for name, amount in spent.items())
        _log.info("%s: spent %s", run.name, said)


class _Attempt:
    """One call of a handler, and what came of it."""

    def __init__(self, run: Run) -> None:
        self.ending: Operation | None = None
        self.failure: Failure | None = None
        self.errand: Errand | None = None
        self._run = run
        self._inputs: dict[str, Any] = {}

    async def make(self, found: list[bytes | None], bodies: Bodies) -> None:
        """Calls the handler, and names the end of its run; none, where the run was stopped."""
        run = self._run
        try:
            given = await self._given(found, bodies)
            self._inputs = given.inputs
            timeout_s = float(given.contract.get("timeout_s", math.inf))
            call = None
            if run.handler.runtime != "process":
                call = called(run.handler, given, RunService(run), run.desk.workshop.tools)
        except DamagedError as error:
            _log.error("%s: %s", run.name, error)
            self.ending = Release(*self._run.target[:3], error.parks, error.damage.packed())
            return
        except Corrupt as error:
            _log.error("%s: %s; it is parked", run.name, error)
            self.ending = Release(*self._run.target[:3], POISON)
            return
        except Exception as error:  # the same at the next attempt, but for credentials that are not there now
            self._fail(error, retryable=isinstance(error, Unavailable))
            return
        await self._carry_out(given, call, timeout_s)

    async def _carry_out(self, given: Given, call: Callable[[], Any] | None, timeout_s: float) -> None:
        """Has the handler run within its time-out, and judges what came of it."""
        run = self._run
        limit = anyio.CancelScope()
        result: Any = None
        at_work = run.desk.workshop.occupancy.at_work
        at_work.append(run.name)
        try:
            self.errand = await self._errand(given, call)
            limit.deadline = anyio.current_time() + timeout_s
            with limit:
                result = await self.errand.run()
        except anyio.get_cancelled_exc_class() as cancelled:
            if run.end is not None or run.scope.cancel_called:
                raise
            self._fail(cancelled, retryable=True)
        except BaseException as error:  # whatever a handler raises is its item's outcome, never the Worker's
            # Of a run that was stopped, a group of its tasks' cancellations is just how it unwinds.
            if run.end is None:
                over = _over_time(timeout_s) if limit.cancel_called else None
                blocked = None if over else blocked_of(error)
                if blocked:
                    self._block(blocked)
                else:
                    self._fail(over or error, retryable=True)
        else:
            if limit.cancelled_caught:
                self._fail(_over_time(timeout_s), retryable=True)
            else:
                self._submit(result)
        finally:
            at_work.remove(run.name)

    async def _errand(self, given: Given, call: Callable[[], Any] | None) -> Errand:
        """The call of the handler by its runtime, once its slot may take one more."""
        run, occupancy = self._run, self._run.desk.workshop.occupancy
        limiter = await occupancy.admit(run.name)
        if call is None:
            return await process_errand(run, given, RunService(run))
        if run.handler.is_sync:
            return ThreadErrand(occupancy, run.name, call, limiter)
        return TaskErrand(occupancy, run.name, call)

    async def _given(self, found: list[bytes | None], bodies: Bodies) -> Given:
        """What the handler is called with, of what was read in the order of `_wanted`."""
        run, grant = self._run, self._run.grant
        rest = deque(found)
        results = {name_of(other): _result(other, rest.popleft()) for other in grant.after}
        contract = _contract(run)
        state: dict[str, Any] = {}
        if grant.checkpoint_digest:
            raw = await checkpoint_of(run, rest.popleft(), bodies)
            with trusting("checkpoint", raw):
                run.state = run.budget.open(raw, f"checkpoint of {run.name}")
                state = cast("dict[str, Any]", codec.unpack(run.state, what=f"checkpoint of {run.name}"))
        resolution = stored("resolution", rest.popleft() or b"", name=run.name) if rest else None
        mission = name_of(grant.group)
        if (provider := run.desk.workshop.credentials) is not None:
            run.credentials = await secrets_of(provider, mission, run.handler.capability)
        return Given(
            mission=mission,
            item=name_of(grant.item),
            worker=name_of(run.lease.agent),
            attempt=run.lease.number,
            ownership_epoch=grant.ownership_epoch,
            lease=run.lease.lease_id,
            incarnation=run.lease.incarnation,
            inputs=cast("dict[str, Any]", stored("inputs", grant.inputs, name=run.name)),
            state=state,
            results=results,
            resolution=resolution,
            contract=contract,
            name=run.name,
            credentials=run.credentials,
            spent=run.budget.spent,
        )

    def _block(self, blocked: Blocked) -> None:
        run = self._run
        try:
            with hiding(self._inputs):
                reason, needs, ttl_ms = terms_of(blocked)
            run.credentials.refuse_in(needs, "Blocked: needs")
            # Each save travels before this: only what the handler began with or spent, and nobody has saved, is brought along.
            number, digest, state = run.checkpoint_number, run.checkpoint_digest, b""
            if not digest or not run.budget.is_saved:
                state = run.budget.seal(run.state, is_new=False)
                number, digest = number + 1, codec.digest(state)
        except Exception as error:  # the same code says it again
            self._fail(error, retryable=False)
            return
        self.ending = Block(*self._run.target, number, digest, state, reason, needs, ttl_ms)

    def _submit(self, result: Any) -> None:
        try:
            raw = result.raw if isinstance(result, Packed) else pack_result(result)
            self._run.credentials.refuse_in(raw, "result")
        except Exception as error:  # the same code gives it again
            self._fail(error, retryable=False)
        else:
            self.ending = Submit(*self._run.target, codec.digest(raw), raw)

    def _fail(self, error: BaseException, *, retryable: bool) -> None:
        with hiding(self._inputs):
            if isinstance(error, Reported):
                self.failure = error.failure.hidden()
            else:
                self.failure = failure_of(error, retryable=retryable, place=self._run.handler.line)
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s: %s", self._run.name, traceback_of(error))
        raw = self.failure.evidence()
        self.ending = FailOperation(*self._run.target, codec.digest(raw), raw, retryable=self.failure.retryable)


def _over_time(timeout_s: float) -> TimeoutError:
    return TimeoutError(f"it took longer than its time-out of {timeout_s:g} s")


def _contract(run: Run) -> dict[str, Any]:
    """The item's contract, and its run's budget of it; {} where all is default."""
    if not run.grant.contract:
        return {}
    raw, what = run.grant.contract, f"contract of {run.name}"
    with trusting("contract", raw):
        found = codec.unpack(raw, what=what)
        if not isinstance(found, dict):
            raise Corrupt(f"{what}: {codec.shown(found)}, no fields by their names")
        contract = cast("dict[str, Any]", found)
        timeout_s = contract.get("timeout_s", math.inf)
        if not isinstance(timeout_s, int | float) or not timeout_s > 0:
            raise Corrupt(f"{what}: its time-out is {codec.shown(timeout_s)}, no number of seconds")
        if "budgets" in contract:
            run.budget = budget_of(contract, run.name)
    return contract


def _gone(name: str) -> Expired:
    return Expired(
        f"the result of {name!r}, which this item comes after, was kept for its time and is gone; submit both again, or "
        "keep results longer (keep_results_s)"
    )


def _wanted(grant: Grant) -> list[tuple[GroupId, ItemId, str]]:
    """The bodies of a run: its dependencies' results, its newest Checkpoint, its resolution."""
    wanted = [(grant.group, other, "rs") for other in grant.after]
    if grant.checkpoint_digest:
        wanted.append((grant.group, grant.item, keys.checkpoint_name(grant.checkpoint_number)))
    if grant.has_resolution:
        wanted.append((grant.group, grant.item, "rv"))
    return wanted


def _result(item: ItemId, raw: bytes | None) -> object:
    if raw is None:
        raise _gone(name_of(item))
    return stored("result", raw, of=name_of(item))
