"""What is renewed when, what is lost, and that a store out of reach does not keep the news of it back."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Sequence

import pytest
from builders import AGENT, GROUP, NOW_MS
from treadle.shared.errors import Corrupt, ReplyLost
from treadle.shared.model import ItemId, Lease, LeaseId
from treadle.shared.store import Envelope, Held
from treadle.worker.renewal import Renewals, RenewalThread, Report, lease_clock, renew_due

TTL_S = 4.0


def a_lease(name: str) -> Lease:
    return Lease(LeaseId(name), GROUP, ItemId(name), AGENT, 1, 1, 1, NOW_MS, 1, "r")


class Store:
    """Answers renewals with a code; out of reach, each asking takes a second of its clock."""

    def __init__(self, *, code: str = "OK", reachable: bool = True) -> None:
        self.code, self.reachable, self.now_s, self.asked = code, reachable, 0.0, list[int]()

    def renew(self, partition: int, leases: Sequence[Held]) -> tuple[Envelope, list[str]]:
        self.asked.append(partition)
        if not self.reachable:
            self.now_s += 1.0
            raise ReplyLost("away")
        return Envelope(NOW_MS, None, 1, 1), [self.code for _ in leases]

    def close(self) -> None:
        """Nothing is open."""


def round_of(renewals: Renewals, store: Store, *, at_s: float) -> list[tuple[LeaseId, str]]:
    store.now_s, store.asked = at_s, []
    reports: list[Report] = []
    renewals.now = lambda: store.now_s
    renew_due(renewals, store, reports.append)
    assert not [report.fault for report in reports if report.fault]
    return [lost for report in reports for lost in report.lost]


def test_a_lease_is_renewed_when_it_is_older_than_a_quarter_of_its_ttl() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=2), Store()
    round_of(renewals, store, at_s=0)
    renewals.hold(1, a_lease("a"), asked_s=0)
    assert round_of(renewals, store, at_s=0.9) == []
    assert store.asked == []
    round_of(renewals, store, at_s=1.0)
    assert store.asked == [1]
    round_of(renewals, store, at_s=1.5)
    assert store.asked == [], "confirmed at 1.0"


def test_every_partition_hears_of_the_session_and_those_with_leases_first() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=3), Store()
    renewals.hold(2, a_lease("a"), asked_s=-2)
    round_of(renewals, store, at_s=0)
    assert store.asked == [2, 0, 1]


def test_an_unreachable_store_costs_one_time_out_a_round_however_many_partitions_there_are() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=256), Store(reachable=False)
    renewals.hold(7, a_lease("a"), asked_s=0)
    lost = [round_of(renewals, store, at_s=at_s) for at_s in (0.0, 1.0, 2.0, 3.0)]
    assert store.asked == [7]
    assert lost[:3] == [[], [], []]
    assert lost[3] == [("a", "WORK_LEASE_EXPIRED")], "by our own clock it is over after the TTL, heard or not"
    store.reachable = True
    round_of(renewals, store, at_s=4.0)
    assert len(store.asked) == 256, "a round that was broken off begins anew"


def test_a_refused_renewal_is_a_loss_unless_its_own_run_is_ending_it() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=1), Store(code="WORK_LEASE_EXPIRED")
    renewals.hold(0, a_lease("a"), asked_s=0)
    renewals.hold(0, a_lease("b"), asked_s=0)
    renewals.closing(LeaseId("b"))
    assert round_of(renewals, store, at_s=1.5) == [("a", "WORK_LEASE_EXPIRED")]


def test_s5_a_lease_is_counted_from_before_it_was_asked_for_and_over_before_the_store_says_so() -> None:
    clock = [0.0]
    renewals = Renewals(ttl_s=TTL_S, partitions=1, now=lambda: clock[0])
    renewals.hold(0, a_lease("a"), asked_s=0)
    clock[0] = TTL_S - renewals.look_s - 0.01
    assert not renewals.is_over(0)
    assert renewals.expired() == []
    clock[0] = TTL_S - renewals.look_s
    assert renewals.is_over(0), "the next look may come after the TTL"
    assert renewals.expired() == ["a"]


def test_s5_what_is_over_is_said_before_the_store_is_asked() -> None:
    """Behind a stop its handler runs on already, and the store may be slow to answer."""
    renewals, store = Renewals(ttl_s=TTL_S, partitions=1), Store()
    renewals.hold(0, a_lease("a"), asked_s=0)
    reports: list[Report] = []
    said: list[int] = []
    renewals.now = lambda: 10 * TTL_S
    ask = store.renew

    def renew(partition: int, leases: Sequence[Held]) -> tuple[Envelope, list[str]]:
        said.append(len(reports))
        return ask(partition, leases)

    store.renew = renew  # type: ignore[method-assign]
    renew_due(renewals, store, reports.append)
    assert reports[0].lost == (("a", "WORK_LEASE_EXPIRED"),)
    assert said == [1]


def test_s5_a_lease_is_counted_by_a_clock_that_goes_on_while_the_machine_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sys.platform != "linux":
        pytest.skip("CLOCK_BOOTTIME is Linux's")
    awake, slept = time.clock_gettime(time.CLOCK_MONOTONIC), 3_600.0
    clocks = {time.CLOCK_BOOTTIME: awake + slept, time.CLOCK_MONOTONIC: awake}
    renewals = Renewals(ttl_s=TTL_S, partitions=1)
    renewals.hold(0, a_lease("a"), asked_s=lease_clock())
    assert renewals.expired() == []
    monkeypatch.setattr(time, "clock_gettime", lambda which: clocks[which])
    assert renewals.expired() == ["a"]


def test_what_is_distrusted_is_asked_for_in_every_partition_and_trusted_when_all_have_answered() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=2), Store()
    round_of(renewals, store, at_s=0)
    renewals.hold(1, a_lease("a"), asked_s=0)
    renewals.distrust()
    store.reachable = False
    round_of(renewals, store, at_s=0.1)
    assert not renewals.is_trusted
    store.reachable = True
    round_of(renewals, store, at_s=0.2)
    assert sorted(store.asked) == [0, 1], "although none is due"
    assert renewals.is_trusted
    round_of(renewals, store, at_s=0.3)
    assert store.asked == []


def test_a_distrust_that_comes_while_all_is_read_is_not_answered_by_that() -> None:
    renewals, store = Renewals(ttl_s=TTL_S, partitions=1), Store()
    renewals.distrust()
    ask = store.renew

    def renew(partition: int, leases: Sequence[Held]) -> tuple[Envelope, list[str]]:
        renewals.distrust()
        return ask(partition, leases)

    store.renew = renew  # type: ignore[method-assign]
    round_of(renewals, store, at_s=0)
    assert not renewals.is_trusted


@pytest.mark.parametrize("error", [ValueError("no such reply"), KeyError("x"), Corrupt("two codes for one lease")])
def test_an_unexpected_reply_or_error_in_the_renewal_thread_is_a_fault_and_never_only_logged(error: Exception) -> None:
    """The fault ends the session: every handler is cancelled, nothing more is sent."""

    class Odd(Store):
        def renew(self, partition: int, leases: Sequence[Held]) -> tuple[Envelope, list[str]]:  # noqa: ARG002
            raise error

    renewals = Renewals(ttl_s=0.05, partitions=1)
    renewals.hold(0, a_lease("a"), asked_s=lease_clock())
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    thread = RenewalThread(renewals, Odd(), reports.put)
    thread.start()
    try:
        while (report := reports.get(timeout=10)).fault is None:
            """Others may come before."""
        assert report.fault is error
    finally:
        thread.stop()
