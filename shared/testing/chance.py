"""One seed for everything that is drawn: what the house takes from the system elsewhere is drawn from the seed here.

Client and Store draw their names with `secrets`, their waits with `random`: inside `Chance.drawn()` both follow the seed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from unittest import mock

from .clock import Process

LINE_CHARS = 200
_T = TypeVar("_T")


class Chance:
    """The dice of one run. Outside `drawn()` nothing of them is seen, and they go on where they were."""

    def __init__(self, seed: int) -> None:
        self._names = random.Random(seed)
        self._state = random.Random(seed).getstate()

    @contextmanager
    def drawn(self) -> Generator[None]:
        """`random` and `secrets` follow the seed inside."""
        outside = random.getstate()
        random.setstate(self._state)
        try:
            with (
                mock.patch("secrets.token_hex", self._token_hex),
                mock.patch("secrets.choice", self._choice),
            ):
                yield
        finally:
            self._state = random.getstate()
            random.setstate(outside)

    def _token_hex(self, size: int = 16) -> str:
        return f"{self._names.getrandbits(8 * size):0{2 * size}x}"

    def _choice(self, values: Sequence[_T]) -> _T:
        return values[self._names.randrange(len(values))]


class _Noting(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        process = Process.current()
        self._note(f"{process.name if process else '-':>10} says: {record.getMessage()[:LINE_CHARS]}")


@contextmanager
def logs_noted(note: Callable[[str], None], *, only: bool) -> Generator[None]:
    """What Workers and Clients warn of stands in the trace, by their process; with `only` it goes nowhere else."""
    log = logging.getLogger("treadle")
    before = log.level, log.propagate
    noting = _Noting(note)
    if only:
        log.setLevel(logging.WARNING)
        log.propagate = False
    log.addHandler(noting)
    try:
        yield
    finally:
        log.removeHandler(noting)
        log.level, log.propagate = before
