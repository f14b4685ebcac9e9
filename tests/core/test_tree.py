"""Three levels of fair shares, class, account and Group: each by its own weight, none by the number of what is below it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, CAPABILITY, NOW_MS, a_usage, an_entry
from hypothesis import given
from hypothesis import strategies as st
from tiny_house import House, begun, endless, wanted
from treadle.shared.model import Capability, DirectoryEntry, GroupId, NodeUsage, Usage
from treadle.shared.policy import AccountRule, MissionRule, Policy, Rule
from treadle.worker.core.fairness import Standing, entry_virtual_time
from treadle.worker.core.nodes import Leaf
from treadle.worker.core.schedule import View, decide
from treadle.worker.core.tree import Ready

A, B, C = GroupId("a"), GroupId("b"), GroupId("c")
ACME, BETA = "a:standard:acme", "a:standard:beta"


def told(node: str, partition: int = 0, **fields: int) -> NodeUsage:
    return NodeUsage(partition, node, a_usage(typical_ms=1_000, **fields))


def served(**fields: int) -> Usage:
    return a_usage(**{"entry": 1, "entry_ms": NOW_MS, "served": True, "typical_ms": 1_000, **fields})


def two_accounts() -> Ready:
    """Group a of acme and b of beta, both known for a while, nothing of either served."""
    ready = begun()
    ready.service([told(ACME), told(BETA), told("c:standard")], NOW_MS)
    ready.update([an_entry(A, 9, usage=served()), an_entry(B, 9, usage=served(), account="beta")], NOW_MS)
    return ready


def first_of(ready: Ready, now_ms: int = NOW_MS) -> GroupId:
    return decide(View(ready, 1), now_ms)[0].group


# --- shares ---


def test_an_account_with_a_hundred_missions_has_the_share_of_one_with_one() -> None:
    house = House(4)
    for number in range(100):
        house.add(f"m{number}", endless(1_000)[:600], account="acme", partition=number % 4)
    house.add("lone", endless(1_000), account="beta")
    house.run(NOW_MS + 600_000)
    assert house.share("lone", list(house.services())) == pytest.approx(0.5, abs=0.02)


def test_a_low_class_keeps_its_share_within_one_item() -> None:
    policy = Policy(1, classes=(("standard", 1.0), ("gold", 100.0)))
    house = House(1)
    house.ready.govern(policy, NOW_MS)
    house.add(A, endless(1_000), priority_class="gold")
    house.add(B, endless(1_000))
    house.run(NOW_MS + 1_010_000)
    assert house.service_ms(B) == pytest.approx(1_010_000 / 101, abs=1_000)


def test_within_an_account_missions_share_by_their_weights() -> None:
    house = House(2)
    house.add(A, endless(1_000), weight=3.0)
    house.add(B, endless(5_000))
    house.add(C, endless(1_000), account="beta")
    house.run(NOW_MS + 600_000)
    assert house.share(C, (A, B, C)) == pytest.approx(0.5, abs=0.02)
    assert house.share(A, (A, B)) == pytest.approx(0.75, abs=0.02)


def test_an_account_that_was_idle_does_not_burst_and_one_that_was_ahead_is_not_forgiven() -> None:
    house = House(2)
    house.add(A, endless(1_000), account="acme")
    house.add(B, [1_000], account="beta")
    house.run(NOW_MS + 900_000)
    before = house.services()
    house.add(B, endless(1_000), account="beta")
    house.run(house.now_ms + 20_000)
    assert house.share(B, (A, B), before) == pytest.approx(0.5, abs=0.06)
    ready = two_accounts()
    ready.service([told(ACME, used_ms=9_000)], NOW_MS)
    ready.update([an_entry(A, 0)], NOW_MS)
    ready.update([an_entry(A, 9, usage=served())], NOW_MS)
    assert first_of(ready) == B
    ready.service([told(BETA, used_ms=9_001)], NOW_MS)
    assert first_of(ready) == A


def test_a_stream_of_accounts_with_one_item_does_not_starve_a_backlogged_one() -> None:
    house = House(1)
    house.add(A, endless(1_000), account="acme")
    house.run(NOW_MS + 10_000)
    for second in range(200):
        waiting = sum(bool(line.runs) for line in house.store.lines.values()) - 1
        for number in range(waiting, 3):
            house.add(f"{second}-{number}", [1_000], account=f"{second}-{number}")
        house.run(house.now_ms + 1_000)
    assert (house.service_ms(A) - 10_000) / 200_000 == pytest.approx(0.25, abs=0.04)


# --- what a node above the Groups is charged ---


def test_service_of_all_partitions_is_charged() -> None:
    ready = two_accounts()
    ready.service([told(ACME, 3)], NOW_MS)
    ready.service([told(ACME, 3, used_ms=4_000), told(BETA, used_ms=3_000)], NOW_MS)
    assert first_of(ready) == B
    ready.service([told(BETA, used_ms=5_000)], NOW_MS)
    assert first_of(ready) == A


def test_the_first_word_of_a_partition_is_history() -> None:
    """Or what was served before this Worker came would bar an account from it, partition by partition."""
    ready = two_accounts()
    ready.service([told(ACME, 3, used_ms=10**9, running=2)], NOW_MS)
    path = ready.standing_of(A)
    assert path[1].virtual_time(NOW_MS) == 0
    assert path[1].virtual_time(NOW_MS + 500) == 1_000, "what runs is charged from now on"


@given(st.lists(st.tuples(st.sampled_from([ACME, BETA]), st.integers(0, 2), st.integers(0, 9_000), st.integers(0, 3))))
def test_virtual_time_of_a_node_never_falls_whatever_is_told_or_forgotten(
    words: list[tuple[str, int, int, int]],
) -> None:
    ready, now_ms = two_accounts(), NOW_MS
    for node, partition, used_ms, running in words:
        before = [standing.virtual_time(now_ms) for group in (A, B) for standing in ready.standing_of(group)]
        ready.service([told(node, partition, used_ms=used_ms, running=running)], now_ms)
        if used_ms % 7 == 0:
            ready.service([], now_ms, whole=partition)
        after = [standing.virtual_time(now_ms) for group in (A, B) for standing in ready.standing_of(group)]
        assert all(was <= becomes + 1e-6 for was, becomes in zip(before, after, strict=True))
        now_ms += 100


def test_a_shared_account_is_lifted_here_alone() -> None:
    """A trap: a lift kept in the store by a pool that stands high would starve the account in one that stands low."""
    high, low = two_accounts(), two_accounts()
    high.service([told(BETA, used_ms=1_000_000)], NOW_MS)
    for ready in (high, low):
        ready.service([told("a:standard:shared"), told("c:standard")], NOW_MS)
        ready.update([an_entry(A, 0), an_entry(C, 9, account="shared")], NOW_MS)
    assert high.standing_of(C)[1].tag == 1_000_000
    assert low.standing_of(C)[1].tag == 0
    offsets = {take.group: take.offset for take in decide(View(high, 2), NOW_MS)}
    assert offsets[C] == 0, "only a lift among the Groups of its account is stored"
    for ready in (high, low):
        ready.service([told("a:standard:shared", used_ms=1_000)], NOW_MS)
    assert high.standing_of(C)[1].virtual_time(NOW_MS) == 1_001_000, "served: now its shift makes up for the tag"
    assert low.standing_of(C)[1].virtual_time(NOW_MS) == 1_000


def test_before_the_first_decision_all_is_put_level() -> None:
    """What was hoarded before a restart may not burst; a Worker that knows no history believes in none."""
    ready = Ready(AGENT, [CAPABILITY])
    ready.update([an_entry(A, 9, usage=served(used_ms=90_000)), an_entry(B, 9, usage=served())], NOW_MS)
    assert wanted(decide(View(ready, 4), NOW_MS)) == {A: 2, B: 2}
    assert ready.standing_of(B)[2].virtual_time(NOW_MS) == 90_000


def test_an_item_of_a_group_nobody_measured_is_reckoned_with_the_shortest_run_of_its_capability() -> None:
    """A larger estimate would break the bound that counts the longest run; it is another capability's that says nothing."""
    ready = Ready(AGENT, [CAPABILITY, Capability("render")])
    ready.update(
        [
            an_entry(A, 9, usage=served(typical_ms=5_000)),
            an_entry(B, 9, usage=served(typical_ms=60)),
            an_entry("x", 9, usage=served(typical_ms=7), capability="render"),
            an_entry(C, 9),
        ],
        NOW_MS,
    )
    ready.update([an_entry(B, 9, usage=served(typical_ms=90))], NOW_MS)
    leaf = ready.path_of(C)[-1]
    assert isinstance(leaf, Leaf)
    assert ready.estimate_ms(leaf) == 60


# --- weights and caps that change ---


def of_policy(**fields: object) -> Policy:
    account, mission = fields.get("account"), fields.get("mission")
    return Policy(
        version=1,
        classes=(("standard", float(str(fields.get("weight", 1.0)))),),
        accounts=(Rule("acme", account),) if isinstance(account, AccountRule) else (),
        missions=(Rule("acme/a", mission),) if isinstance(mission, MissionRule) else (),
    )


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("weight", [4.0, 0.25])
@pytest.mark.parametrize(("used_ms", "ahead_ms"), [(6_000, 0), (14_000, 4_000)])
def test_a_change_of_weight_keeps_the_lag_at_each_level(level: int, weight: float, used_ms: int, ahead_ms: int) -> None:
    """Rule 7. Without it, 1 -> 2 after an hour would give everything to one node for the next half hour."""
    ready = begun()
    ready.service([told(ACME), told("c:standard"), told("c:gold"), told(BETA)], NOW_MS)
    usage = served(used_ms=used_ms)
    ready.update(
        [
            an_entry(A, 9, usage=usage),
            an_entry(B, 9, usage=served(used_ms=10_000)),
            an_entry("x", 9, account="beta", usage=usage),
            an_entry(C, 9, priority_class="gold", usage=usage),
        ],
        NOW_MS,
    )
    ready.service([told(ACME, used_ms=used_ms), told("c:standard", used_ms=used_ms)], NOW_MS)
    ready.service([told(BETA, used_ms=10_000), told("c:gold", used_ms=10_000)], NOW_MS)
    before = ready.standing_of(A)
    above = ["", "c:standard", ACME][level]
    lag = ready.levels(NOW_MS)[above] - before[level].virtual_time(NOW_MS)
    assert lag == -ahead_ms
    policy = [
        of_policy(weight=weight),
        of_policy(account=AccountRule(weight=weight)),
        of_policy(mission=MissionRule(weight=weight)),
    ][level]
    levels = ready.levels(NOW_MS)
    ready.govern(policy, NOW_MS)
    after = ready.standing_of(A)
    assert after[level].weight == weight
    assert (levels[above] - after[level].virtual_time(NOW_MS)) * weight == pytest.approx(lag)
    assert [after[other] for other in range(3) if other != level] == [
        before[other] for other in range(3) if other != level
    ]


LIGHTER = Policy(version=1, missions=(Rule("acme/b", MissionRule(weight=0.25)),))


def a_heavy_one() -> Ready:
    """Group a has had 6 s, and b 10 s; both are known to go by their weight of 1."""
    ready = begun()
    ready.update([an_entry(A, 9, usage=served(used_ms=6_000)), an_entry(B, 9, usage=served(used_ms=10_000))], NOW_MS)
    return ready


def virtual_times(ready: Ready, now_ms: int = NOW_MS) -> tuple[float, float]:
    return ready.standing_of(A)[2].virtual_time(now_ms), ready.standing_of(B)[2].virtual_time(now_ms)


def test_a_lag_is_told_with_each_take_until_the_store_has_it() -> None:
    """V is 6,000: b, 4,000 ahead by its old weight, is 16,000 ahead by a quarter of it: its offset is 22,000 - 40,000."""
    ready = a_heavy_one()
    ready.govern(LIGHTER, NOW_MS)
    assert virtual_times(ready) == (6_000, 22_000)
    takes = {take.group: (take.offset, take.sets) for take in decide(View(ready, 1), NOW_MS)}
    assert takes == {A: (0, None), B: (-18_000, 0)}
    ready.update([an_entry(B, 9, usage=served(used_ms=10_000, offset=-18_000))], NOW_MS)
    assert virtual_times(ready) == (6_000, 22_000)
    assert {take.group: take.sets for take in decide(View(ready, 1), NOW_MS)} == {A: None, B: None}


def test_a_lag_outlasts_an_entry_and_is_told_by_its_first_accept() -> None:
    ready = a_heavy_one()
    ready.govern(LIGHTER, NOW_MS)
    usage = a_usage(used_ms=10_000, entry=2, entry_ms=NOW_MS, typical_ms=1_000)
    ready.update([an_entry(B, 9, usage=usage)], NOW_MS)
    assert ready.tag(B) == 22_000, "not the 40,000 that it would be without"
    assert {take.group: take.offset for take in decide(View(ready, 2), NOW_MS)}[B] == -18_000


def test_a_lag_that_others_told_before_the_new_weight_is_known_here_counts_once() -> None:
    ready = a_heavy_one()
    told_usage = served(used_ms=10_000, offset=-18_000)
    ready.update([an_entry(B, 9, usage=told_usage)], NOW_MS)
    assert virtual_times(ready) == (6_000, 10_000), "by the old weight it would be far behind"
    ready.govern(LIGHTER, NOW_MS)
    assert virtual_times(ready) == (6_000, 22_000)
    assert {take.sets for take in decide(View(ready, 2), NOW_MS) if take.group == B} == {None}


def test_a_lag_that_others_told_is_followed_where_it_explains_how_far_from_the_level_a_group_stands() -> None:
    ready = begun()
    ready.govern(LIGHTER, NOW_MS)
    ready.update([an_entry(A, 9, usage=served(used_ms=6_000)), an_entry(B, 9, usage=served(used_ms=10_000))], NOW_MS)
    assert virtual_times(ready) == (6_000, 40_000), "this Worker came later"
    ready.update([an_entry(B, 9, usage=served(used_ms=10_000, offset=-18_000))], NOW_MS)
    assert virtual_times(ready) == (6_000, 22_000)


def test_a_worker_that_put_all_level_before_a_lag_was_told_stays_so() -> None:
    """Else the Group whose lag it was would get everything there: the others were lifted to where it seemed to stand."""
    ready = Ready(AGENT, [CAPABILITY])
    ready.govern(LIGHTER, NOW_MS)
    ready.update([an_entry(A, 9, usage=served(used_ms=6_000)), an_entry(B, 9, usage=served(used_ms=10_000))], NOW_MS)
    ready.begin(NOW_MS)
    assert virtual_times(ready) == (40_000, 40_000)
    ready.update([an_entry(B, 9, usage=served(used_ms=10_000, offset=-18_000))], NOW_MS)
    assert virtual_times(ready) == (40_000, 40_000)


def test_a_group_at_its_cap_is_not_ready_and_comes_back_one_run_before_the_level() -> None:
    ready = begun()
    ready.govern(of_policy(mission=MissionRule(slots=2)), NOW_MS)
    ready.update([an_entry(A, 9, usage=served(running=2)), an_entry(B, 9, usage=served(used_ms=50_000))], NOW_MS)
    assert wanted(decide(View(ready, 4), NOW_MS)) == {B: 4}
    assert ready.levels(NOW_MS)[ACME] == 50_000, "what cannot be served holds no level down"
    ready.update([an_entry(A, 9, usage=a_usage(used_ms=2_000, running=1, entry=2, typical_ms=1_000))], NOW_MS)
    assert ready.tag(A) == 49_000
    assert first_of(ready) == A


def test_an_account_at_its_cap_is_not_ready_wherever_it_runs() -> None:
    ready = two_accounts()
    ready.govern(of_policy(account=AccountRule(slots=3)), NOW_MS)
    assert first_of(ready) in (A, B)
    ready.service([told(ACME, 0, running=2), told(ACME, 1, running=1)], NOW_MS)
    assert wanted(decide(View(ready, 20), NOW_MS)) == {B: 9}
    ready.service([told(ACME, 1)], NOW_MS)
    assert set(wanted(decide(View(ready, 20), NOW_MS))) == {A, B}
    ready.govern(Policy(), NOW_MS)
    ready.service([told(ACME, 0, running=40)], NOW_MS)
    assert set(wanted(decide(View(ready, 20), NOW_MS))) == {A, B}, "a cap that is gone holds nothing"


def test_accounts_that_are_told_of_no_more_are_forgotten() -> None:
    ready = two_accounts()
    ready.service([told(f"a:standard:{number}", used_ms=5) for number in range(50)], NOW_MS)
    assert len(ready.levels(NOW_MS)) == 54
    ready.service([told(ACME), told(BETA), told("c:standard")], NOW_MS, whole=0)
    assert set(ready.levels(NOW_MS)) == {"", "c:standard", ACME, BETA}


# --- any tree ---


@st.composite
def replies(draw: st.DrawFn) -> list[tuple[list[NodeUsage], list[DirectoryEntry], int]]:
    """What some replies told of six Groups of three accounts in two classes and three partitions."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        entries = []
        for number in draw(st.lists(st.integers(0, 5), unique=True)):
            running = draw(st.integers(0, 2))
            usage = a_usage(
                used_ms=draw(st.integers(0, 20_000)),
                running=running,
                estimate_ms=running * 700,
                typical_ms=700,
                offset=draw(st.integers(0, 5_000)),
                entry=draw(st.integers(1, 2)),
                entry_ms=NOW_MS - draw(st.integers(0, 3_000)),
                served=draw(st.booleans()),
            )
            code = draw(st.sampled_from(["", "", "", "PAUSED"]))
            account, priority_class = f"account{number % 3}", ["standard", "gold"][number // 3]
            entries.append(
                an_entry(
                    f"g{number}",
                    draw(st.integers(0, 5)),
                    partition=number % 3,
                    weight=1.0 + number % 2,
                    usage=usage,
                    code=code,
                    account=account,
                    priority_class=priority_class,
                )
            )
        names = st.sampled_from(
            [f"a:{name}:account{number}" for name in ("standard", "gold") for number in range(3)]
            + ["c:standard", "c:gold"]
        )
        nodes = [
            NodeUsage(
                number % 3,
                name,
                a_usage(used_ms=draw(st.integers(0, 9_000)), running=draw(st.integers(0, 2)), typical_ms=700),
            )
            for number, name in enumerate(draw(st.lists(names, unique=True)))
        ]
        found.append((nodes, entries, draw(st.integers(0, 3_000))))
    return found


@given(replies(), st.integers(0, 12), st.data())
def test_the_order_of_what_is_told_decides_nothing(
    told: list[tuple[list[NodeUsage], list[DirectoryEntry], int]], free: int, data: st.DataObject
) -> None:
    one, two, now_ms = begun(), begun(), NOW_MS
    for nodes, entries, pause_ms in told:
        now_ms += pause_ms
        one.service(nodes, now_ms)
        one.update(entries, now_ms)
        two.service(data.draw(st.permutations(nodes)), now_ms)
        two.update(data.draw(st.permutations(entries)), now_ms)
        assert decide(View(one, free), now_ms) == decide(View(two, free), now_ms)
        assert one.levels(now_ms) == two.levels(now_ms)


@given(replies(), st.integers(1, 12))
def test_at_each_level_each_pick_is_of_the_least_key(
    told: list[tuple[list[NodeUsage], list[DirectoryEntry], int]], free: int
) -> None:
    """Against the plain search from the root, with draws of one; and V of each level is the one of the plain rule."""
    ready, now_ms = begun(), NOW_MS
    known: dict[GroupId, DirectoryEntry] = {}
    for nodes, entries, pause_ms in told:
        now_ms += pause_ms
        ready.service(nodes, now_ms)
        ready.update(entries, now_ms)
        known |= {entry.group: entry for entry in entries}
    left = {group: entry.takeable for group, entry in known.items() if entry.takeable and not entry.code}
    assert sum(left.values()) == ready.takeable
    paths = {group: ready.path_of(group) for group in left}
    for level in range(3):
        below: dict[str, dict[str, Standing]] = {}
        for path in paths.values():
            below.setdefault(path[level - 1].name if level else "", {})[path[level].name] = path[level].standing
        for name, standings in below.items():
            assert ready.levels(now_ms)[name] == entry_virtual_time(standings.values(), now_ms, last_pick=0)
    planned: dict[str, int] = {}
    expected: dict[GroupId, int] = {}
    for _ in range(min(free, sum(left.values()))):
        group = min(
            (group for group in left if left[group]),
            key=lambda group: [
                node.place_at(node.standing.key(now_ms, planned_ms=700 * planned.get(node.name, 0)))
                for node in paths[group]
            ],
        )
        left[group] -= 1
        expected[group] = expected.get(group, 0) + 1
        for node in paths[group]:
            planned[node.name] = planned.get(node.name, 0) + 1
    actions = decide(View(ready, free, draw=1), now_ms)
    assert wanted(actions) == expected
    assert decide(View(ready, free, draw=1), now_ms) == actions, "a decision leaves no trace"


def test_a_group_whose_weight_its_mission_changed_counts_so_from_the_next_decision() -> None:
    ready = begun()
    ready.update([an_entry(A, 9, usage=served()), an_entry(B, 9, usage=served())], NOW_MS)
    ready.update([replace(an_entry(A, 9, usage=served()), weight=3.0)], NOW_MS)
    assert wanted(decide(View(ready, 4), NOW_MS)) == {A: 3, B: 1}


# --- what runs here ---


def test_how_a_pinned_group_stands_is_known_while_it_has_nothing_to_take() -> None:
    ready = begun()
    ready.pin(A)
    ready.pin(A)
    ready.update([an_entry(A, 0, usage=served(used_ms=500))], NOW_MS)
    assert [standing.usage.used_ms for standing in ready.standing_of(A)][-1] == 500
    ready.update([an_entry(A, 1, usage=served(used_ms=600))], NOW_MS)
    assert first_of(ready) == A
    ready.update([an_entry(A, 0, usage=served(used_ms=700, entry=2))], NOW_MS)
    assert decide(View(ready, 1), NOW_MS) == ()
    ready.remove(A)
    ready.unpin(A)
    assert [standing.usage.used_ms for standing in ready.standing_of(A)][-1] == 700, "another run of it goes on"
    ready.unpin(A)
    assert ready.standing_of(A) == ()


def test_a_group_that_comes_back_has_the_same_tag_whether_or_not_it_was_pinned() -> None:
    tags = []
    for is_pinned in (False, True):
        ready = begun()
        if is_pinned:
            ready.pin(A)
        ready.update([an_entry(A, 1, usage=served()), an_entry(B, 9, usage=served())], NOW_MS)
        ready.update([an_entry(A, 0, usage=served(entry=2))], NOW_MS)
        ready.update([an_entry(B, 9, usage=served(used_ms=9_000))], NOW_MS)
        ready.update([an_entry(A, 1, usage=a_usage(entry=2, entry_ms=NOW_MS, typical_ms=1_000))], NOW_MS)
        tags.append(ready.tag(A))
    assert tags == [9_000, 9_000]


def test_of_two_accounts_that_are_level_the_one_whose_mission_waited_longer_comes_first() -> None:
    """After a restart all is level: that a Worker saw both at once does not make them equally old."""
    for older, newer in ((A, B), (B, A)):
        ready = Ready(AGENT, (CAPABILITY,))
        usages = {older: served(entry_ms=NOW_MS), newer: served(entry_ms=NOW_MS + 5_000)}
        entries = [an_entry(group, 9, usage=usages[group], account=f"of-{group}") for group in (A, B)]
        ready.update(entries, NOW_MS + 60_000)
        assert first_of(ready, NOW_MS + 60_000) == older
