"""How a Group's state, folded from its log, and its own keys may differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..lifecycle import TERMINAL_MISSIONS
from ..projection import FINISHED_MAX, Finished, Item, Projection

_TOLD = tuple(name for name in Item.__slots__ if name != "latest")
"""What both know of an item."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing of a Group that is not everywhere the same."""

    where: str
    """`log`, `mission`, an item's token, or the name of a list of the partition."""
    what: str
    expected: str
    found: str


def differences(told: Projection, stored: Projection) -> list[Difference]:
    """What the log tells and the store's keys do not say, or the other way round; none where they agree.

    Items whose time was over are gone from the store alone: verified and cancelled ones without a word, and all of a
    Mission that has ended. A start-by may stand later than the log says: an outage of the store puts it off.
    """
    return [*_of_mission(told, stored), *_of_items(told, stored), *_of_finished(told, stored)]


def _of_mission(told: Projection, stored: Projection) -> Iterator[Difference]:
    pairs: dict[str, tuple[object, object]] = {
        "sequence": (told.through, stored.through),
        "incarnation": (told.incarnation, stored.incarnation),
        "state": (told.mission, stored.mission),
        "terms": (told.terms, stored.terms),
        "unverified": (told.total - told.verified, stored.total - stored.verified),
        "failed": (told.failed, stored.failed),
        "cancelled": (told.cancelled, stored.cancelled),
    }
    for what, (expected, found) in pairs.items():
        if expected != found:
            yield Difference("mission", what, str(expected), str(found))


def _of_items(told: Projection, stored: Projection) -> Iterator[Difference]:
    has_ended = told.mission in TERMINAL_MISSIONS
    for name, item in told.items.items():
        there = stored.items.get(name)
        if there is None:
            if name in stored.finished or not has_ended:
                yield Difference(name, "state", item.state, _state(stored, name))
            continue
        for what in _TOLD:
            expected, found = getattr(item, what), getattr(there, what)
            if expected != found and not (what == "start_by_ms" and found > expected):
                yield Difference(name, what, str(expected), str(found))
    for name, there in stored.items.items():
        if name not in told.items:
            yield Difference(name, "state", _state(told, name), there.state)


def _of_finished(told: Projection, stored: Projection) -> Iterator[Difference]:
    forgets = len(told.finished) >= FINISHED_MAX
    for name, there in stored.finished.items():
        item = told.finished.get(name)
        if item is None:
            if name in told.items or not forgets:
                yield Difference(name, "state", _state(told, name), there.state)
            continue
        for what in Finished.__slots__:
            expected, found = getattr(item, what), getattr(there, what)
            if expected != found:
                yield Difference(name, what, str(expected), str(found))


def _state(projection: Projection, name: str) -> str:
    found = projection.items.get(name) or projection.finished.get(name)
    return found.state if found else "nothing"
