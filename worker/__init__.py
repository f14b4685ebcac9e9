"""The wing of work: handlers, the Worker and the `treadle-worker` command."""

from .handlers import Context, Fail, Handler, Stopped, SyncContext, handler
from .worker import Replaced, Worker

__all__ = ["Context", "Fail", "Handler", "Replaced", "Stopped", "SyncContext", "Worker", "handler"]
