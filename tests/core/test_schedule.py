"""A Worker's choice between Groups: shares follow weights, nobody starves, nothing is saved up, no slot stays free."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from builders import AGENT, CAPABILITY, NOW_MS, OTHER, a_usage, an_entry
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_house import ENDLESS_S, House, begun, endless, wanted
from treadle.shared.errors import Corrupt
from treadle.shared.model import AgentId, Capability, DirectoryEntry, GroupId, Usage
from treadle.worker.core.fairness import entry_virtual_time
from treadle.worker.core.schedule import DRAW, FALLBACKS_MAX, View, decide
from treadle.worker.core.tree import Ready

A, B, C = GroupId("a"), GroupId("b"), GroupId("c")


def ready_of(*entries: DirectoryEntry, agent: AgentId = AGENT, now_ms: int = NOW_MS) -> Ready:
    """What is ready to a Worker that has decided before."""
    ready = begun(agent)
    ready.update(entries, now_ms)
    return ready


def served(**fields: int) -> Usage:
    """Counters of a Group that was served since its entry, with runs of a second."""
    return a_usage(**{"entry": 1, "entry_ms": NOW_MS, "served": True, "typical_ms": 1_000, **fields})


# --- one decision ---


def test_the_group_with_the_least_key_comes_first() -> None:
    ready = ready_of(an_entry(A, 5, usage=served(used_ms=3_000)), an_entry(B, 5, usage=served(used_ms=1_000)))
    actions = decide(View(ready, 1), NOW_MS)
    assert wanted(actions) == {B: 1}
    assert [(take.group, take.fallback) for take in actions] == [(B, False), (A, True)]


def test_planned_picks_are_charged_along_the_way() -> None:
    """Four free slots, equal Groups: not all four to one of them, although nothing has run yet."""
    ready = ready_of(*(an_entry(group, 100, usage=served()) for group in (A, B)))
    assert wanted(decide(View(ready, 4), NOW_MS)) == {A: 2, B: 2}


def test_slots_are_planned_by_weight() -> None:
    ready = ready_of(an_entry(A, 100, weight=3.0, usage=served()), an_entry(B, 100, usage=served()))
    assert wanted(decide(View(ready, 8), NOW_MS)) == {A: 6, B: 2}


def test_short_items_are_drawn_in_a_row_and_long_ones_in_turn() -> None:
    """A Group touched costs more than an item, but only where a draw is short does that outweigh the order."""
    for typical_ms, expected in ((10, [DRAW, DRAW]), (100, [2, 2]), (1_000, [1, 1])):
        usage = served(typical_ms=typical_ms)
        ready = ready_of(*(an_entry(group, 50, usage=usage) for group in (A, B)))
        actions = decide(View(ready, sum(expected)), NOW_MS)
        assert [take.most for take in actions if not take.fallback] == expected


def test_unknown_items_are_drawn_one_at_a_time() -> None:
    ready = ready_of(an_entry(A, 50), an_entry(B, 50))
    assert wanted(decide(View(ready, 4), NOW_MS)) == {A: 2, B: 2}


def test_fall_backs_are_groups_of_the_partitions_that_are_asked_anyway() -> None:
    entries = [an_entry(f"g{number}", 9, partition=number % 4) for number in range(100)]
    actions = decide(View(ready_of(*entries), 2), NOW_MS)
    filling = [take for take in actions if not take.fallback]
    spare = [take for take in actions if take.fallback]
    assert len(spare) == FALLBACKS_MAX
    assert actions == (*filling, *spare)
    assert {take.partition for take in spare} <= {take.partition for take in filling}
    assert len({take.group for take in actions}) == len(actions)
    assert all(1 <= take.most <= DRAW for take in spare)


def test_without_a_free_slot_nothing_is_asked() -> None:
    assert decide(View(ready_of(an_entry(A, 5)), 0), NOW_MS) == ()


def test_a_group_with_two_capabilities_is_one_node() -> None:
    render = Capability("render")
    ready = begun(AGENT, CAPABILITY, render)
    usage = served()
    ready.update(
        [
            an_entry(A, 2, capability=CAPABILITY, head="9", usage=usage),
            an_entry(A, 2, capability=render, head="1", usage=usage),
            an_entry(B, 9, capability=render, usage=usage),
        ],
        NOW_MS,
    )
    actions = [take for take in decide(View(ready, 6), NOW_MS) if not take.fallback]
    assert wanted(actions) == {A: 3, B: 3}
    assert [(take.capability, take.most) for take in actions if take.group == A] == [(render, 2), (CAPABILITY, 1)]


def test_a_take_carries_the_offset_that_its_first_accept_lifts_the_group_to() -> None:
    ready = ready_of(an_entry(A, 5, usage=served(used_ms=7_000)))
    ready.update([an_entry(B, 5, usage=a_usage(used_ms=2_000, offset=500))], NOW_MS)
    offsets = {take.group: take.offset for take in decide(View(ready, 2), NOW_MS)}
    assert offsets == {A: 0, B: 5_000}


def test_workers_with_the_same_counters_do_not_all_choose_the_same_group() -> None:
    entries = [an_entry(f"g{number}", 1, usage=a_usage(entry=1, entry_ms=NOW_MS + number)) for number in range(50)]
    first = {decide(View(ready_of(*entries, agent=AgentId(f"w{number}")), 1), NOW_MS)[0].group for number in range(32)}
    assert len(first) > 16


def test_among_equals_a_group_that_entered_seconds_ago_goes_first() -> None:
    for agent in (AGENT, OTHER):
        old = an_entry(A, 1, usage=a_usage(entry=1, entry_ms=NOW_MS - 5_000))
        ready = ready_of(an_entry(B, 1), old, an_entry(C, 1), agent=agent)
        assert decide(View(ready, 1), NOW_MS)[0].group == A


def test_an_estimate_of_the_time_that_goes_back_is_not_followed() -> None:
    usage = served(running=1, estimate_ms=1)
    ready = ready_of(an_entry(A, 9, usage=usage), an_entry(B, 9, usage=served(used_ms=5_000)))
    later = decide(View(ready, 3), NOW_MS + 9_000)
    assert wanted(later)[B] > wanted(later).get(A, 0)
    assert decide(View(ready, 3), NOW_MS) == later


# --- what is ready ---


def test_an_entry_stands_until_the_next_of_the_same_group_and_capability() -> None:
    ready = ready_of(an_entry(A, 3))
    for entry, takeable in (
        (an_entry(A, 3, code="PAUSED"), 0),
        (an_entry(A, 2), 2),
        (an_entry(A, 9, capability="render"), 2),
        (an_entry(A, 0, code="EMPTY"), 0),
        (an_entry(A, 1), 1),
        (an_entry(A, 1, code="LOG_FOREIGN"), 0),
    ):
        ready.update([entry], NOW_MS)
        assert ready.takeable == takeable
        assert sum(wanted(decide(View(ready, 10), NOW_MS)).values()) == takeable


def test_a_whole_list_drops_what_it_does_not_name() -> None:
    ready = ready_of(an_entry(A, 3), an_entry(B, 3), an_entry(C, 3, partition=1))
    ready.replace(0, [an_entry(B, 2)], NOW_MS)
    assert wanted(decide(View(ready, 10), NOW_MS)) == {B: 2, C: 3}


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_weight_is_corrupt_and_changes_nothing(weight: float) -> None:
    ready = ready_of(an_entry(A, 3))
    with pytest.raises(Corrupt, match="Group b, index: weight"):
        ready.update([an_entry(A, 2), an_entry(B, 1, weight=weight)], NOW_MS)
    assert wanted(decide(View(ready, 10), NOW_MS)) == {A: 3}


def test_a_tag_is_frozen_at_the_entry() -> None:
    """Read again at each decision, it would rise with V and the waiting Group would never win."""
    ready = ready_of(an_entry(A, 5, usage=served(used_ms=1_000)))
    ready.update([an_entry(B, 5)], NOW_MS)
    for used_ms in (2_000, 9_000):
        ready.update([an_entry(A, 5, usage=served(used_ms=used_ms)), an_entry(B, 5)], NOW_MS)
        assert ready.tag(B) == 1_000
    assert decide(View(ready, 1), NOW_MS)[0].group == B


def test_a_new_entry_number_is_a_new_tag() -> None:
    ready = ready_of(an_entry(A, 5, usage=served(used_ms=1_000)), an_entry(B, 5))
    ready.update([an_entry(A, 5, usage=served(used_ms=6_000))], NOW_MS)
    ready.update([an_entry(B, 5, usage=a_usage(entry=2, entry_ms=NOW_MS))], NOW_MS)
    assert ready.tag(B) == 6_000
    assert ready.tag(A) is None, "it was served"


# --- any directory ---


@st.composite
def entries_of_one_reply(draw: st.DrawFn, groups: int = 6) -> list[DirectoryEntry]:
    found = []
    for number in draw(st.lists(st.integers(0, groups - 1), unique=True)):
        running = draw(st.integers(0, 3))
        usage = a_usage(
            used_ms=draw(st.integers(0, 20_000)),
            running=running,
            estimate_ms=running * draw(st.integers(1, 5_000)),
            typical_ms=draw(st.sampled_from([0, 5, 60, 1_000])),
            offset=draw(st.integers(0, 5_000)),
            entry=draw(st.integers(1, 2)),
            entry_ms=NOW_MS - draw(st.integers(0, 3_000)),
            served=draw(st.booleans()),
        )
        found.append(
            an_entry(
                f"g{number}",
                draw(st.integers(0, 6)),
                partition=number % 3,
                weight=1.0 + number % 4,
                usage=usage,
                code=draw(st.sampled_from(["", "", "", "PAUSED"])),
            )
        )
    return found


replies = st.lists(st.tuples(entries_of_one_reply(), st.integers(0, 3_000)), min_size=1, max_size=6)


@given(replies, st.integers(0, 12), st.data())
def test_the_order_of_a_reply_decides_nothing(
    told: list[tuple[list[DirectoryEntry], int]], free: int, data: st.DataObject
) -> None:
    one, two = begun(), begun()
    now_ms = NOW_MS
    for entries, pause_ms in told:
        now_ms += pause_ms
        one.update(entries, now_ms)
        two.update(data.draw(st.permutations(entries)), now_ms)
        assert decide(View(one, free), now_ms) == decide(View(two, free), now_ms)
        assert one.standings() == two.standings()


def test_an_offset_that_others_set_is_judged_by_v_as_it_was_before_the_reply_that_tells_it() -> None:
    """Both ways round: a sibling's news, which may stand before it or behind it in the reply, move V as well."""

    def served(used_ms: int, offset: int) -> Usage:
        return a_usage(used_ms=used_ms, offset=offset, entry=1, served=True)

    first = [an_entry("a", 3, usage=served(0, 0)), an_entry("b", 3, usage=served(0, 5_000))]
    then = [an_entry("a", 3, usage=served(10_000, 0)), an_entry("b", 3, usage=served(0, 3_000))]
    stand = []
    for reply in (then, then[::-1]):
        ready = begun()
        ready.update(first, NOW_MS)
        ready.update(reply, NOW_MS)
        stand.append({group: standing.virtual_time(NOW_MS) for group, standing in ready.standings().items()})
    assert stand == [{"a": 10_000, "b": 3_000}] * 2


@given(replies, st.integers(0, 30))
def test_no_slot_stays_free_while_something_takeable_is_known(
    told: list[tuple[list[DirectoryEntry], int]], free: int
) -> None:
    ready = begun()
    known: dict[GroupId, DirectoryEntry] = {}
    now_ms = NOW_MS
    for entries, pause_ms in told:
        now_ms += pause_ms
        ready.update(entries, now_ms)
        known |= {entry.group: entry for entry in entries}
        takeable = {group: entry.takeable for group, entry in known.items() if entry.takeable and not entry.code}
        assert ready.takeable == sum(takeable.values())
        actions = decide(View(ready, free), now_ms)
        plan = wanted(actions)
        assert sum(plan.values()) == min(free, ready.takeable)
        assert all(count <= takeable[group] for group, count in plan.items()), "more than there is"
        assert {take.group for take in actions} <= takeable.keys()
        assert decide(View(ready, free), now_ms) == actions, "a decision leaves no trace"


@given(replies, st.integers(1, 12))
def test_in_strict_order_each_pick_is_of_the_least_key(told: list[tuple[list[DirectoryEntry], int]], free: int) -> None:
    """Against the plain search over all Groups, with draws of one; and V is the one of the plain rule."""
    ready = begun()
    takeable: dict[GroupId, int] = {}
    now_ms = NOW_MS
    for entries, pause_ms in told:
        now_ms += pause_ms
        measured = [replace(entry, usage=replace(entry.usage, typical_ms=700)) for entry in entries]
        ready.update(measured, now_ms)
        takeable |= {entry.group: 0 if entry.code else entry.takeable for entry in entries}
    standings = ready.standings()
    if standings:
        assert ready.levels(now_ms)["a:standard:acme"] == entry_virtual_time(standings.values(), now_ms, last_pick=0)
    plan = wanted(decide(View(ready, free, draw=1), now_ms))
    for group, count in plan.items():
        highest = standings[group].key(now_ms, planned_ms=(count - 1) * 700)
        for other, standing in standings.items():
            if plan.get(other, 0) < takeable[other]:
                assert highest <= standing.key(now_ms, planned_ms=plan.get(other, 0) * 700)


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0), (3.0, 1.0)])
def test_shares_are_slot_seconds_by_weight_whatever_the_length_of_items(
    slots: int, weights: tuple[float, float]
) -> None:
    """16 s items against 1 s items: counting picks would give one of them sixteen times its share."""
    house = House(slots)
    house.add(A, endless(16_000), weight=weights[0])
    house.add(B, endless(1_000), weight=weights[1])
    house.run(NOW_MS + ENDLESS_S * 1_000)
    assert house.share(A, (A, B)) == pytest.approx(weights[0] / sum(weights), abs=0.02)


@settings(max_examples=40)
@given(
    slots=st.integers(1, 4),
    draw=st.sampled_from([1, DRAW]),
    groups=st.lists(
        st.tuples(
            st.sampled_from([1.0, 2.0, 3.0, 5.0]),
            st.lists(st.sampled_from([60, 200, 1_000, 3_000]), min_size=1, max_size=3),
        ),
        min_size=2,
        max_size=4,
    ),
)
def test_no_interval_is_less_fair_than_the_bound(slots: int, draw: int, groups: list[tuple[float, list[int]]]) -> None:
    """S21: over any interval in which both stay ready, two Groups' service by weight differs by no more than (a).

    2D max(L/w), and max L/w once for the entry; a draw of several items counts as that many slots more.
    """
    names = [f"g{number}" for number in range(len(groups))]
    span_ms = 60_000
    house = House(slots, draw)
    for name, (weight, runs) in zip(names, groups, strict=True):
        house.add(name, runs * (2 * slots * span_ms // sum(runs)), weight=weight)
    lowest: dict[tuple[str, str], float] = {}
    highest: dict[tuple[str, str], float] = {}
    pairs = [(a, b) for a in names for b in names if a < b]
    weight_of = {name: weight for name, (weight, _) in zip(names, groups, strict=True)}

    def note(house: House) -> None:
        for a, b in pairs:
            apart = house.service_ms(a) / weight_of[a] - house.service_ms(b) / weight_of[b]
            lowest[a, b] = min(lowest.get((a, b), 0.0), apart)
            highest[a, b] = max(highest.get((a, b), 0.0), apart)

    house.watch = note
    house.run(NOW_MS + span_ms)
    longest = {name: max(runs) / weight for name, (weight, runs) in zip(names, groups, strict=True)}
    for a, b in pairs:
        bound = 2 * (slots + draw - 1) * max(longest[a], longest[b]) + max(longest.values())
        assert highest[a, b] - lowest[a, b] <= bound


def test_one_item_behind_a_thousand_is_among_the_next_two_dispatches() -> None:
    """BR-67: Group A 1,000 items, then B 1 item, equal weights, 2 slots; whatever the items' length."""
    for run_ms in (2, 40, 1_000):
        house = House(2)
        house.add(A, [run_ms] * 1_000)
        house.run(NOW_MS + 10 * run_ms)
        assert {run.group for run in house.started} == {A}, "a lone Group uses all slots"
        assert len(house.running) == 2
        before = len(house.started)
        house.add(B, [run_ms])
        house.run(NOW_MS + 20 * run_ms)
        assert B in [run.group for run in house.started[before : before + 2]]


def test_a_newcomer_neither_monopolises_nor_starves() -> None:
    house = House(2)
    house.add(A, endless(1_000))
    house.add(B, endless(1_000))
    house.run(NOW_MS + 600_000)
    before = house.services()
    house.add(C, endless(1_000))
    house.run(house.now_ms + 30_000)
    assert house.share(C, (A, B, C), before) == pytest.approx(1 / 3, abs=0.07)


def test_a_group_that_was_idle_does_not_burst() -> None:
    """An hour's rest is not saved up: from its first second back it has its share and no more."""
    house = House(2)
    house.add(A, endless(1_000))
    house.add(B, [1_000])
    house.run(NOW_MS + 900_000)
    before = house.services()
    house.add(B, endless(1_000))
    house.run(house.now_ms + 20_000)
    assert house.share(B, (A, B), before) == pytest.approx(0.5, abs=0.06)


def test_a_group_that_comes_back_after_all_was_idle_owes_and_is_owed_nothing() -> None:
    house = House(1)
    house.add(A, [1_000] * 300)
    house.run(NOW_MS + 301_000)
    house.add(B, endless(1_000))
    house.run(house.now_ms + 5_000)
    house.add(A, endless(1_000))
    before = house.services()
    house.run(house.now_ms + 60_000)
    assert house.share(A, (A, B), before) == pytest.approx(0.5, abs=0.04)


def test_a_stream_of_small_groups_does_not_starve_a_backlogged_one() -> None:
    """V over all ready Groups, unserved ones included, would stand still and leave it 1 percent."""
    house = House(1)
    house.add(A, endless(1_000))
    house.run(NOW_MS + 10_000)
    for second in range(300):
        waiting = sum(bool(line.runs) for line in house.store.lines.values()) - 1
        for number in range(waiting, 3):
            house.add(f"{second}-{number}", [1_000])
        house.run(house.now_ms + 1_000)
    assert (house.service_ms(A) - 10_000) / 300_000 == pytest.approx(0.25, abs=0.03)


def test_no_ready_group_waits_for_ever() -> None:
    """Twenty Groups of unequal weight and length on one slot: each is picked, the light and long ones too."""
    house = House(1)
    for number in range(20):
        house.add(f"g{number}", [100 if number else 1_000] * 1_000, weight=10.0 if number else 1.0)
    house.run(NOW_MS + 600_000)
    counts = Counter(run.group for run in house.started)
    assert len(counts) == 20
    assert counts[GroupId("g0")] >= 2


def test_new_weights_count_from_the_next_decision() -> None:
    ready = ready_of(an_entry(A, 9, usage=served()), an_entry(B, 9, usage=served()))
    ready.update([replace(an_entry(A, 9, usage=served()), weight=3.0)], NOW_MS)
    assert wanted(decide(View(ready, 4), NOW_MS)) == {A: 3, B: 1}


def test_a_group_that_was_removed_is_asked_for_no_more_until_an_entry_brings_it_back() -> None:
    ready = begun()
    ready.update([an_entry("a"), an_entry("b")], NOW_MS)
    ready.remove(GroupId("a"))
    assert {take.group for take in decide(View(ready, free_slots=4), NOW_MS)} == {"b"}
    assert ready.takeable == an_entry("b").takeable
    ready.remove(GroupId("a"))
    ready.update([an_entry("a")], NOW_MS)
    assert {take.group for take in decide(View(ready, free_slots=4), NOW_MS)} == {"a", "b"}
