"""What a Worker has besides its Capacity Slots, and what an item needs of it while it runs: counts by name. Pure.

In the store they stand behind a number of slots, "4,gpu=2,license-x=1": what a session has, what is free for a turn, and
what a granted item fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .errors import Misuse
from .names import CAPABILITY

Resources = tuple[tuple[str, int], ...]
"""Names and counts, in the order of the names, each count 1 at least."""

NAMES_MAX = 8
COUNT_MAX = 1_000_000
FORM = "NAME=COUNT,..."
_NAME = "a name is 1 to 64 of a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit"


def resources(given: object) -> Resources:
    """Counts by name as a program gives them; Misuse, without the field's name, says what is wrong."""
    if not isinstance(given, Mapping):
        raise Misuse(f"a value of type {type(given).__name__} must be a dict of counts by name, as {{'gpu': 1}}")
    return _checked(given.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


def parse(text: str) -> Resources:
    """Counts by name as a person writes them, "gpu=2,license-x=1"; Misuse, without the field's name, says what is wrong."""
    pairs: list[tuple[object, object]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = part.partition("=")
        if not (count.isascii() and count.isdecimal()) or len(count) > 7:
            raise Misuse(f"{_shown(part)} must be NAME=COUNT, the count a whole number, 1 to {COUNT_MAX:,}")
        pairs.append((name, int(count)))
    return _checked(pairs)


def packed(has: Resources) -> str:
    """As people read and write it, and as an item has it in the store; '' for none."""
    return ",".join([f"{name}={count}" for name, count in has])


def capacity(slots: int, has: Resources) -> str:
    """Slots and what stands beside them, as the store has it."""
    return ",".join([str(slots), *([packed(has)] if has else [])])


def parse_capacity(text: str) -> tuple[int, Resources]:
    """The slots and the rest of what the store holds; ValueError for anything else."""
    slots, _, rest = text.partition(",")
    return int(slots), unpacked(rest)


def unpacked(text: str) -> Resources:
    """What `packed` wrote; ValueError for anything else."""
    parts = [part.partition("=") for part in text.split(",")] if text else []
    return tuple([(name, int(count)) for name, _, count in parts])


def left(has: Resources, used: Iterable[Resources]) -> Resources:
    """What is not in use of what a Worker has."""
    counts = dict(has)
    for needs in used:
        for name, count in needs:
            counts[name] = counts.get(name, 0) - count
    return tuple([(name, counts[name]) for name, _ in has if counts[name] > 0])


def common(one: Resources, other: Resources) -> Resources:
    """What is in both: of each the smaller count."""
    counts = dict(other)
    return tuple([(name, min(count, counts[name])) for name, count in one if counts.get(name, 0) > 0])


def together(one: Resources, other: Resources) -> Resources:
    """The sum of both."""
    counts = dict(one)
    for name, count in other:
        counts[name] = counts.get(name, 0) + count
    return tuple(sorted(counts.items()))


def covers(has: Resources, needs: Resources) -> bool:
    """Whether there is as much of each as is needed."""
    counts = dict(has)
    return all(counts.get(name, 0) >= count for name, count in needs)


def _shown(value: object) -> str:
    return f"{value!r}"[:40]


def _checked(pairs: Iterable[tuple[object, object]]) -> Resources:
    found: dict[str, int] = {}
    for name, count in pairs:
        if not isinstance(name, str) or not CAPABILITY.fullmatch(name):
            raise Misuse(f"{_shown(name)} is no name of a resource; {_NAME}")
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= COUNT_MAX:
            raise Misuse(f"{name}={_shown(count)} must be a whole number, 1 to {COUNT_MAX:,}")
        if name in found:
            raise Misuse(f"{name} is there twice; give its sum once")
        found[name] = count
    if len(found) > NAMES_MAX:
        raise Misuse(f"{len(found)} names, at most {NAMES_MAX}; leave some out")
    return tuple(sorted(found.items()))
