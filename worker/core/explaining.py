"""Why an item waits with this Worker, by the rules that `decide` goes by, said without a word about other Groups. Pure.

    explain(question, here) -> reasons, the one to act upon first, and a coarse window of when a start is expected

Two worlds that differ only in names, number, contents or service of other Groups give the same reasons as long as the item's
own standing is the same: that others come first is said, and at which level; not who, how many, or for how long (design.md 4).
A quota of its own account is that account's to know, whichever of its Missions use it.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.shared.model import GroupId
from treadle.shared.reasons import Because, Level, Question, Reason
from treadle.shared.resources import Resources, covers

from .tree import Ready

_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Here:
    """What this Worker is to the item that is asked about."""

    slots: int
    free_slots: int
    is_known: bool
    """Whether its Group has something to take, as far as this Worker has heard."""
    behind: Level = Level.NONE
    """Where other work has the better claim to the next slot."""
    typical_ms: int = 0
    """How long a run of its own Mission usually takes; 0: nobody knows yet."""
    is_mine: bool = False
    """Whether this Worker has accepted it and not started it."""
    is_stopping: bool = False
    serves: bool = True
    """Whether its Mission is one of those that this Worker works for (`--groups`)."""
    is_kept_out: bool = False
    """Whether its Membership in the Group was ended (R6)."""
    is_reserved: bool = False
    """Whether slots are kept free for it, here or by another Worker, until it has as many as it needs (rule 8)."""
    resources: Resources = ()
    spare: Resources = ()
    """What it has besides slots, and what of that is free."""
    quotas: tuple[tuple[Because, Level], ...] = ()
    """Which quotas of its Mission and its account are used up."""
    resumes_in_ms: int = 0
    """When the window of a rate ends that is."""
    is_set_aside: bool = False
    """Whether what was read of the Group's log could not be trusted here."""


def explain(question: Question, here: Here) -> tuple[Reason, ...]:
    """Every reason why the item is not started here now, at least one; `NEXT` where there is none."""
    for because, holds in (
        (Because.STOPPING, here.is_stopping),
        (Because.NOT_SERVED, not here.serves),
        (Because.KEPT_OUT, here.is_kept_out),
        (Because.SET_ASIDE, here.is_set_aside),
        (Because.TOO_WIDE, question.width > here.slots or not covers(here.resources, question.resources)),
    ):
        if holds:
            return (Reason(because),)
    found = list(here.quotas)
    if here.is_reserved:
        found.append((Because.RESERVED, Level.NONE))
    elif here.is_mine or question.width > here.free_slots:
        found.append((Because.CAPACITY, Level.NONE))
    if not covers(here.spare, question.resources):
        found.append((Because.RESOURCES, Level.NONE))
    if not (here.is_mine or here.is_reserved or here.quotas) and here.behind is not Level.NONE:
        found.append((Because.FAIR_SHARE, here.behind))
    if question.ahead:
        found.append((Because.QUEUED, Level.MISSION))
    if not found:
        found.append((Because.NEXT if here.is_known else Because.UNHEARD, Level.NONE))
    from_s, to_s = window(question, here)
    return tuple(Reason(because, level, from_s, to_s) for because, level in found)


def window(question: Question, here: Here) -> tuple[int | None, int | None]:
    """From when to when a start may be expected, in seconds from now; None where nobody can say.

    It is made of the Mission's own figures: what comes before the item, how long such runs take, and the slots of the Workers
    that were asked, taken to be as large as this one. What it cannot know - how long others keep the slots - has no end.
    """
    if here.typical_ms <= 0:
        return (coarse(here.resumes_in_ms, up=False) if here.resumes_in_ms else None), None
    at_once = max(1, here.slots // question.width)
    soonest_ms = question.ahead // (at_once * max(1, question.asked)) * here.typical_ms
    soonest_ms = max(soonest_ms, here.resumes_in_ms)
    is_full = bool(here.quotas) or question.width > here.free_slots or not covers(here.spare, question.resources)
    if here.is_mine or here.behind is not Level.NONE or is_full or not here.is_known:
        return coarse(soonest_ms, up=False), None
    latest_ms = (question.ahead // at_once + 1) * here.typical_ms
    return coarse(soonest_ms, up=False), coarse(latest_ms, up=True)


def quotas(ready: Ready, group: GroupId, width: int, now_ms: int) -> tuple[tuple[tuple[Because, Level], ...], int]:
    """Which quotas of a Group and of its account keep an item of this width back, and in how many ms a rate's window ends."""
    now_ms, found, resumes_in_ms = ready.tick(now_ms), list[tuple[Because, Level]](), 0
    for level, node in zip((Level.ACCOUNT, Level.MISSION), ready.path_of(group)[1:], strict=False):
        if node.slots_left < width:
            found.append((Because.QUOTA, level))
        if node.until_ms > now_ms:
            found.append((Because.RATE, level))
            resumes_in_ms = max(resumes_in_ms, node.until_ms - now_ms)
    return tuple(found), resumes_in_ms


def coarse(span_ms: int, *, up: bool) -> int:
    """A span in seconds to the next of 0, 1, 2, 5, 10, 20, 50, ... below it, or above it."""
    below, step = 0, 1
    while True:
        for first in _STEPS:
            at = first * step
            if 1000 * at >= span_ms:
                return at if up or 1000 * at == span_ms else below
            below = at
        step *= 10


def behind(ready: Ready, group: GroupId, now_ms: int) -> Level:
    """At which level something else has the better claim to the next slot: the first one where the ways part (rule 4)."""
    for level, node in zip((Level.CLASS, Level.ACCOUNT, Level.MISSION), ready.path_of(group), strict=False):
        if node.level.first(ready.tick(now_ms)) not in (None, node):
            return level
    return Level.NONE
