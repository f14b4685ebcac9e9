"""What is renewed when, what is lost, and that a store out of reach does not keep the news of it back."""

from __future__ import annotations

from collections.abc import Sequence

from builders import AGENT, GROUP, NOW_MS
from treadle.shared.errors import ReplyLost
from treadle.shared.model import ItemId, Lease, LeaseId
from treadle.shared.store import Envelope, Held
from treadle.worker.renewal import Renewals, Report, renew_due

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
    renew_due(renewals, store, reports.append, lambda: store.now_s)
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
