"""What is known of a WorkItem that is blocked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """Why a WorkItem cannot go on, as its Worker said, and how long its ownership is kept for the answer."""

    reason: str
    needs: object
    """What it needs, as its handler said it; None where it said nothing."""
    since_ms: int
    until_ms: int
    """When its blocked lease ends; 0 where it belongs to nobody: unblocked, it is offered to everybody."""
