"""The contexts a handler gets: one for the event loop, one for a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import anyio.from_thread
from anyio.lowlevel import checkpoint as let_others_run
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.names import name_of
from treadle.shared.store import Save, Yield

from .context import Stopped
from .failures import printable
from .run import End, Run


@dataclass(frozen=True, slots=True)
class Given:
    """What a run begins with, as plain data."""

    inputs: dict[str, Any]
    state: dict[str, Any]
    results: Mapping[str, Any]
    resolution: Any


class _RunContext:
    """What both kinds of context share."""

    def __init__(self, run: Run, given: Given) -> None:
        self._run = run
        self._given = given
        self._state = given.state
        self._pid = os.getpid()
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
        return self._given.inputs

    @property
    def results(self) -> Mapping[str, Any]:
        return self._given.results

    @property
    def checkpoint_state(self) -> dict[str, Any]:
        return self._state

    @property
    def resolution(self) -> Any:
        return self._given.resolution

    @property
    def cancelled(self) -> bool:
        return self._run.end is End.LEASE_LOST

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        return self._logger

    def progress(self, done: float, total: float = 1.0, *, note: str = "") -> None:
        self._logger.debug("progress %g of %g %s", done, total, printable(note))

    def _check_process(self) -> None:
        """Misuse in a process that the handler forked: its copies of the Worker's connections are not its own."""
        if os.getpid() != self._pid:
            raise Misuse(
                f"checkpoint of {self._run.name}: called in a forked process; only the Worker's own process can save"
            )

    def _stopped(self) -> Stopped:
        return Stopped(f"the run of {self._run.name} is over ({self._run.end or 'its end is recorded'})")

    async def _save(self, state: dict[str, Any]) -> None:
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


class SlotContext(_RunContext):
    """The `Context` of one run."""

    async def checkpoint(self, state: dict[str, Any]) -> None:
        """Stores `state`, then returns; or ends the run here, where yielding was asked or the lease is lost."""
        self._check_process()
        if self._run.has_returned:  # it was given up, or this is a task it left behind
            await let_others_run()
            raise self._stopped()
        await self._save(state)
        # Where the run was stopped, this raises the cancellation: the handler unwinds from its safe point.
        await let_others_run()


class ThreadContext(_RunContext):
    """The `SyncContext` of one run, whose handler is in a thread."""

    def checkpoint(self, state: dict[str, Any]) -> None:
        """As the other's, from the thread the handler was called in."""
        self._check_process()
        self._raise_if_over()
        try:
            anyio.from_thread.run(self._save_while_it_counts, state)
        except (asyncio.CancelledError, concurrent.futures.CancelledError):  # the run was stopped while it was saved
            raise self._stopped() from None
        self._raise_if_over()

    async def _save_while_it_counts(self, state: dict[str, Any]) -> None:
        if not self._run.is_over:  # seen on the loop, where it is decided
            await self._save(state)

    def _raise_if_over(self) -> None:
        if self._run.is_over:
            raise self._stopped()


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[{(self.extra or {}).get('run')}] {msg}", kwargs
