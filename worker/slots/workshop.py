"""What all slots of one Worker share, and none of them owns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..credentials import Provider
from .budget import Spending
from .occupancy import Occupancy
from .pool import Pool
from .tools import Tool


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where a Worker's runs are carried out, session after session."""

    occupancy: Occupancy
    """Who is at work, and who was given up."""
    pool: Pool = field(default_factory=lambda: Pool(1))
    """The processes of the handlers that have one of their own."""
    credentials: Provider | None = None
    """Where its runs have their secrets from."""
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """By their names."""
    spending: Spending = field(default_factory=Spending)
    """What its runs have spent."""

    def resize(self, slots: int) -> None:
        """Has room for so many slots from now on."""
        self.occupancy.resize(slots)
        self.pool.resize(slots)
