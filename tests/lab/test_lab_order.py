"""The fixed order inside a Group in the laboratory: deadlines first, ageing, and nothing of it between Groups (rule 10)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import partial

from builders import NOW_MS
from lab.books import PATIENCE_MS, Work
from lab.laboratory import Lab
from treadle.shared.model import GroupId, Urgency


def order_of_starts(lab: Lab, group: str) -> list[str]:
    return [item for _, _, item in lab.waits[GroupId(group)]]


def test_items_start_by_their_effective_deadlines() -> None:
    """EDF on min(deadline, queued + patience); seeds 0 to 19, 40 items at once or within their order's time, one slot."""
    for seed in range(20):
        dice = random.Random(seed)
        works = [
            Work(
                f"{number:02d}",
                500,
                urgency=dice.choice(list(Urgency)),
                deadline_ms=dice.choice([0, NOW_MS + dice.randrange(1, 200_000_000)]),
            )
            for number in range(40)
        ]
        lab = Lab(1, 1, seed=seed)
        lab.open("a")
        lab.add_works("a", works)
        lab.for_s(30)

        def due(work: Work) -> int:
            by_age = NOW_MS + PATIENCE_MS[work.urgency]
            return min(work.deadline_ms, by_age) if work.deadline_ms else by_age

        started = order_of_starts(lab, "a")
        by_item = {work.item: work for work in works}
        assert len(started) == 40
        assert [due(by_item[item]) for item in started] == sorted(map(due, works))


def test_where_every_deadline_is_sooner_than_patience_it_is_plain_earliest_deadline_first() -> None:
    """And so every deadline is met that can be met: feasible sets, items coming one by one; seeds 0 to 19."""
    for seed in range(20):
        dice = random.Random(seed)
        lab = Lab(1, 1, seed=seed)
        lab.open("a")
        deadlines: dict[str, int] = {}
        # Built backwards from a schedule that meets them all: each item ends by its deadline there.
        end_ms = 0
        for number in range(40):
            run_ms = dice.randrange(100, 2_000)
            came_ms = max(0, end_ms - dice.randrange(5_000))
            end_ms += run_ms
            # Not preemptive: what runs when an item comes may cost each deadline one longest run.
            deadlines[f"{number:02d}"] = NOW_MS + end_ms + dice.randrange(3_000) + 2_000
            work = Work(f"{number:02d}", run_ms, deadline_ms=deadlines[f"{number:02d}"])
            lab.at(NOW_MS + came_ms, partial(lab.add_works, "a", [work]))
        lab.for_s(120)
        assert len(lab.ended) == 40
        assert all(one.end_ms <= deadlines[one.item] for one in lab.ended)


def test_l6_a_patient_item_starts_once_all_own_work_with_a_smaller_key_has() -> None:
    """An endless stream of items whose deadlines are near or past fills the slot; patience turns into a place in the order.

    The stream brings 1 s of work each second; the patient one is of routine urgency with a deadline 60 s after it came.
    """
    for near_ms in (-5_000, 0, 2_000):
        lab = Lab(1, 1)
        lab.open("a")
        patient = Work("patient", 1_000, urgency=Urgency.ROUTINE, deadline_ms=NOW_MS + 60_000)
        lab.add_works("a", [Work("first", 1_000), patient])
        numbers = itertools.count()

        def send(lab: Lab = lab, near_ms: int = near_ms, numbers: Iterator[int] = numbers) -> None:
            number = next(numbers)
            lab.add_works("a", [Work(f"s{number:04d}", 1_000, deadline_ms=max(1, lab.now_ms + near_ms))])

        lab.each(1_000, send, until_ms=NOW_MS + 200_000)
        lab.run(NOW_MS + 200_000)
        started = {item: start for _, start, item in lab.waits[GroupId("a")]}
        own_key = patient.key(NOW_MS)
        before = [
            start
            for came, start, item in lab.waits[GroupId("a")]
            if item not in ("patient", "first")
            and Work(item, 0, deadline_ms=max(1, came + near_ms)).key(came) < own_key
        ]
        assert started["patient"] <= max(before) + 1_000
        assert started["patient"] < NOW_MS + 70_000, "its deadline, and the stream's work that came before that"


def test_s20_what_is_said_of_an_item_changes_nothing_between_groups() -> None:
    """Urgency, deadline and impact of one Group's items: the order of Groups, start by start, is the same without them."""

    def groups_in_order(said: bool, seed: int) -> list[tuple[int, str]]:
        dice = random.Random(seed)
        lab = Lab(2, 2, stale_ms=200, seed=seed)
        for name in ("a", "b", "c"):
            lab.open(name, weight=dice.choice([1.0, 2.0]))
        works = [
            Work(
                f"{number:03d}",
                1_000,
                urgency=Urgency.CRITICAL if said and number % 2 else Urgency.NORMAL,
                deadline_ms=NOW_MS + number if said else 0,
                impact=number if said else 0,
            )
            for number in range(200)
        ]
        lab.add_works("a", works)
        lab.add("b", [700] * 200)
        lab.add("c", [1_300] * 200)
        lab.for_s(60)
        return [(at, group) for at, group, width in lab.changes if width > 0]

    for seed in range(5):
        assert groups_in_order(True, seed) == groups_in_order(False, seed)
