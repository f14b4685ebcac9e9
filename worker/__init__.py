"""The wing of work: handlers, the Worker and the `treadle-worker` command."""

from typing import TYPE_CHECKING

from treadle.shared.errors import Misuse

from .context import AnyContext, Blocked, Context, Fail, Stopped, SyncContext
from .handlers import Handler, handler
from .programs import command
from .slots.budget import OverBudget
from .slots.limits import Limits
from .slots.tools import tool

if TYPE_CHECKING:
    from .worker import Replaced, Worker
else:

    def __getattr__(name: str) -> object:
        """The Worker, imported where it is asked for: the process of a slot imports handlers only, and never the store."""
        if name not in ("Replaced", "Worker"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import worker

        return getattr(worker, name)


__all__ = [
    "AnyContext",
    "Blocked",
    "Context",
    "Fail",
    "Handler",
    "Limits",
    "Misuse",
    "OverBudget",
    "Replaced",
    "Stopped",
    "SyncContext",
    "Worker",
    "command",
    "handler",
    "tool",
]
