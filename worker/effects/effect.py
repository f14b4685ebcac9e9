"""One effect as its handler meets it, inside `async with context.effect(...)` or `with context.effect(...)`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from treadle.shared.errors import Misuse

from .http import headers_of
from .token import Token

Place = TypeVar("Place")


class Effect(Generic[Place]):
    """Something that is to happen once outside the store, or has happened: then its result is here."""

    def __init__(self, key: str, token: Token, place: Place, *, is_new: bool, is_doubtful: bool, result: Any) -> None:
        self.key = key
        """What the outside knows it by: the same for every run of its WorkItem, or of one ownership where that was chosen."""
        self.token = token
        """Which run this is."""
        self.is_new = is_new
        """Whether it is still to be done, by this body."""
        self.is_doubtful = is_doubtful
        """Whether an earlier run began it, nobody knows what came of it, and no gate can tell: it may have happened."""
        self._place = place
        self._result = result

    @property
    def at(self) -> Place:
        """What the gate gives to write with: a connection, the path of a copy, a queue of commands; None without a gate."""
        return self._place

    @property
    def headers(self) -> dict[str, str]:
        """The headers that tell a service which effect a request is, and which run sends it."""
        return headers_of(self.key, self.token)

    @property
    def result(self) -> Any:
        """What came of it: plain data, at most 64 KiB packed."""
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        if not self.is_new:
            raise Misuse(f"effect {self.key}: it was done before, and its result stands; ask `is_new` first")
        self._result = result

    def settle(self, result: Any) -> None:
        """Ends it with the result that stands."""
        self.is_new, self._result = False, result
