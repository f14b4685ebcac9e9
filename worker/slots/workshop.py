"""What all slots of one Worker share, and none of them owns."""

from __future__ import annotations

from dataclasses import dataclass

from .threads import Threads


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where a Worker's runs are carried out, session after session."""

    threads: Threads
    """The threads of its sync handlers, and what it has given up."""
