"""Why a WorkItem waits, as a Worker says it that could run it: the question and the answers, and their text in the store.

An answer is about the item's own Mission, its account and the Worker; of other Groups it says no more than that they come
first (design.md 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .errors import Corrupt
from .model import AgentId, Capability, GroupId, ItemId
from .resources import Resources, parse_capacity

MARK = "? "
"""How a question begins in an inbox; a doorbell begins with a Group, which is never called that."""
REASONS_MAX = 16
_QUESTION = re.compile(
    r"\? (\S+) (\S+) (\S+) ([0-9]{1,15}) (\S+) ([0-9]{1,9}(?:,[^ ,=]+=[0-9]{1,7})*) ([0-9]{1,9}) ([0-9]{1,5})"
)
_REASON = re.compile(r"([A-Z_]{1,32}) ([a-z-]{1,16}) ([0-9]{1,12}|-) ([0-9]{1,12}|-)")


class Because(StrEnum):
    """What keeps an item from being started by one Worker; the one to act upon first comes first."""

    STOPPING = "STOPPING"
    NOT_SERVED = "NOT_SERVED"
    KEPT_OUT = "KEPT_OUT"
    SET_ASIDE = "SET_ASIDE"
    TOO_WIDE = "TOO_WIDE"
    RESERVED = "RESERVED"
    QUOTA = "QUOTA"
    """Of slots, of its Mission or its account."""
    RATE = "RATE"
    """Of starts in a window of time, of its Mission or its account."""
    CAPACITY = "CAPACITY"
    RESOURCES = "RESOURCES"
    FAIR_SHARE = "FAIR_SHARE"
    QUEUED = "QUEUED"
    UNHEARD = "UNHEARD"
    NEXT = "NEXT"


class Level(StrEnum):
    """Whose share or quota it is: the item's own Mission, account or class; NONE where that is no question."""

    NONE = "-"
    MISSION = "mission"
    ACCOUNT = "account"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, and when a start is expected as far as it goes: seconds from now, coarse; None: nobody can say."""

    because: Because
    level: Level = Level.NONE
    from_s: int | None = None
    to_s: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Why does this item wait? With what the store knows of it, and how many Workers are asked."""

    nonce: str
    group: GroupId
    item: ItemId
    at_ms: int
    capability: Capability
    width: int
    ahead: int
    """Items of its own Group and capability that come before it."""
    asked: int
    resources: Resources = ()

    @classmethod
    def parse(cls, text: str, *, where: str) -> Question:
        """The question of an inbox's entry (`question.lua`); Corrupt, naming where it stood, for anything else."""
        found = _QUESTION.fullmatch(text)
        if found is None:
            raise Corrupt(f"{where}: {text[:200]!r} is no question")
        nonce, group, item, at_ms, capability, width, ahead, asked = found.groups()
        slots, resources = parse_capacity(width)
        target = (nonce, GroupId(group), ItemId(item), int(at_ms), Capability(capability))
        return cls(*target, slots, int(ahead), int(asked), resources)


@dataclass(frozen=True, slots=True)
class Answer:
    """What one Worker said, its reasons in order."""

    agent: AgentId
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of a question: how many Workers were asked, and who answered in time, by name."""

    asked: int = 0
    said: tuple[Answer, ...] = ()


def packed(reasons: Iterable[Reason]) -> str:
    """Reasons as text without a line break, for `parse_answer`."""

    def number(value: int | None) -> str:
        return "-" if value is None else str(value)

    return ",".join(f"{one.because} {one.level} {number(one.from_s)} {number(one.to_s)}" for one in reasons)


def parse_answer(entry: str, *, where: str) -> Answer:
    """The answer in an entry "agent reasons"; Corrupt, naming where it stood, for what no Worker of this version says."""
    agent, _, text = entry.partition(" ")
    reasons: list[Reason] = []
    for part in text.split(","):
        found = _REASON.fullmatch(part)
        if found is None or found[1] not in tuple(Because) or found[2] not in tuple(Level):
            raise Corrupt(f"{where}: {part[:200]!r} is no reason of a Worker of this version")
        from_s, to_s = (None if value == "-" else int(value) for value in found.groups()[2:])
        reasons.append(Reason(Because(found[1]), Level(found[2]), from_s, to_s))
    return Answer(AgentId(agent), tuple(reasons[:REASONS_MAX]))
