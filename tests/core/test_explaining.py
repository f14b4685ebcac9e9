"""Why an item waits with a Worker: by the rules that it decides by, and without a word about other Groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.errors import Corrupt
from treadle.shared.model import (
    STARTS_EPOCH_MS,
    AgentId,
    Capability,
    DirectoryEntry,
    GroupId,
    ItemId,
    NodeUsage,
    Usage,
)
from treadle.shared.policy_file import parse
from treadle.shared.reasons import Answer, Because, Level, Question, Reason, packed, parse_answer
from treadle.worker.core.explaining import Here, behind, coarse, explain, quotas, window
from treadle.worker.core.tree import Ready

NOW = 1_800_000_000_000
INDEX, MINE = Capability("index"), GroupId("mine")
ASKED = Question("why.1", MINE, ItemId("a"), NOW, INDEX, width=1, ahead=0, asked=1)
FREE = Here(slots=4, free_slots=4, is_known=True)


GPU = (("gpu", 1),)
SLOTS = ((Because.QUOTA, Level.MISSION),)


def entry(group: str, usage: Usage, *, weight: float = 1.0, takeable: int = 5, account: str = "x") -> DirectoryEntry:
    return DirectoryEntry(0, GroupId(group), INDEX, takeable, "head", account, weight, "standard", usage)


def a_usage(*, used_ms: int = 0, entry_number: int = 1) -> Usage:
    return Usage(used_ms, 0, 0, 0, 0, 0, entry_number, NOW, served=True)


@pytest.mark.parametrize(
    ("question", "here", "because"),
    [
        (ASKED, FREE, [Because.NEXT]),
        (ASKED, replace(FREE, is_known=False), [Because.UNHEARD]),
        (ASKED, replace(FREE, free_slots=0), [Because.CAPACITY]),
        (replace(ASKED, width=3), replace(FREE, free_slots=2), [Because.CAPACITY]),
        (replace(ASKED, width=2), replace(FREE, free_slots=2), [Because.NEXT]),
        (replace(ASKED, width=5), FREE, [Because.TOO_WIDE]),
        (replace(ASKED, resources=GPU), FREE, [Because.TOO_WIDE]),
        (replace(ASKED, resources=GPU), replace(FREE, resources=GPU), [Because.RESOURCES]),
        (replace(ASKED, resources=GPU), replace(FREE, resources=GPU, spare=GPU), [Because.NEXT]),
        (ASKED, replace(FREE, behind=Level.ACCOUNT), [Because.FAIR_SHARE]),
        (replace(ASKED, ahead=2), FREE, [Because.QUEUED]),
        (
            replace(ASKED, ahead=2),
            replace(FREE, free_slots=0, behind=Level.MISSION),
            [Because.CAPACITY, Because.FAIR_SHARE, Because.QUEUED],
        ),
        (ASKED, replace(FREE, is_mine=True, is_known=False, behind=Level.CLASS), [Because.CAPACITY]),
        (
            replace(ASKED, width=3),
            replace(FREE, free_slots=0, is_reserved=True, behind=Level.ACCOUNT),
            [Because.RESERVED],
        ),
        (ASKED, replace(FREE, quotas=SLOTS, behind=Level.CLASS), [Because.QUOTA]),
        (ASKED, replace(FREE, quotas=SLOTS, free_slots=0), [Because.QUOTA, Because.CAPACITY]),
        (ASKED, replace(FREE, is_stopping=True, serves=False), [Because.STOPPING]),
        (ASKED, replace(FREE, serves=False, free_slots=0), [Because.NOT_SERVED]),
        (ASKED, replace(FREE, is_kept_out=True), [Because.KEPT_OUT]),
        (ASKED, replace(FREE, is_set_aside=True, is_known=False), [Because.SET_ASIDE]),
    ],
)
def test_every_reason_that_holds_is_said_and_nothing_else(
    question: Question, here: Here, because: list[Because]
) -> None:
    assert [reason.because for reason in explain(question, here)] == because


def test_a_window_is_made_of_the_missions_own_runs_and_has_no_end_while_others_come_first() -> None:
    known = replace(FREE, typical_ms=3_000)
    twelve = replace(ASKED, ahead=12)
    assert window(ASKED, FREE) == (None, None), "no run of it was ever seen"
    assert window(ASKED, known) == (0, 5)
    assert window(twelve, known) == (5, 20), "three rounds of four at 3 s each, then its own turn"
    assert window(replace(twelve, asked=3), known) == (2, 20), "three Workers may be three times as fast"
    assert window(replace(twelve, width=2), known) == (10, 50), "two at once"
    for held in (
        replace(known, behind=Level.MISSION),
        replace(known, free_slots=0),
        replace(known, is_known=False),
        replace(known, is_mine=True),
        replace(known, quotas=SLOTS),
    ):
        assert window(twelve, held) == (5, None)


def test_a_rate_that_is_used_up_says_when_its_window_ends_and_no_more() -> None:
    used_up = replace(FREE, quotas=((Because.RATE, Level.ACCOUNT),), resumes_in_ms=61_000)
    assert window(ASKED, used_up) == (50, None)
    assert window(ASKED, replace(used_up, typical_ms=3_000)) == (50, None)
    assert window(replace(ASKED, ahead=400), replace(used_up, typical_ms=3_000)) == (200, None)


def test_the_quotas_that_keep_an_item_back_are_its_own_missions_and_its_accounts() -> None:
    ready = Ready(AgentId("w"), [INDEX])
    text = "[[accounts]]\nmatch = 'x'\nslots = 3\n[[missions]]\nmatch = 'x/mine'\nslots = 2\nrate = '1/min'\n"
    ready.govern(parse(text, name="p"), NOW)
    running = replace(a_usage(), running=1, starts_ms=NOW - STARTS_EPOCH_MS)
    ready.service([NodeUsage(0, "a:standard:x", running)], NOW)
    ready.update([entry("mine", running)], NOW)
    assert quotas(ready, MINE, 1, NOW) == ((), 0)
    assert quotas(ready, MINE, 2, NOW) == (((Because.QUOTA, Level.MISSION),), 0)
    both = ((Because.QUOTA, Level.ACCOUNT), (Because.QUOTA, Level.MISSION))
    assert quotas(ready, MINE, 3, NOW) == (both, 0)
    ready.hold(MINE, NOW + 5_000)
    assert quotas(ready, MINE, 1, NOW + 1_000) == (((Because.RATE, Level.MISSION),), 4_000)
    assert quotas(ready, MINE, 1, NOW + 5_000) == ((), 0)
    assert quotas(ready, GroupId("unknown"), 9, NOW) == ((), 0)


@given(span_ms=st.integers(0, 10**12))
def test_a_coarse_span_holds_the_exact_one_and_is_not_far_from_it(span_ms: int) -> None:
    below, above = coarse(span_ms, up=False), coarse(span_ms, up=True)
    assert 1000 * below <= span_ms <= 1000 * above
    assert above <= max(1, 2.5 * below) or below == 0
    assert {int(str(one)[0]) for one in (below, above)} <= {0, 1, 2, 5}


def test_other_work_comes_first_while_it_has_had_less_for_its_weight() -> None:
    ready = Ready(AgentId("w"), [INDEX])
    ready.update([entry("mine", a_usage(used_ms=1_000)), entry("other", a_usage(used_ms=400))], NOW)
    assert behind(ready, MINE, NOW) is Level.MISSION
    assert behind(ready, GroupId("other"), NOW) is Level.NONE
    assert behind(ready, GroupId("unknown"), NOW) is Level.NONE
    ready = Ready(AgentId("w"), [INDEX])
    ready.update([entry("mine", a_usage(used_ms=1_000)), entry("other", a_usage(used_ms=400), weight=0.25)], NOW)
    assert behind(ready, MINE, NOW) is Level.NONE, "1,600 for a weight of one"


rivals = st.lists(
    st.builds(
        entry,
        st.text("abcdefgh~%.0123456789", min_size=1, max_size=30).map("other-".__add__),
        st.builds(a_usage, used_ms=st.integers(0, 10**9), entry_number=st.integers(1, 50)),
        weight=st.sampled_from([0.1, 1.0, 3.0, 100.0]),
        takeable=st.integers(1, 10**6),
        account=st.text("abcdefgh", min_size=1, max_size=9),
    ),
    max_size=6,
    unique_by=lambda one: one.group,
)


@given(worlds=st.tuples(rivals, rivals), ahead=st.integers(0, 99), free=st.integers(0, 4), used=st.integers(0, 10**6))
def test_two_worlds_that_differ_in_other_groups_are_explained_alike_to_the_byte(
    worlds: tuple[list[DirectoryEntry], list[DirectoryEntry]], ahead: int, free: int, used: int
) -> None:
    """Names, number, contents, weights and service of others: only that some come first is said (design.md 4)."""
    said: list[tuple[Level, str]] = []
    mine = entry("mine", replace(a_usage(used_ms=used), typical_ms=700))
    for others in worlds:
        ready = Ready(AgentId("w"), [INDEX])
        ready.update([*others, mine], NOW)
        standing = behind(ready, MINE, NOW)
        here = Here(slots=4, free_slots=free, is_known=True, behind=standing, typical_ms=mine.usage.typical_ms)
        said.append((standing, packed(explain(replace(ASKED, ahead=ahead), here))))
    (one, first), (two, second) = said
    assert one is not two or first == second
    assert "other" not in first + second


@given(others=rivals, used=st.integers(0, 10**6))
def test_the_level_is_the_first_one_where_something_stands_before_it_however_many_do(
    others: list[DirectoryEntry], used: int
) -> None:
    """Against the plain rule; that one stands there, or a hundred do, is not told apart."""
    ready = Ready(AgentId("w"), [INDEX])
    ready.update([*others, entry("mine", a_usage(used_ms=used))], NOW)
    expected = Level.NONE
    for level, node in zip((Level.MISSION, Level.ACCOUNT, Level.CLASS), reversed(ready.path_of(MINE)), strict=True):
        if any(rival.place(NOW) < node.place(NOW) for rival in node.level):
            expected = level
    assert behind(ready, MINE, NOW) is expected


reasons = st.builds(
    Reason,
    st.sampled_from(Because),
    st.sampled_from(Level),
    st.none() | st.integers(0, 10**9),
    st.none() | st.integers(0, 10**9),
)


@given(said=st.lists(reasons, min_size=1, max_size=9))
def test_what_was_said_is_read_back(said: list[Reason]) -> None:
    assert parse_answer(f"w%20one {packed(said)}", where="inbox") == Answer(AgentId("w%20one"), tuple(said))


@pytest.mark.parametrize(
    "entry", ["", "w", "w NEXT", "w NEXT - - - -", "w NEXT - x -", "w NEXT group - -", "w NEXT - - -,"]
)
def test_what_no_worker_says_is_no_answer(entry: str) -> None:
    with pytest.raises(Corrupt, match="inbox: "):
        parse_answer(entry, where="inbox")
