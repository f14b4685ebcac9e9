"""One call of a handler, and the runtimes that can make it: the event loop, a thread, a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .failures import Failure

UNWIND_S = 1.0
"""How long what a run that is over has at work may take to end before it is given up, or ended."""


class Errand(Protocol):
    """One call of a handler. What it raises is the handler's; a cancellation of `run` stops the handler."""

    async def run(self) -> Any:
        """What the handler returns, or Packed where a process of its own has packed that already."""
        ...

    async def unwound(self) -> None:
        """Returns when nothing of the handler runs in its slot any more, or it is given up (S16)."""
        ...


@dataclass(frozen=True, slots=True)
class Packed:
    """A result as the bytes that are stored."""

    raw: bytes


class Reported(Exception):
    """How a handler in a process of its own failed, as that process says it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure
