"""What a handler is given and how it gives up: `Context`, `SyncContext`, `Fail`, `Blocked`, `Stopped`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, overload

from .effects.effect import Effect
from .effects.gate import Gate

BLOCKED_S = 86_400.0
BLOCKED_S_MAX = 30 * 86_400
Place = TypeVar("Place")
AsyncDoing = AbstractAsyncContextManager[Effect[Place]]
Doing = AbstractContextManager[Effect[Place]]
Keyed = Literal["item", "ownership"]


class Fail(Exception):
    """Raised by a handler: the work cannot be done. `retryable` says whether the same inputs may succeed later."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable


class Blocked(Exception):
    """Raised by a handler: it cannot go on before somebody decides or does something. Its slot is free at once.

    What its last `checkpoint` saved is kept. Once the item is unblocked the handler is called anew, with that state and
    with `context.resolution`. `needs` is plain data (16 KiB packed at most) for whoever is to decide; of `reason` 200
    characters are kept. For `lease_s` seconds (1 to 30 days) the item stays with this Worker; later it goes on anywhere.
    """

    def __init__(self, reason: str, *, needs: Any = None, lease_s: float = BLOCKED_S) -> None:
        super().__init__(reason)
        self.reason = reason
        self.needs = needs
        self.lease_s = lease_s


class Stopped(BaseException):
    """Raised by what a handler asks its context where the run is over: nothing it does from here on will be accepted.

    No Exception, as a cancellation is none: `except Exception` in a handler lets it pass.
    """


class AnyContext(Protocol):
    """What one run of one WorkItem is given, whatever kind of function does it; it is of no use after that run.

    Nothing of another slot can be reached from here, two slots of one Mission included.
    """

    @property
    def mission(self) -> str:
        """The Mission's id as its submitter wrote it."""
        ...

    @property
    def item(self) -> str:
        """The WorkItem's id as its submitter wrote it."""
        ...

    @property
    def worker(self) -> str:
        """The name of the Agent this run belongs to."""
        ...

    @property
    def attempt(self) -> int:
        """Which lease of this WorkItem this run holds: 1 at the first, one more after each crash, yield, return or failure."""
        ...

    @property
    def inputs(self) -> dict[str, Any]:
        """What the submitter gave, as plain data; the handler's second argument is it, or its type's value of it."""
        ...

    @property
    def results(self) -> Mapping[str, Any]:
        """The results of the items named in `after`, by their ids."""
        ...

    @property
    def checkpoint_state(self) -> dict[str, Any]:
        """What the last saved `checkpoint` of this WorkItem held, by whichever Worker; {} at the first run."""
        ...

    @property
    def resolution(self) -> Any:
        """What this WorkItem was unblocked with, the last time it raised Blocked; None before that."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether this run's lease is lost: nothing it does from here on will be accepted."""
        ...

    @property
    def why_stopped(self) -> str:
        """Why this run is to end: its slot is asked for, its lease is lost, the Worker stops; '' while it goes on."""
        ...

    @property
    def folder(self) -> Path:
        """An empty folder of this run's own (0700), gone with it; in a process of its own, where it begins."""
        ...

    @property
    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """A logger that names the Mission, the WorkItem and the attempt."""
        ...

    @property
    def credentials(self) -> Mapping[str, str]:
        """The secrets that this Mission and capability are granted, by name (`--credentials`). Its repr shows names only.

        It is empty once the run is over. A checkpoint, a result or `needs` that holds one of them is refused.
        """
        ...

    def spend(self, dimension: str, amount: int) -> None:
        """Charge the item's budget (`WorkSpec(budgets={"tokens": 10_000})`) before it is used; never waits.

        OverBudget, a final Fail, where less is left; then nothing is charged. A dimension without a budget is only counted.
        What was spent is kept with each Checkpoint, and at the end of a run that is no result.
        """
        ...

    def left(self, dimension: str) -> int | None:
        """How much of the item's budget is left; None where it has none in this dimension."""
        ...

    def progress(
        self, done: float, total: float = 1.0, *, note: str = "", phase: str = "", milestone: str = ""
    ) -> None:
        """Say how far this run is, as often as one likes; it never waits. `treadle watch` and `treadle why` show it.

        The latest is told once a second; nothing of the first second but milestones. A phase holds until another is named.
        Misuse where a number is not finite or below 0, or where phase or milestone has more than 64 characters.
        """
        ...


class Context(AnyContext, Protocol):
    """The context of an `async def` handler."""

    async def checkpoint(self, state: dict[str, Any]) -> None:
        """Make `state` durable (at most 1 MiB); the safe point, where the slot may be taken back.

        Idempotent: repeating it with the same state changes nothing. It does not return where the run ends here.
        """
        ...

    def tool(self, name: str) -> Callable[..., Awaitable[Any]]:
        """What `@tool(name)` marks, to be called and awaited as it is written; each call spends one of `tool_calls`.

        Fail where the item's contract does not list it (`WorkSpec(tools=["search"])`); it may be retried where this Worker
        has no such tool.
        """
        ...

    @overload
    def effect(self, operation: str, *, at: None = None, key: Keyed = "item") -> AsyncDoing[None]: ...
    @overload
    def effect(self, operation: str, *, at: Gate[Place], key: Keyed = "item") -> AsyncDoing[Place]: ...
    def effect(self, operation: str, *, at: Gate[Any] | None = None, key: Keyed = "item") -> AsyncDoing[Any]:
        """Do something outside the store once for this WorkItem, and get the same result in every later run.

        `at` is the place that checks who does it; without one it happens at least once (docs/effects.md). A body that raises
        records nothing. `key="ownership"` makes it another effect whenever the WorkItem gets another owner.
        """
        ...


class SyncContext(AnyContext, Protocol):
    """The context of a plain `def` handler, which runs in a thread of its own."""

    def checkpoint(self, state: dict[str, Any]) -> None:
        """As `Context.checkpoint`; it blocks the handler's thread meanwhile, and raises Stopped where the run is over.

        A thread cannot be stopped from outside: this call, and that of a tool, is where a stopped run ends.
        """
        ...

    def tool(self, name: str) -> Callable[..., Any]:
        """As `Context.tool`, to be called as a plain function, whichever kind it is."""
        ...

    @overload
    def effect(self, operation: str, *, at: None = None, key: Keyed = "item") -> Doing[None]: ...
    @overload
    def effect(self, operation: str, *, at: Gate[Place], key: Keyed = "item") -> Doing[Place]: ...
    def effect(self, operation: str, *, at: Gate[Any] | None = None, key: Keyed = "item") -> Doing[Any]:
        """As `Context.effect`, in a plain `with`; it raises Stopped where the run is over."""
        ...
