"""What a Worker works under, in every one of its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from treadle.shared.errors import Misuse
from treadle.shared.model import AgentId, Capability
from treadle.shared.names import shown
from treadle.shared.resources import Resources, packed
from treadle.shared.versions import versioned

from .handlers import Handler
from .slots.workshop import Workshop

PATTERN_CHARS_MAX = 1_000
CAPABILITIES_SHOWN_MAX = 16


def check_pattern(groups: str) -> None:
    """Misuse where `groups` is no pattern of Mission ids."""
    todo = "write '*' for all, or a pattern such as 'team/*'"
    if not groups:
        raise Misuse(f"--groups: is empty and would match no Mission; {todo}")
    if len(groups) > PATTERN_CHARS_MAX:
        raise Misuse(f"--groups: {len(groups):,} characters, at most {PATTERN_CHARS_MAX:,}; {todo}")
    at = groups.find("[")
    while at >= 0:
        first = (
            at + 2 if groups[at + 1 : at + 2] == "!" else at + 1
        )  # a `]` that comes first is a member, as in a shell
        end = groups.find("]", first + 1)
        if end < 0:
            raise Misuse(f"--groups: {groups[:80]!r} has a '[' without its ']'; write '[[]' for the character itself")
        at = groups.find("[", end)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a Worker works under, in every one of its sessions."""

    name: AgentId
    handlers: Mapping[Capability, Handler]
    slots: int
    resources: Resources
    """What it has besides slots."""
    groups: str
    """A pattern of Mission ids, as of a shell."""
    lease_ttl_ms: int
    grace_s: float
    renew_in: Literal["thread", "task"]
    workshop: Workshop
    log_keep: int
    """How many Events below its Snapshot a log keeps."""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """What a session registers: each handler's capability, and the same with its version."""
        return tuple(
            name for one in self.handlers.values() for name in (one.capability, versioned(one.capability, one.version))
        )

    def introduction(self, store: str) -> str:
        """What it says of itself first: who it is, what it has, what it can do and where that runs, for whom, and where."""
        each = [f"{one.capability} {one.version} ({one.runtime})" for one in self.handlers.values()]
        more = f" and {len(each) - CAPABILITIES_SHOWN_MAX} more" if len(each) > CAPABILITIES_SHOWN_MAX else ""
        has = f"{self.slots} slot{'' if self.slots == 1 else 's'}" + (
            f", {packed(self.resources)}" if self.resources else ""
        )
        can = ", ".join(each[:CAPABILITIES_SHOWN_MAX]) or "nothing"
        return f"agent {shown(self.name)}: {has}; does {can}{more}; for Missions {self.groups[:80]!r}; store {store}"
