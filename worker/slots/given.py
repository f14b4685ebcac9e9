"""What a run begins with, as plain data: all that a context is made of, in whatever runtime its handler runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from treadle.shared.redaction import Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One run's own; nothing of it is another run's."""

    mission: str
    item: str
    worker: str
    attempt: int
    """Which lease of its WorkItem it holds: 1 at the first."""
    ownership_epoch: int
    lease: str
    """The Lease ID."""
    incarnation: int
    """Of the store that granted it."""
    inputs: dict[str, Any]
    state: dict[str, Any]
    """What the newest Checkpoint held; {} where there is none."""
    results: Mapping[str, Any]
    """The results of its dependencies, by their ids."""
    resolution: Any
    contract: Mapping[str, Any]
    """What its submitter agreed besides the defaults."""
    name: str
    """MISSION/ITEM as messages show it."""
    credentials: Secrets = field(default_factory=Secrets)
    """What its Mission and capability are granted."""
    spent: Mapping[str, int] = field(default_factory=dict[str, int])
    """Of its budget, by earlier attempts, as far as it was saved."""
