"""What a run may ask of its Worker, as plain data: one face, whatever runtime its handler runs in.

A context knows nothing else of its Worker, so the same contexts serve a handler on the event loop, in a thread, and in a
process of its own, where each question travels through a pipe.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakKeyDictionary

from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.progress import Said
from treadle.shared.store import BeginEffect, CommitEffect, Save, Yield

from ..effects.doing import OF_THE_CALLER
from .run import End, Run


class Service(Protocol):
    """A run's Worker, as its context sees it."""

    @property
    def has_returned(self) -> bool:
        """Whether the handler is done, or given up: nothing it still asks counts."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing of the handler counts any more: it has returned, or its run was stopped."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost: the item is another's."""
        ...

    @property
    def why(self) -> str:
        """Why the run is to end, or has ended; '' while it goes on."""
        ...

    def folder(self) -> str:
        """A folder of the run's own, made when it is first asked for; from any thread."""
        ...

    async def save(self, state: bytes) -> None:
        """Has a Checkpoint (msgpack, packed within its bound) stored; where yielding was asked, the run ends by it."""
        ...

    def spend(self, dimension: str, amount: int) -> None:
        """Charges the run's budget, at once and in any thread. OverBudget where less is left."""
        ...

    def left(self, dimension: str) -> int | None:
        """What is left of the run's budget; None where there is no limit."""
        ...

    def progress(self, said: Said) -> None:
        """Takes how far the run says it is, to be told when that is due; it never waits, from whatever thread."""
        ...

    async def begin_effect(self, effect: str) -> tuple[str, bytes]:
        """The outcome's code (OK, REPEATED, STORED, or why not), and the result of one that was recorded."""
        ...

    async def commit_effect(self, effect: str, result: bytes) -> tuple[str, bytes]:
        """Likewise."""
        ...


_RUNS: WeakKeyDictionary[RunService, Run] = WeakKeyDictionary()


class RunService:
    """The Service of a run whose handler is in this process.

    It holds nothing: a run leads to its Worker, and from there to every other slot. So whatever is made of a context, by a
    handler or by what shows an error with all its values, has nothing in it that is another's.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, run: Run) -> None:
        _RUNS[self] = run

    @property
    def _run(self) -> Run:
        return _RUNS[self]

    @property
    def has_returned(self) -> bool:
        return self._run.has_returned

    @property
    def is_over(self) -> bool:
        return self._run.is_over

    @property
    def is_lost(self) -> bool:
        return self._run.end is End.LEASE_LOST

    @property
    def why(self) -> str:
        return self._run.why

    def folder(self) -> str:
        """Removed when the run has unwound."""
        run = self._run
        if run.has_returned:
            raise Misuse(f"folder of {run.name}: the run is over, and so is its folder")
        run.folder = run.folder or run.desk.workshop.pool.folder()
        return str(run.folder)

    async def save(self, state: bytes) -> None:
        """Stores `state` under the next number, or under the last one where it is the same state."""
        run = self._run
        run.credentials.refuse_in(state, "checkpoint")
        sealed = run.budget.seal(state)
        if run.budget.is_kept:
            run.state = state
        await self._store(sealed, may_yield=run.wants_yield)

    async def keep_spent(self) -> None:
        """Has what was spent since the last Checkpoint stored with that Checkpoint's state."""
        if not self._run.budget.is_saved:
            await self._store(self._run.budget.seal(self._run.state, is_new=False), may_yield=False)

    def spend(self, dimension: str, amount: int) -> None:
        self._run.budget.spend(dimension, amount)

    def left(self, dimension: str) -> int | None:
        return self._run.budget.left(dimension)

    async def _store(self, state: bytes, *, may_yield: bool) -> None:
        run = self._run
        digest = codec.digest(state)
        if digest != run.checkpoint_digest:
            # Before it is asked: once asked it is sent, also where the handler's own time-out ends this wait, and a
            # handler may save from several tasks.
            run.checkpoint_number, run.checkpoint_digest = run.checkpoint_number + 1, digest
        number = run.checkpoint_number
        if may_yield:
            run.desk.closing(run.lease)
            await run.desk.ask(run.grant.partition, Yield(*run.target, number, digest, state, keep=False))
        else:
            await run.desk.ask(run.grant.partition, Save(*run.target, number, digest, state))

    def progress(self, said: Said) -> None:
        """Leaves it with the session, which tells the latest at most once a second."""
        self._run.desk.progress(self._run, said)

    async def begin_effect(self, effect: str) -> tuple[str, bytes]:
        """Notes that it is begun; where the lease is not ours any more the run ends by it."""
        return await self._noted(BeginEffect(*self._run.target, effect))

    async def commit_effect(self, effect: str, result: bytes) -> tuple[str, bytes]:
        """Notes its result, likewise."""
        return await self._noted(CommitEffect(*self._run.target, effect, result))

    async def _noted(self, operation: BeginEffect | CommitEffect) -> tuple[str, bytes]:
        outcome = await self._run.desk.ask(self._run.grant.partition, operation)
        if not outcome.done and outcome.code not in OF_THE_CALLER:
            self._run.lose(outcome.code)
        return outcome.code, outcome.result or b""
