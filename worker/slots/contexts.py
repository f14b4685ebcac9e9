"""The contexts a handler gets: one for an event loop, one for a thread. Faces over what is given and what may be asked."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.from_thread
import anyio.to_thread
from anyio.lowlevel import checkpoint as let_others_run
from treadle.shared import codec
from treadle.shared.errors import Misuse
from treadle.shared.progress import said
from treadle.shared.redaction import known

from ..context import Keyed, Stopped
from ..effects.body import LoopBody, ThreadBody
from ..effects.doing import Doer, Effects
from ..effects.effect import Effect
from ..effects.gate import Gate
from ..effects.token import Token
from .budget import TOOL_CALLS
from .folders import PREFIX
from .given import Given
from .tools import Tool, allowed

if TYPE_CHECKING:  # it speaks of the store, which the process of a slot never imports
    from ..handlers import Handler
    from .service import Service

HIDDEN_CHARS_MAX = 1_000


class _RunContext:
    """What both kinds of context share."""

    def __init__(self, given: Given, service: Service, tools: Mapping[str, Tool] | None = None) -> None:
        self._given = given
        self._service = service
        self._tools = tools or {}
        self._state = given.state
        self._pid = os.getpid()

    @property
    def mission(self) -> str:
        return self._given.mission

    @property
    def item(self) -> str:
        return self._given.item

    @property
    def worker(self) -> str:
        return self._given.worker

    @property
    def attempt(self) -> int:
        return self._given.attempt

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
        return self._service.is_lost

    @property
    def why_stopped(self) -> str:
        return self._service.why

    @cached_property
    def folder(self) -> Path:
        return Path(self._service.folder())

    @cached_property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        return _RunLogger(logging.getLogger("treadle.handler"), {"run": self._given.name})

    def progress(
        self, done: float, total: float = 1.0, *, note: str = "", phase: str = "", milestone: str = ""
    ) -> None:
        note, phase, milestone = map(_hidden, (note, phase, milestone))
        self._service.progress(said(done, total, note=note, phase=phase, milestone=milestone))

    @property
    def credentials(self) -> Mapping[str, str]:
        return self._given.credentials

    def spend(self, dimension: str, amount: int) -> None:
        self._check_process("spend")
        if self._service.has_returned:
            raise self._stopped()
        self._service.spend(dimension, amount)

    def left(self, dimension: str) -> int | None:
        return self._service.left(dimension)

    def _charged(self, tool: Tool, args: tuple[Any, ...], *, kind: type[_RunContext]) -> tuple[Any, ...]:
        """What a tool is called with, once the call is paid for: a context first, where it asks for one."""
        self.spend(TOOL_CALLS, 1)
        if not tool.takes_context:
            return args
        twin = kind.__new__(kind)
        twin.__dict__ = self.__dict__  # the same run, as a function of the other kind has it
        return (twin, *args)

    @cached_property
    def _effects(self) -> Effects:
        given = self._given
        token = Token(given.incarnation, given.ownership_epoch, given.attempt, given.lease)
        return Effects(Doer(given.mission, given.item, token, given.name), self._service, given.credentials)

    def _check_place(self, gate: Gate[Any] | None) -> None:
        """Misuse where what is done there would be removed with a run: a relative path, in a process of its own."""
        path = getattr(gate, "path", None)
        if path is not None and any(part.startswith(PREFIX) for part in Path(path).parts):
            raise Misuse(
                f"at: {path} of {self._given.name}: is removed when its run is over; give an absolute path outside of it, "
                "or make the gate where the module is loaded"
            )

    def _check_process(self, what: str) -> None:
        """Misuse in a process that the handler forked: its copies of the Worker's connections are not its own."""
        if os.getpid() != self._pid:
            raise Misuse(
                f"{what} of {self._given.name}: called in a forked process; only the process of the handler can do that"
            )

    def _stopped(self) -> Stopped:
        return Stopped(f"the run of {self._given.name} is over ({self._service.why})")

    async def _save(self, state: dict[str, Any]) -> None:
        raw = codec.pack(state, field="checkpoint", limit=codec.CHECKPOINT_MAX)
        self._state = state
        await self._service.save(raw)


class LoopContext(_RunContext):
    """The `Context` of one run."""

    async def checkpoint(self, state: dict[str, Any]) -> None:
        """Stores `state`, then returns; or ends the run here, where yielding was asked or the lease is lost."""
        self._check_process("checkpoint")
        # It was given up, this is a task it left behind, or it shields itself from its cancellation.
        is_refused = self._service.has_returned or self._service.is_lost
        if not is_refused:
            await self._save(state)
        # Where the run was stopped, this raises the cancellation: the handler unwinds from its safe point.
        await let_others_run()
        if is_refused or self._service.is_over:
            raise self._stopped()

    def tool(self, name: str) -> Callable[..., Awaitable[Any]]:
        """The tool as what is awaited; a plain function is called in a thread."""
        tool = allowed(name, self._given.contract, self._tools)

        async def call(*args: Any, **named: Any) -> Any:
            if tool.is_sync:
                given = self._charged(tool, args, kind=ThreadContext)
                return await anyio.to_thread.run_sync(partial(tool.function, *given, **named))
            return await tool.function(*self._charged(tool, args, kind=LoopContext), **named)

        return call

    def effect(
        self, operation: str, *, at: Gate[Any] | None = None, key: Keyed = "item"
    ) -> AbstractAsyncContextManager[Effect[Any]]:
        """An effect of this run, done by the body that follows."""
        self._check_process("effect")
        self._check_place(at)
        return LoopBody(self._effects.on_loop(operation, at, key))


class ThreadContext(_RunContext):
    """The `SyncContext` of one run, whose handler is in a thread."""

    def checkpoint(self, state: dict[str, Any]) -> None:
        """As `LoopContext.checkpoint`, from the thread the handler was called in."""
        self._check_process("checkpoint")
        self._raise_if_over()
        try:
            anyio.from_thread.run(self._save_while_it_counts, state)
        except (asyncio.CancelledError, concurrent.futures.CancelledError):  # the run was stopped while it was saved
            raise self._stopped() from None
        self._raise_if_over()

    def tool(self, name: str) -> Callable[..., Any]:
        """The tool as what returns its result; an `async def` runs on the event loop meanwhile."""
        tool = allowed(name, self._given.contract, self._tools)

        def call(*args: Any, **named: Any) -> Any:
            self._raise_if_over()
            if tool.is_sync:
                return tool.function(*self._charged(tool, args, kind=ThreadContext), **named)
            given = self._charged(tool, args, kind=LoopContext)
            try:
                return anyio.from_thread.run(partial(tool.function, *given, **named))
            except (asyncio.CancelledError, concurrent.futures.CancelledError):
                raise self._stopped() from None

        return call

    def effect(
        self, operation: str, *, at: Gate[Any] | None = None, key: Keyed = "item"
    ) -> AbstractContextManager[Effect[Any]]:
        """As `LoopContext.effect`, for a body without `async`."""
        self._check_process("effect")
        self._check_place(at)
        return ThreadBody(self._effects.in_thread(operation, at, key))

    async def _save_while_it_counts(self, state: dict[str, Any]) -> None:
        if not self._service.is_over:  # seen on the loop, where it is decided
            await self._save(state)

    def _raise_if_over(self) -> None:
        if self._service.is_over:
            raise self._stopped()


def called(handler: Handler, given: Given, service: Service, tools: Mapping[str, Tool]) -> partial[Any]:
    """The handler with its context and its inputs, as its type reads them; Misfit where they do not fit it."""
    inputs = given.inputs if handler.inputs is None else handler.inputs.read(given.inputs)
    context = (ThreadContext if handler.is_sync else LoopContext)(given, service, tools)
    return partial(handler.function, context, inputs)


def _hidden(text: str) -> str:
    """Before it is cut to what is kept."""
    return known.hide(text, HIDDEN_CHARS_MAX) if isinstance(text, str) else text


class _RunLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"[{(self.extra or {}).get('run')}] {msg}", kwargs
