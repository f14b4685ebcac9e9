"""Each signal is heard once, by the pipe or by Python's own handler, whichever has it."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Iterator

import pytest
from treadle.worker.signals import Signals

WITHIN_S = 10.0


@pytest.fixture
def signals() -> Iterator[Signals]:
    before = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    found = Signals()
    found.listen((signal.SIGUSR1,))
    yield found
    signal.signal(signal.SIGUSR1, before[0])
    signal.set_wakeup_fd(before[1])


def heard(signals: Signals) -> list[int]:
    """All that has come by now, up to a word that is told behind it."""
    signals.tell()
    found: list[int] = []
    while (number := signals.next(time.monotonic() + WITHIN_S)) is not None and number:
        found.append(number)
    assert number == 0
    return found


def test_a_signal_that_is_told_by_both_ways_is_one(signals: Signals) -> None:
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard(signals) == [signal.SIGUSR1]
    assert heard(signals) == []


def test_where_somebody_else_took_the_pipe_s_place_the_signal_is_heard_by_its_handler(signals: Signals) -> None:
    """As asyncio's `add_signal_handler` does, where a handler calls it."""
    os.kill(os.getpid(), signal.SIGUSR1)
    assert heard(signals) == [signal.SIGUSR1]
    signal.set_wakeup_fd(-1)
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard(signals) == [signal.SIGUSR1]


def test_a_signal_that_was_not_listened_to_is_none(signals: Signals) -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        os.kill(os.getpid(), signal.SIGUSR2)
        assert heard(signals) == []
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_nothing_that_comes_is_none_in_time(signals: Signals) -> None:
    assert signals.next(time.monotonic()) is None


def test_however_many_come_the_moment_is_kept(signals: Signals) -> None:
    for _ in range(9):
        signals.tell(signal.SIGUSR1)
    assert signals.next(time.monotonic()) is None


def test_its_handler_is_no_code_that_the_next_signal_could_come_in_the_middle_of(signals: Signals) -> None:
    del signals
    assert inspect.isbuiltin(signal.getsignal(signal.SIGUSR1))
