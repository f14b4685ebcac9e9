"""After a gap of the event loop a Worker acts on nothing before it has read again what it holds (S5)."""

from __future__ import annotations

import logging

import pytest
from treadle.worker.renewal import Renewals
from treadle.worker.watchdog import BEAT_S, Watchdog

TTL_S = 10.0


class Loop:
    """An event loop that is seen alive when it is told to be."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.renewals = Renewals(ttl_s=TTL_S, partitions=1, now=lambda: self.now_s)
        self.watchdog = Watchdog(self.renewals, {})

    def after(self, gap_s: float) -> bool:
        self.now_s += BEAT_S + gap_s
        return self.watchdog.look()


def test_a_loop_that_runs_acts_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    assert all(loop.after(gap_s) for gap_s in (0.0, 0.5, 0.99))
    assert caplog.messages == []


def test_a_gap_is_told_and_shorter_than_half_a_ttl_no_more(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    assert loop.after(3.0)
    assert caplog.messages == ["event loop blocked for 3.0 s while running nothing; use an await between"]
    assert caplog.records[0].levelno == logging.WARNING


def test_s5_after_a_gap_of_half_a_ttl_it_does_not_act_until_all_was_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()
    assert not loop.after(TTL_S / 2 + 0.04)
    assert caplog.messages == [
        "event loop blocked for 5.0 s while running nothing; use an await between; nothing is started or sent before its "
        "leases are read again"
    ]
    assert not loop.after(0.0), "that it looks again is not enough"
    loop.renewals.trusted(loop.renewals.distrusted)
    assert loop.after(0.0)


def test_a_short_ttl_has_its_gaps_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    loop.renewals.ttl_s = 0.5
    assert not loop.after(0.3)
    assert "blocked for 0.3 s" in caplog.messages[0]
