"""What `context.effect` gives, entered as its handler is written: else it says how."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn

from treadle.shared.errors import Misuse

from .effect import Effect

Raised = type[BaseException] | None


class LoopBody(AbstractAsyncContextManager[Effect[Any], None]):
    """The body of an effect in an `async def`."""

    def __init__(self, inner: AbstractAsyncContextManager[Effect[Any], bool | None]) -> None:
        self._inner = inner

    async def __aenter__(self) -> Effect[Any]:
        return await self._inner.__aenter__()

    async def __aexit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._inner.__aexit__(kind, error, trace)

    def __enter__(self) -> NoReturn:
        raise Misuse("effect: this handler is an `async def`; write `async with context.effect(...)`")

    def __exit__(self, *_raised: object) -> None:
        """Never reached; without it Python would complain before `__enter__` can."""


class ThreadBody(AbstractContextManager[Effect[Any], None]):
    """The body of an effect in a plain function."""

    def __init__(self, inner: AbstractContextManager[Effect[Any], bool | None]) -> None:
        self._inner = inner

    def __enter__(self) -> Effect[Any]:
        return self._inner.__enter__()

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        self._inner.__exit__(kind, error, trace)

    async def __aenter__(self) -> NoReturn:
        raise Misuse(
            "effect: this handler is a plain function; write `with context.effect(...)`, outside of any coroutine"
        )

    async def __aexit__(self, *_raised: object) -> None:
        """Never reached; without it Python would complain before `__aenter__` can."""
