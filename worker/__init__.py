"""The wing of work: handlers, the Worker and the `treadle-worker` command."""

from treadle.shared.errors import Misuse

from .context import AnyContext, Blocked, Context, Fail, Stopped, SyncContext
from .handlers import Handler, handler
from .slots.budget import OverBudget
from .slots.tools import tool
from .worker import Replaced, Worker

__all__ = [
    "AnyContext",
    "Blocked",
    "Context",
    "Fail",
    "Handler",
    "Misuse",
    "OverBudget",
    "Replaced",
    "Stopped",
    "SyncContext",
    "Worker",
    "handler",
    "tool",
]
