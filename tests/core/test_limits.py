"""What a take is limited by: the budget up to the rival's turn at each level, and the quotas of Group and account."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest
from builders import AGENT, CAPABILITY, NOW_MS, Run, TinyStore, a_usage, an_entry
from hypothesis import given
from hypothesis import strategies as st
from tiny_house import begun, wanted
from treadle.shared.model import AgentId, DirectoryEntry, GroupId, Limits, NodeUsage
from treadle.shared.policy import AccountRule, MissionRule, Policy, Rate, Rule
from treadle.shared.store import Envelope, Outcome, Take, Turn, TurnReply
from treadle.worker.core.schedule import LATE_MS, View, decide
from treadle.worker.core.tree import Ready
from treadle.worker.taking import Taking

A, B = GroupId("a"), GroupId("b")
ACME, BETA = "a:standard:acme", "a:standard:beta"


def entry(
    group: str, used_ms: int = 0, *, account: str = "acme", partition: int = 0, takeable: int = 9
) -> DirectoryEntry:
    usage = a_usage(used_ms=used_ms, typical_ms=1_000, entry=1, entry_ms=NOW_MS, served=True)
    return an_entry(group, takeable, usage=usage, account=account, partition=partition)


def limits_of(ready: Ready, free: int, *, charges: bool = True) -> dict[GroupId, Limits | None]:
    return {take.group: take.limits for take in decide(View(ready, free, fallbacks=0, charges=charges), NOW_MS)}


# --- budgets ---


def test_a_take_goes_up_to_the_key_of_the_second_best() -> None:
    ready = begun()
    ready.update([entry(A, 1_000), entry(B, 5_500)], NOW_MS)
    assert limits_of(ready, 1) == {A: Limits(charge_group=5_500)}
    ready.update([entry(A, 5_500)], NOW_MS)
    (limits,) = limits_of(ready, 1).values()
    assert limits == Limits(charge_group=5_500), (
        "one item may always be given: as much as was charged when it was planned"
    )


def test_without_a_rival_or_a_quota_nothing_limits_a_take() -> None:
    ready = begun()
    ready.update([entry(A)], NOW_MS)
    assert limits_of(ready, 4) == {A: None}


def test_each_level_has_its_own_budget_and_only_what_this_partition_may_still_be_charged() -> None:
    ready = begun()
    ready.service([NodeUsage(partition, node, a_usage()) for node in (ACME, BETA) for partition in (0, 1)], NOW_MS)
    ready.service([NodeUsage(0, BETA, a_usage(used_ms=9_000)), NodeUsage(1, ACME, a_usage(used_ms=4_000))], NOW_MS)
    ready.update([entry(A), entry(B, account="beta")], NOW_MS)
    assert limits_of(ready, 1) == {A: Limits(charge_account=5_000)}, "4,000 were had in the other partition"


def test_what_is_planned_in_another_partition_counts_against_a_budget() -> None:
    ready = begun()
    ready.service([NodeUsage(0, node, a_usage()) for node in (ACME, BETA)], NOW_MS)
    ready.service([NodeUsage(0, BETA, a_usage(used_ms=9_000))], NOW_MS)
    ready.update([entry(A), entry("x", 500, partition=1), entry(B, account="beta")], NOW_MS)
    limits = limits_of(ready, 2)
    assert limits[A] == Limits(charge_group=500, charge_account=9_000)
    assert limits[GroupId("x")] == Limits(charge_group=1_000, charge_account=8_000)


def test_what_runs_may_be_charged_until_the_take_arrives() -> None:
    usage = a_usage(running=2, typical_ms=1_000, entry=1, served=True)
    ready = begun()
    ready.update([an_entry(A, 9, usage=usage), entry(B, 10_000)], NOW_MS)
    (limits,) = (take.limits for take in decide(View(ready, 1, fallbacks=0), NOW_MS + 3_000))
    assert limits == Limits(charge_group=10_000 + 2 * LATE_MS)


def test_a_fall_back_goes_one_draw_beyond_what_was_seen_whoever_its_rival_is() -> None:
    """Or all Workers that a budget stopped at their first choice would fall through to the last of their lists together."""
    ready = begun()
    ready.update([entry(A, 1_000), entry(B, 5_500)], NOW_MS)
    (fallback,) = [take for take in decide(View(ready, 1), NOW_MS) if take.fallback]
    assert fallback.group == B
    assert fallback.limits == Limits(charge_group=6_500, charge_account=2_000, charge_class=2_000), (
        "with what is planned before"
    )


def test_a_round_without_budgets_keeps_the_quotas() -> None:
    ready = begun()
    ready.govern(Policy(1, missions=(Rule("acme/*", MissionRule(slots=3)),)), NOW_MS)
    ready.update([entry(A), entry(B)], NOW_MS)
    assert limits_of(ready, 1, charges=False) in ({A: Limits(slots_group=3)}, {B: Limits(slots_group=3)})


@dataclass
class Fleet:
    """Workers of one slot each, all as well informed as the last look, which they all make at once."""

    workers: int
    stale_ms: int
    store: TinyStore = field(default_factory=TinyStore)
    now_ms: int = NOW_MS

    def run(self, span_ms: int, *, charges: bool = True) -> None:
        fleet = [Ready(AgentId(f"w{number}"), [CAPABILITY]) for number in range(self.workers)]
        running: list[tuple[int, int, Run]] = []
        busy: dict[int, int] = {}
        started = 0
        until_ms = self.now_ms + span_ms
        while self.now_ms < until_ms:
            nodes, entries = self.store.nodes(), self.store.changes()
            for ready in fleet:
                ready.service(nodes, self.now_ms)
                ready.update(entries, self.now_ms)
            for step in range(self.stale_ms):
                while running and running[0][0] <= self.now_ms + step:
                    end_ms, number, run = heapq.heappop(running)
                    self.store.end(run, end_ms)
                    del busy[number]
                if step % 50:
                    continue
                for number, ready in enumerate(fleet):
                    for round_ in range(0 if number in busy else 3):
                        actions = decide(View(ready, 1, charges=charges and round_ < 2), self.now_ms + step)
                        runs = self.store.take(actions, 1, self.now_ms + step)
                        groups = sorted({take.group for take in actions} & self.store.changed)
                        known = {one.group: one for one in self.store.known(groups)}
                        ready.update([known[group] for group in groups], self.now_ms + step)
                        if runs:
                            started += 1
                            heapq.heappush(running, (self.now_ms + step + runs[0].run_ms, number, runs[0]))
                            busy[number] = started
                            break
            self.now_ms += self.stale_ms


def shares(fleet: Fleet) -> list[float]:
    had = [fleet.store.service_ms(group, fleet.now_ms) for group in sorted(fleet.store.lines)]
    return [service / sum(had) for service in had]


@pytest.mark.parametrize("charges", [True, False])
def test_workers_with_the_same_stale_counters_do_not_all_serve_the_same_group(charges: bool) -> None:
    """A trap: 16 Workers of one slot, 1:1:2:4, 30 s items; without budgets the first minute goes to few Groups."""
    fleet = Fleet(16, 500)
    for name, weight in zip("abcd", (1.0, 1.0, 2.0, 4.0), strict=True):
        fleet.store.add(name, [30_000] * 400, NOW_MS, weight=weight, partition=ord(name) % 2)
    fleet.run(60_000, charges=charges)
    apart = max(abs(share - part) for share, part in zip(shares(fleet), (1 / 8, 1 / 8, 1 / 4, 1 / 2), strict=True))
    assert apart <= 0.03 if charges else apart > 0.1


# --- quotas ---


def test_no_more_is_planned_than_a_quota_leaves_and_the_rest_goes_to_others() -> None:
    ready = begun()
    ready.govern(Policy(1, missions=(Rule("acme/a", MissionRule(slots=2)),)), NOW_MS)
    ready.update([entry(A), entry(B, 50_000)], NOW_MS)
    actions = decide(View(ready, 5, fallbacks=0), NOW_MS)
    assert wanted(actions) == {A: 2, B: 3}
    assert [take.limits.slots_group if take.limits else None for take in actions] == [2, None]


def test_the_quota_of_an_account_counts_what_it_runs_in_other_partitions_and_classes() -> None:
    ready = begun()
    ready.govern(Policy(1, accounts=(Rule("acme", AccountRule(slots=10)),)), NOW_MS)
    ready.service(
        [
            NodeUsage(0, ACME, a_usage(running=1)),
            NodeUsage(1, ACME, a_usage(running=2)),
            NodeUsage(1, "a:gold:acme", a_usage(running=4)),
        ],
        NOW_MS,
    )
    ready.update([entry(A)], NOW_MS)
    assert limits_of(ready, 9) == {A: Limits(slots_account=4)}
    assert wanted(decide(View(ready, 9), NOW_MS)) == {A: 3}
    ready.service([NodeUsage(1, "a:gold:acme", a_usage(running=7))], NOW_MS)
    assert decide(View(ready, 9), NOW_MS) == ()


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 6), st.integers(0, 6), st.integers(0, 12))
def test_no_slot_stays_free_while_something_is_known_that_no_quota_holds(
    takeable: int, others: int, cap: int, of_account: int, free: int
) -> None:
    ready = begun()
    missions, accounts = Rule("acme/a", MissionRule(slots=cap)), Rule("acme", AccountRule(slots=of_account))
    ready.govern(Policy(1, missions=(missions,), accounts=(accounts,)), NOW_MS)
    ready.update([entry(A, takeable=takeable), entry("x", takeable=3)], NOW_MS)
    ready.update([entry(B, account="beta", takeable=others)], NOW_MS)
    allowed = min(of_account, min(takeable, cap) + 3) + others
    assert sum(wanted(decide(View(ready, free), NOW_MS)).values()) == min(free, allowed)


def test_a_rate_that_is_used_up_holds_its_node_until_its_window_ends() -> None:
    ready = begun()
    ready.govern(Policy(1, accounts=(Rule("acme", AccountRule(rate=Rate(5, 60.0))),)), NOW_MS)
    ready.update([entry(A), entry("x"), entry(B, 50_000, account="beta")], NOW_MS)
    rates = {group: limits and limits.rate_account for group, limits in limits_of(ready, 20).items()}
    assert (rates[A], rates[B]) == ((5, 60_000), None)
    ready.hold(A, NOW_MS + 700)
    assert ready.resumes_ms == NOW_MS + 700
    assert set(wanted(decide(View(ready, 50), NOW_MS + 699))) == {B}
    assert set(wanted(decide(View(ready, 50), NOW_MS + 700))) == {A, B, "x"}
    assert ready.resumes_ms is None


# --- a Group in which something runs ---


def test_a_pinned_group_is_known_while_nothing_of_it_may_be_taken() -> None:
    ready = begun()
    ready.pin(A)
    ready.update([entry(A, 700, takeable=0), entry(B, takeable=0)], NOW_MS)
    assert [node.name for node in ready.path_of(A)] == ["c:standard", ACME, "a"]
    assert ready.path_of(B) == ()
    assert ready.standing_of(A)[2].usage.used_ms == 700
    assert decide(View(ready, 3), NOW_MS) == ()
    ready.update([entry(A, 800)], NOW_MS)
    ready.update([entry(A, 900, takeable=0)], NOW_MS)
    assert ready.standing_of(A)[2].usage.used_ms == 900
    ready.unpin(A)
    assert ready.path_of(A) == ()


# --- rounds ---


def answered(taking: Taking, takes: list[Take], outcome: Outcome, *entries: DirectoryEntry) -> None:
    turn = Turn(0, 1, tuple(takes), slots=4)
    reply = TurnReply(Envelope(NOW_MS, None, 1, 1), (outcome,) * len(takes), (), entries)
    taking.answered(turn, reply, free=4)
    taking.fold(entries, set(), NOW_MS)
    taking.settle(turn, reply)


def test_after_two_rounds_that_a_budget_stopped_the_third_goes_without() -> None:
    """Work conservation: no slot stays free because counters go on being stale."""
    taking = Taking(AGENT, [CAPABILITY])
    taking.fold([entry(A), entry(B)], set(), NOW_MS)
    limited = []
    for _ in range(4):
        takes = taking.takes(1, NOW_MS)[0][0]
        limited.append(takes[0].limits is not None)
        answered(taking, takes, Outcome("SHARE"), entry(A), entry(B))
    assert limited == [True, True, False, False]
    answered(taking, taking.takes(1, NOW_MS)[0][0], Outcome("OK"), entry(A), entry(B))
    assert taking.takes(1, NOW_MS)[0][0][0].limits is not None


def test_a_worker_that_only_a_rate_keeps_idle_asks_again_when_its_window_ends() -> None:
    taking = Taking(AGENT, [CAPABILITY])
    taking.ready.govern(Policy(1, missions=(Rule("*/*", MissionRule(rate=Rate(5, 60.0))),)), NOW_MS)
    taking.fold([entry(A)], set(), NOW_MS)
    answered(taking, taking.takes(4, NOW_MS)[0][0], Outcome("QUOTA", at_ms=NOW_MS + 900), entry(A))
    assert taking.takes(4, NOW_MS + 899) == {}
    assert not taking.is_hungry
    assert [take.group for take in taking.takes(4, NOW_MS + 900)[0][0]] == [A]
