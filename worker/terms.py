"""What a Worker works under, in every one of its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from treadle.shared.model import AgentId, Capability

from .handlers import Handler
from .threads import Threads


@dataclass(frozen=True, slots=True)
class Terms:
    """What a Worker works under, in every one of its sessions."""

    name: AgentId
    handlers: Mapping[Capability, Handler]
    slots: int
    groups: str
    """A pattern of Mission ids, as of a shell."""
    lease_ttl_ms: int
    grace_s: float
    renew_in: Literal["thread", "task"]
    threads: Threads
