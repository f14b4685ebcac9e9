"""What a run may say of how far it is, and when that is told: seldom, the latest numbers, every milestone (WRK-016)."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.errors import Misuse
from treadle.shared.model import LeaseId
from treadle.shared.progress import MILESTONES_MAX, NOTE_CHARS_MAX, WORD_CHARS_MAX, Said, recorded, said
from treadle.worker.slots.progressing import AT_ONCE_MAX, EACH_S, LOOK_EACH_S, Progressing, Words

A, B = LeaseId("a"), LeaseId("b")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"done": -1}, "done=-1, must be from 0 to 1e+15"),
        ({"done": float("nan")}, "done=nan, must be from 0"),
        ({"done": float("inf")}, "done=inf, must be from 0"),
        ({"done": 1, "total": 2e15}, "total=2e+15, must be from 0"),
        ({"done": "3"}, "done='3' is no number"),
        ({"done": True}, "done=True is no number"),
        ({"done": None}, "done=None is no number"),
        ({"done": 10**400}, "is no number"),
        ({"done": 10**9_000}, "is no number"),
        ({"done": 1, "phase": "p" * (WORD_CHARS_MAX + 1)}, f"has 65 characters, at most {WORD_CHARS_MAX}"),
        ({"done": 1, "milestone": "m" * 500}, "milestone='mmm.*has 500 characters"),
        ({"done": 1, "phase": 7}, "phase is of type int, must be text"),
        ({"done": 1, "note": b"n"}, "note is of type bytes, must be text"),
    ],
)
def test_what_is_wrong_is_named_with_its_value_and_its_bound(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words.replace("+", "[+]")):
        said(**wrong)


def test_all_that_counts_as_a_number_will_do_and_of_nothing_all_is_done() -> None:
    assert said(Decimal("2.5"), 5).fraction == 0.5  # type: ignore[arg-type]
    assert said(0, 0).fraction == 1.0
    assert said(7, 5).fraction == 1.0, "the total was a guess"


def test_a_note_is_one_line_of_200_characters() -> None:
    assert said(1, note="a\nb\x1b[2J\ud800c").note == "a b [2J c"
    assert said(1, note="n" * 10_000).note == "n" * NOTE_CHARS_MAX


texts = st.text(max_size=WORD_CHARS_MAX)
amounts = st.floats(0, 1e15) | st.integers(0, 10**15)


@given(amounts, amounts, texts, texts, st.text(max_size=300))
def test_what_is_said_comes_back_from_its_record(
    done: float, total: float, phase: str, milestone: str, note: str
) -> None:
    one = said(done, total, phase=phase, milestone=milestone, note=note)
    tokens = one.tokens()
    assert all(token and len(token) <= 2_400 and " " not in token for token in tokens)
    found = recorded(f"1800000000000 4 0 2 {' '.join(tokens)}", number=4)
    assert found is not None
    assert (found.phase, found.milestones, found.note) == (one.phase, one.milestones, one.note)
    assert found.done == pytest.approx(one.done, rel=1e-12)
    assert found.total == pytest.approx(one.total, rel=1e-12)
    assert recorded(f"1800000000000 3 0 2 {' '.join(tokens)}", number=4) is None, "it is of an earlier run"


def test_nothing_is_told_of_a_runs_first_second_and_then_the_latest_at_most_once_a_second() -> None:
    words, told = Words(), []
    for tenth in range(45):
        now_s = tenth / 10
        words.say(A, said(tenth, 100), began_s=0.0)
        told += [(round(now_s, 1), one.done) for _, one in words.due(now_s)]
    assert told == [(1.0, 10), (2.0, 20), (3.0, 30), (4.0, 40)]
    last = words.last(A, 4.5)
    assert last is not None
    assert last.done == 44, "what was said last travels with the end"


def test_the_last_word_is_told_although_nothing_more_is_said() -> None:
    words = Words()
    words.say(A, said(1, 2), began_s=0.0)
    assert words.due(0.9) == []
    assert words.due(5.0) == [(A, Said(1, 2))]
    assert words.due(9.0) == []


def test_a_phase_holds_until_another_is_named_and_no_milestone_between_is_lost() -> None:
    words = Words()
    words.say(A, said(1, 9, phase="fetch", milestone="begun"), began_s=0.0)
    words.say(A, said(2, 9, milestone="half"), began_s=0.0)
    assert words.due(1.0) == [(A, Said(2, 9, "fetch", ("begun", "half")))]
    words.say(A, said(3, 9), began_s=0.0)
    assert words.due(2.0) == [(A, Said(3, 9, "fetch"))]


def test_of_many_milestones_between_two_words_the_newest_are_told() -> None:
    words = Words()
    for n in range(MILESTONES_MAX + 5):
        words.say(A, said(n, 99, milestone=f"m{n}"), began_s=0.0)
    ((_, one),) = words.due(1.0)
    assert one.milestones == tuple(f"m{n}" for n in range(5, MILESTONES_MAX + 5))


def test_of_a_run_that_is_over_within_a_second_only_milestones_are_told() -> None:
    words = Words()
    words.say(A, said(1, 2, phase="fetch"), began_s=0.0)
    words.say(B, said(1, 2, milestone="done"), began_s=0.0)
    assert words.last(A, 0.5) is None
    assert words.last(B, 0.5) == Said(1, 2, "", ("done",))
    words.say(A, said(1, 2), began_s=0.0)
    words.forget(A)
    assert words.due(9.0) == []


def test_a_look_tells_of_so_many_runs_and_the_next_look_of_the_rest() -> None:
    words = Words()
    for n in range(AT_ONCE_MAX + 3):
        words.say(LeaseId(str(n)), said(n, 99), began_s=0.0)
    assert len(words.due(EACH_S)) == AT_ONCE_MAX
    assert words.due(EACH_S + LOOK_EACH_S / 2) == []
    assert len(words.due(EACH_S + LOOK_EACH_S)) == 3


def test_what_a_thread_says_just_when_its_run_is_over_is_told_to_nobody_and_not_kept() -> None:
    progressing = Progressing(cast("Any", None))
    progressing._words.say(A, said(1, 2), began_s=0.0)
    progressing.tell({}, 5.0)
    assert progressing._words._words == {}


def test_threads_may_say_at_once_and_no_milestone_is_lost() -> None:
    words = Words()
    leases = [LeaseId(str(n)) for n in range(8)]

    def speak(lease: LeaseId) -> None:
        for n in range(500):
            words.say(lease, said(n, 500, milestone=f"m{n}"), began_s=0.0)

    threads = [threading.Thread(target=speak, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = dict(words.due(1.0))
    assert found.keys() == set(leases)
    assert {one.done for one in found.values()} == {499}
    assert {one.milestones[-1] for one in found.values()} == {"m499"}
