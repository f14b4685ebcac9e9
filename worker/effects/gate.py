"""What a place must be able to do so that an effect happens there once: keep, beside what is written, who wrote it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from .token import Token

Place = TypeVar("Place", covariant=True)


class Passage(Protocol[Place]):
    """One run at a gate. Nothing that its body does at `place` is there before `commit`, which does all of it at once."""

    @property
    def place(self) -> Place:
        """What the body writes with."""
        ...

    @property
    def stored(self) -> bytes | None:
        """The result of whoever was here before; where there is one, the body has nothing to do."""
        ...

    def commit(self, result: bytes) -> None:
        """Does what the body asked for and keeps its result, or neither; Stale where a later run was here meanwhile."""
        ...

    def close(self) -> None:
        """Ends it. Where it was not committed nothing of it is left; a second time it does nothing."""
        ...


class Gate(Protocol[Place]):
    """A place that checks tokens. Its calls may block: an async handler's are made in a thread."""

    def enter(self, key: str, token: Token) -> Passage[Place]:
        """Notes the token; Stale where a later one, or another of the same order, was noted before."""
        ...
