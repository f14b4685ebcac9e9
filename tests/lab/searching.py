"""Searches for a world in which a bound breaks: all small ones, and a climb from chance towards worse ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from lab.worlds import Load, Small, endless

Judge = Callable[[Small], float]
"""Which part of a bound a world reaches."""


def all_small() -> Iterator[Small]:
    """Every world of two Groups within these walls; a run's estimate is cold, then too large or too small, in most."""
    runs = [(100,), (1_000,), (100, 100, 100, 1_000), (1_000, 1_000, 1_000, 100)]
    for workers, slots in ((1, 1), (1, 2), (2, 1)):
        for weight in (1.0, 3.0):
            for one, other in itertools.product(runs, runs):
                for at_ms in (0, 1_500):
                    first = Load(1.0, endless(*one, slots=workers * slots, span_ms=6_000))
                    later = endless(*other, slots=workers * slots, span_ms=6_000)
                    second = Load(weight, tuple((at_ms + came, run) for came, run in later))
                    yield Small(workers, slots, (first, second))


def any_world(dice: random.Random, span_ms: int) -> Small:
    """A world by chance: Groups that are always backlogged, enter late, or come and go."""
    workers, slots = dice.choice([(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1)])
    loads = tuple(any_load(dice, workers * slots, span_ms) for _ in range(dice.randint(2, 4)))
    return Small(
        workers, slots, loads, draw=dice.choice([1, 4]), stale_ms=dice.choice([0, 0, 200]), seed=dice.randrange(99)
    )


def any_load(dice: random.Random, slots: int, span_ms: int) -> Load:
    runs = [dice.choice([100, 300, 1_000, 3_000]) for _ in range(dice.randint(1, 4))]
    items = endless(*runs, slots=slots, span_ms=span_ms)
    match dice.randrange(3):
        case 0:
            at_ms = dice.randrange(span_ms // 2)
            items = tuple((at_ms, run_ms) for _, run_ms in items)
        case 1:
            items = tuple(sorted((dice.randrange(span_ms), run_ms) for _, run_ms in items[:20]))
        case _:
            pass
    return Load(dice.choice([1.0, 1.0, 2.0, 5.0, 10.0]), items)


def climb(judge: Judge, *, seed: int, steps: int, span_ms: int) -> tuple[float, Small]:
    """The worst world that was found, and which part of the bound it reaches, in so many steps."""
    dice = random.Random(seed)
    worst, best = any_world(dice, span_ms), 0.0
    best = judge(worst)
    for _ in range(steps):
        tried = nearby(dice, worst, span_ms)
        reached = judge(tried)
        if reached >= best:
            worst, best = tried, reached
    return best, worst


def nearby(dice: random.Random, world: Small, span_ms: int) -> Small:
    """The same world but for one thing; now and then another one altogether."""
    loads = list(world.loads)
    at = dice.randrange(len(loads))
    match dice.randrange(7):
        case 0:
            loads[at] = any_load(dice, world.all_slots, span_ms)
        case 1:
            loads[at] = replace(loads[at], weight=dice.choice([1.0, 2.0, 5.0, 10.0]))
        case 2:
            # The same items in another order: estimates that are too large, then too small.
            moved = [
                (came, run)
                for (came, _), (_, run) in zip(loads[at].items, sorted(loads[at].items, key=_run), strict=True)
            ]
            loads[at] = replace(loads[at], items=tuple(moved if dice.random() < 0.5 else _turned(moved)))
        case 3:
            by_ms = dice.choice([-100, -1, 1, 100, 700])
            loads[at] = replace(loads[at], items=tuple((max(0, came + by_ms), run) for came, run in loads[at].items))
        case 4:
            return replace(world, seed=dice.randrange(99))
        case 5:
            return replace(world, stale_ms=dice.choice([0, 100, 500]), draw=dice.choice([1, 2, 4]))
        case _:
            return any_world(dice, span_ms)
    return replace(world, loads=tuple(loads))


def _turned(items: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(came, run) for (came, _), (_, run) in zip(items, reversed(items), strict=True)]


def _run(item: tuple[int, int]) -> int:
    return item[1]
