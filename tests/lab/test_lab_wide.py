"""Items that need several slots at once: they start in time beside an endless stream of narrow ones (scheduler.md, rule 8)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from lab.books import Work
from lab.laboratory import Lab
from lab.workers import HOLD_MS, LabWorker
from treadle.shared.model import GroupId
from treadle.worker.core.schedule import View, plan

STREAM, WIDE = GroupId("stream"), GroupId("wide")
LONGEST_MS = 8_000


def a_lab(workers: int = 1, slots: int = 4, *, seed: int = 0, stale_ms: int = 0, reserves: bool = True) -> Lab:
    """Workers that keep slots for wide items, and a stream of narrow ones, of 50 ms to 8 s, that never ends."""
    lab = Lab(workers, slots, seed=seed, stale_ms=stale_ms, reserves=reserves)
    lab.is_work_conserving = False
    chance = random.Random(seed)
    lab.open(STREAM, account="narrow", runs_ms=[chance.randint(50, LONGEST_MS) for _ in range(200 * workers * slots)])
    lab.open(WIDE, account="wide")
    lab.for_s(chance.uniform(5, 30))
    return lab


def start_of(lab: Lab, item: str, group: str = WIDE) -> int | None:
    return next((start for _, start, name in lab.waits[GroupId(group)] if name == item), None)


def spans(lab: Lab) -> Iterator[tuple[LabWorker, str, int, int, int]]:
    """By whom, for which item, from when, with which t_R and until when slots were kept."""
    for worker in lab.workers:
        for item, since_ms, until_ms, over_ms in worker.was_kept:
            yield worker, item, since_ms, until_ms, over_ms


def test_a_4_slot_item_starts_within_the_longest_run_of_an_endless_1_slot_stream_300_of_300() -> None:
    """From when its Group has the least key: that of the stream stands still while it is charged in advance."""
    worst_ms = 0
    for seed in range(300):
        lab = a_lab(seed=seed)
        (worker,) = lab.workers
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        lab.for_s(0)
        for _ in range(400):
            if worker.kept or plan(View(worker.ready, 1, slots=4), lab.now_ms).wide:
                break
            lab.for_s(0.05)
        first_ms = lab.now_ms - 50
        lab.for_s(20)
        start_ms = start_of(lab, "w")
        assert start_ms is not None, f"seed {seed}: it has not started"
        worst_ms = max(worst_ms, start_ms - first_ms)
    assert LONGEST_MS / 2 < worst_ms <= LONGEST_MS + 50


def test_trap_without_a_reservation_a_4_slot_item_waits_for_ever() -> None:
    for seed in range(5):
        lab = a_lab(seed=seed, reserves=False)
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        lab.for_s(300)
        assert start_of(lab, "w") is None


@pytest.mark.parametrize("stale_ms", [0, 500])
@pytest.mark.parametrize("workers", [1, 3])
def test_with_mixed_widths_no_slot_is_kept_for_longer_than_the_longest_run(workers: int, stale_ms: int) -> None:
    for seed in range(4):
        lab = a_lab(workers, seed=seed, stale_ms=stale_ms)
        chance = random.Random(seed)
        for number in range(6):
            lab.open(f"mixed-{number}", account=f"mixed-{number}")
            works = [
                Work(f"{number}.{n}", chance.randint(50, LONGEST_MS), width=chance.randint(1, 4)) for n in range(20)
            ]
            lab.add_works(f"mixed-{number}", works)
        lab.for_s(600)
        assert len(list(spans(lab))) > 10
        for _, item, since_ms, until_ms, over_ms in spans(lab):
            assert over_ms - since_ms <= LONGEST_MS, f"seed {seed}, {item}"
            assert until_ms - since_ms <= LONGEST_MS
        for number in range(6):
            assert not lab.waiting(GroupId(f"mixed-{number}"))


def test_only_what_is_cut_off_before_the_slots_are_needed_uses_them_meanwhile() -> None:
    """By a time-out of its own, never by an estimate: the stream's items, whose runs are as short, start nowhere."""
    filled = 0
    for seed in range(40):
        lab = a_lab(seed=seed)
        lab.open("brief", account="brief")
        brief = [Work(f"b{n}", 300, timeout_ms=500) for n in range(200)]
        lab.add_works("brief", brief)
        lab.for_s(10)
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        lab.for_s(30)
        start_ms = start_of(lab, "w")
        assert start_ms is not None
        ((worker, _, since_ms, until_ms, over_ms),) = spans(lab)
        assert worker.slots == 4
        assert over_ms == start_ms
        starts = [start for _, start, _ in lab.waits[GroupId("brief")] if since_ms < start < over_ms]
        assert all(start + 500 < until_ms for start in starts)
        filled += len(starts)
        assert not [start for _, start, _ in lab.waits[STREAM] if since_ms < start < over_ms]
    assert filled > 40


def test_two_wide_items_wait_on_two_workers_at_once_and_each_starts_in_time() -> None:
    at_once = 0
    for seed in range(20):
        lab = a_lab(2, seed=seed)
        lab.open("other", account="other")
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        lab.add_works("other", [Work("o", 1_000, width=3)])
        lab.for_s(30)
        kept = list(spans(lab))
        if len(kept) < 2:
            continue  # one of them came when there was room
        one, other = kept
        if max(one[2], other[2]) < min(one[4], other[4]):
            at_once += 1
            assert one[0] is not other[0]
        for _, item, since_ms, _, over_ms in (one, other):
            assert over_ms == start_of(lab, item, "other" if item == "o" else WIDE)
            assert over_ms - since_ms <= LONGEST_MS
    assert at_once > 10


def until_kept(lab: Lab) -> LabWorker:
    for _ in range(1_000):
        for worker in lab.workers:
            if worker.kept is not None:
                return worker
        lab.for_s(0.01)
    raise AssertionError("nobody keeps slots")


def test_when_the_holder_dies_its_reservation_lapses_and_another_worker_goes_on() -> None:
    for seed in range(10):
        lab = a_lab(2, seed=seed)
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        dead = until_kept(lab)
        lab.crash(dead, lapse_ms=HOLD_MS)
        crashed_ms = lab.now_ms
        lab.for_s(2 * HOLD_MS / 1_000)
        start_ms = start_of(lab, "w")
        assert start_ms is not None
        assert HOLD_MS / 2 < start_ms - crashed_ms <= HOLD_MS + 2 * LONGEST_MS
        assert [(worker.number, over_ms) for worker, *_, over_ms in spans(lab)] == [(1 - dead.number, start_ms)]


def test_what_is_cancelled_while_slots_are_kept_for_it_frees_them_at_once() -> None:
    for seed in range(10):
        lab = a_lab(seed=seed)
        lab.add_works(WIDE, [Work("w", 1_000, width=4)])
        worker = until_kept(lab)
        lab.withdraw(WIDE, "w")
        lab.for_s(0)
        assert worker.kept is None
        assert worker.free == 0
        assert not lab.books.holds


def test_a_worker_that_is_given_fewer_slots_than_the_item_needs_lets_it_go() -> None:
    lab = a_lab(2)
    lab.add_works(WIDE, [Work("w", 1_000, width=4)])
    worker = until_kept(lab)
    worker.slots = 2
    lab.for_s(3 * LONGEST_MS / 1_000)
    assert worker.kept is None
    assert worker.free <= 0, "what it has left is used"
    assert start_of(lab, "w") is not None, "the other one has them"
    assert [one.number for one, *_ in spans(lab)] == [worker.number, 1 - worker.number]


@pytest.mark.parametrize("level", ["class", "account", "group"])
def test_a_wide_item_is_charged_for_each_of_its_slots_at_every_level(level: str) -> None:
    """BR-66: against equals of one slot it has half of the slot-time, so a quarter as many runs."""
    lab = Lab(1, 4, reserves=True)
    lab.is_work_conserving = False
    for name, width in (("narrow", 1), ("wide", 4)):
        priority_class = name if level == "class" else "standard"
        lab.open(name, account="one" if level == "group" else name, priority_class=priority_class)
        lab.add(name, [1_000] * 2_000, width=width)
    lab.for_s(400)
    had: dict[str, int] = {"narrow": 0, "wide": 0}
    for run in lab.ended:
        had[run.group] += run.width * (run.end_ms - run.start_ms)
    assert had["wide"] / sum(had.values()) == pytest.approx(0.5, abs=0.02)
    node = {"class": "c:wide", "account": "a:standard:wide"}.get(level)
    used_ms = lab.books.lines[WIDE].counters.used if node is None else lab.books.nodes[0][node].used
    assert used_ms == had["wide"]
