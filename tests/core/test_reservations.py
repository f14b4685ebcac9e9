"""Slots kept for a wide item: for which, until when others may use them, and when that is over (scheduler.md, rule 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, CAPABILITY, NOW_MS, a_usage, an_entry
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, ItemId, Usage
from treadle.shared.policy import AccountRule, MissionRule, Policy, Rule
from treadle.worker.core.nodes import Leaf
from treadle.worker.core.reservations import Reservation, Wide, behind, expected_ms, open_to, still_first
from treadle.worker.core.schedule import Plan, View, plan
from treadle.worker.core.tree import Ready

A, B = "a-wide", "b-narrow"
W = Wide(0, GroupId(A), CAPABILITY, ItemId("w"), 4)
OTHER = AgentId("other")


def served(used_ms: int = 0) -> Usage:
    return a_usage(entry=1, entry_ms=NOW_MS, served=True, typical_ms=1_000, used_ms=used_ms)


def a_wide(width: int = 4, takeable: int = 3, *, item: str = "w", holder: str = "", used_ms: int = 0) -> DirectoryEntry:
    head = f"k:{item}*{width}" + (f"@{holder}" if holder else "")
    return an_entry(A, takeable, head=head, usage=served(used_ms))


def a_narrow(timeout_ms: int = 0, *, group: str = B, used_ms: int = 5_000, takeable: int = 9) -> DirectoryEntry:
    head = "k:n" + (f"+{timeout_ms}" if timeout_ms else "")
    return an_entry(group, takeable, head=head, usage=served(used_ms))


def ready_of(*entries: DirectoryEntry, policy: Policy | None = None) -> Ready:
    ready = Ready(AGENT, [CAPABILITY])
    if policy is not None:
        ready.govern(policy, NOW_MS)
    ready.begin(NOW_MS)
    ready.update(entries, NOW_MS)
    return ready


def planned(ready: Ready, free: int, *, slots: int = 4, kept: Reservation | None = None, cut: bool = True) -> Plan:
    return plan(View(ready, free, slots=slots, kept=kept, cut_off=[CAPABILITY] if cut else []), NOW_MS)


def taken(made: Plan) -> list[tuple[str, int, int]]:
    return [(take.group, take.most, take.width) for take in made.takes if not take.fallback]


def test_a_first_item_that_fits_is_taken_alone_with_all_the_slots_it_needs() -> None:
    made = planned(ready_of(a_wide(), a_narrow()), 4)
    assert taken(made) == [(A, 1, 4)], "how wide the one behind it is nobody knows yet"
    assert made.wide is None


def test_the_rest_of_the_slots_goes_to_others() -> None:
    assert taken(planned(ready_of(a_wide(3), a_narrow()), 4)) == [(A, 1, 3), (B, 1, 1)]


def test_where_the_least_key_does_not_fit_nothing_behind_it_is_taken() -> None:
    made = planned(ready_of(a_wide(), a_narrow()), 3)
    assert made == Plan((), W)


def test_what_comes_before_it_is_taken_first() -> None:
    made = planned(ready_of(a_wide(used_ms=4_000), a_narrow(used_ms=3_500)), 4)
    assert taken(made) == [(B, 1, 1)]
    assert made.wide == W, "and then its own key is the least"
    assert not [take for take in made.takes if take.fallback]


def test_one_that_is_wider_than_the_whole_worker_keeps_nothing() -> None:
    made = planned(ready_of(a_wide(5), a_narrow()), 3)
    assert made.wide is None
    assert sum(most for _, most, _ in taken(made)) == 3


@pytest.mark.parametrize(
    "policy",
    [
        Policy(1, missions=(Rule("*/a-wide", MissionRule(slots=3)),)),
        Policy(1, accounts=(Rule("acme", AccountRule(slots=3)),)),
    ],
)
def test_for_one_that_does_not_fit_its_quota_no_slot_is_kept(policy: Policy) -> None:
    ready = ready_of(a_wide(), a_narrow(), policy=policy)
    made = planned(ready, 3)
    assert made.wide is None
    assert taken(made) == [(B, 3, 1)]
    leaf = ready.path_of(GroupId(A))[-1]
    assert isinstance(leaf, Leaf)
    assert not still_first(W, leaf, 4, NOW_MS)


def test_while_slots_are_kept_only_what_is_cut_off_before_is_let_in() -> None:
    ready = ready_of(
        a_wide(), a_narrow(999), a_narrow(1_000, group="c"), a_narrow(group="d"), a_narrow(1, group="e", used_ms=9_000)
    )
    kept = Reservation(W, NOW_MS + 1_000)
    assert taken(planned(ready, 3, kept=kept)) == [(B, 1, 1), ("e", 1, 1)], "one each: the next may have no time-out"
    assert taken(planned(ready, 3, kept=kept, cut=False)) == [], "a thread goes on after its time-out"
    assert taken(planned(ready, 3, kept=Reservation(W, NOW_MS))) == [], "after t_R nothing"
    assert not [take for take in planned(ready, 3, kept=kept).takes if take.fallback]


def test_what_slots_are_kept_for_is_taken_first_and_in_no_budget_once_it_fits() -> None:
    ready = ready_of(a_wide(used_ms=90_000), a_narrow(), a_narrow(group="c"))
    made = planned(ready, 5, slots=5, kept=Reservation(W, NOW_MS))
    assert taken(made)[0] == (A, 1, 4)
    assert made.takes[0].limits is None
    assert sum(most * width for _, most, width in taken(made)) == 5


def test_a_second_wide_item_is_passed_over_while_slots_are_kept_for_one() -> None:
    other = replace(a_wide(3, item="x"), group=GroupId("x"))
    ready = ready_of(a_wide(used_ms=90_000), other, a_narrow())
    made = planned(ready, 6, slots=6, kept=Reservation(W, NOW_MS))
    assert taken(made) == [(A, 1, 4), (B, 2, 1)]
    assert made.wide is None


def test_t_r_is_when_as_many_slots_as_it_needs_are_expected_to_be_free() -> None:
    runs = [(NOW_MS + 900, 1), (NOW_MS + 300, 1), (NOW_MS + 500, 2)]
    assert expected_ms(4, 1, runs, NOW_MS) == NOW_MS + 500
    assert expected_ms(5, 1, runs, NOW_MS) == NOW_MS + 900
    assert expected_ms(1, 1, runs, NOW_MS) == NOW_MS
    assert expected_ms(4, 0, [(NOW_MS - 10, 4)], NOW_MS) == NOW_MS, "one that is late may end now"


def test_slots_are_kept_no_longer_once_another_item_heads_the_group_or_nothing_of_it_may_be_taken() -> None:
    def leaf(*entries: DirectoryEntry) -> Leaf | None:
        path = ready_of(*entries).path_of(GroupId(A))
        return path[-1] if path and isinstance(path[-1], Leaf) else None

    assert still_first(W, leaf(a_wide()), 4, NOW_MS)
    assert still_first(W, leaf(a_wide(holder=AGENT)), 4, NOW_MS)
    assert not still_first(W, leaf(a_wide()), 3, NOW_MS), "this Worker has fewer slots now"
    assert not still_first(W, leaf(a_wide(item="v")), 4, NOW_MS)
    assert not still_first(W, leaf(replace(a_wide(), code="PAUSED")), 4, NOW_MS)
    assert not still_first(W, leaf(replace(a_wide(), takeable=0)), 4, NOW_MS)


def test_of_what_another_worker_keeps_slots_for_what_is_behind_it_goes_on() -> None:
    mine, theirs = a_wide(holder=AGENT), a_wide(holder=OTHER)
    assert open_to(mine, AGENT) is mine
    assert open_to(theirs, AGENT) == behind(theirs) == replace(theirs, takeable=2, head="k:w")
    assert behind(replace(theirs, takeable=0)).takeable == 0
    assert taken(planned(ready_of(open_to(theirs, AGENT)), 3)) == [(A, 2, 1)]


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20_000), st.integers(0, 2_000)), max_size=8),
    st.integers(1, 6),
    st.booleans(),
)
def test_no_plan_fills_more_than_is_free_and_what_it_keeps_slots_for_fits_the_worker(
    groups: list[tuple[int, int, int]], free: int, is_kept: bool
) -> None:
    entries = [
        an_entry(
            f"g{number}",
            3,
            head=f"k:i{number}" + (f"*{width}" if width > 1 else "") + (f"+{timeout_ms}" if timeout_ms else ""),
            usage=served(used_ms),
            account=f"g{number}",
        )
        for number, (width, used_ms, timeout_ms) in enumerate(groups)
    ]
    kept = Reservation(W, NOW_MS + 1_000) if is_kept else None
    ready = ready_of(a_wide(), *entries) if is_kept else ready_of(*entries)
    made = planned(ready, free, slots=6, kept=kept)
    assert made == planned(ready, free, slots=6, kept=kept), "a decision leaves no trace"
    assert sum(most * width for _, most, width in taken(made)) <= free
    if made.wide is not None:
        assert free - sum(most * width for _, most, width in taken(made)) < made.wide.width <= 6
    if kept is None and made.wide is None and all(width == 1 for width, *_ in groups):
        assert sum(most for _, most, _ in taken(made)) == min(free, 3 * len(groups)), "work conservation"
    for take in made.takes:
        if kept is not None and kept.wide.width > free:
            (entry,) = (one for one in entries if one.group == take.group)
            assert 0 < entry.head_timeout_ms < 1_000


def test_a_capability_that_is_not_cut_off_here_is_not_let_in() -> None:
    ready = Ready(AGENT, [CAPABILITY, Capability("slow")])
    ready.begin(NOW_MS)
    ready.update([a_wide(), replace(a_narrow(10), capability=Capability("slow"))], NOW_MS)
    assert taken(planned(ready, 3, kept=Reservation(W, NOW_MS + 1_000))) == []
