"""Marks that are planted in each slot, and the search for them in everything that is another slot's (S17)."""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from treadle.shared.redaction import forms

OBJECTS_MAX = 200_000
KINDS = ("inputs", "credential", "budget", "checkpoint", "effect", "result")


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of the scene: a Mission and an item, and the marks that are its own."""

    mission: str
    item: str

    @property
    def name(self) -> str:
        return f"{self.mission}/{self.item}"

    def mark(self, kind: str) -> str:
        return f"{kind}.of.{self.mission}.{self.item}.7f3q"

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(self.mark(kind) for kind in KINDS)

    @property
    def secret(self) -> str:
        return self.mark("credential")

    @property
    def capability(self) -> str:
        return f"taint.{self.item}"

    @property
    def inputs(self) -> dict[str, str]:
        return {kind: self.mark(kind) for kind in KINDS if kind != "credential"}


SLOTS = tuple(Slot(mission, item) for mission in ("acme", "beta") for item in ("loop", "thread"))


def reachable(root: object) -> Iterator[object]:
    """All that can be reached from an object by attributes, items and closures.

    Not through what the whole process shares, and any code reaches by an import: modules, classes, the globals of
    functions, loggers.
    """
    shared = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, ModuleType)}
    waiting, seen = [root], {id(root)}
    while waiting:
        one = waiting.pop()
        yield one
        assert len(seen) < OBJECTS_MAX, "it reaches everything there is"
        for other in _referents(one):
            if id(other) not in seen and id(other) not in shared and not isinstance(other, _SHARED):
                seen.add(id(other))
                waiting.append(other)


_SHARED = (ModuleType, type, logging.Logger)


def _referents(one: object) -> list[object]:
    if isinstance(one, FunctionType):
        return [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
    return gc.get_referents(one)


def texts(root: object) -> list[str]:
    """The texts among all that can be reached from an object, bytes as texts too."""
    return [text for one in reachable(root) if (text := _text(one))]


def _text(one: object) -> str:
    if isinstance(one, bytes | bytearray):
        return one.decode("latin-1")
    return one if isinstance(one, str) else ""


def found(marks: Iterable[str], where: Iterable[str]) -> list[str]:
    """The marks that stand in any of the texts, in any form of them."""
    whole = "\n".join(where)
    return [mark for mark in marks if any(form in whole for form in forms(mark))]


MARK = re.compile(r"\w+\.of\.(\w+)\.(\w+)\.7f3q")


def strangers(slot: str, where: Iterable[str]) -> list[str]:
    """The marks of other slots than MISSION/ITEM that stand in any of the texts, by their pattern."""
    return sorted({match[0] for text in where for match in MARK.finditer(text) if "/".join(match.groups()) != slot})


def everything() -> Iterator[str]:
    """Every text that anything in this process refers to, whether the context leads there or not."""
    for one in gc.get_objects():
        for other in gc.get_referents(one):
            if isinstance(other, str | bytes):
                yield _text(other)


def dumped(every: Any) -> dict[str, str]:
    """All that a store holds, read by a client of it: the text of each value, by its key."""
    reads: dict[bytes, Any] = {
        b"string": every.get,
        b"hash": every.hgetall,
        b"list": lambda key: every.lrange(key, 0, -1),
        b"set": every.smembers,
        b"zset": lambda key: every.zrange(key, 0, -1, withscores=True),
        b"stream": every.xrange,
    }
    return {key.decode(): "\n".join(texts(reads[every.type(key)](key))) for key in every.keys("*")}


@dataclass(slots=True)
class Seen:
    """All that was seen of a scene."""

    reached: dict[str, list[str]] = field(default_factory=dict)
    """By slot: the texts that its context led to, while all slots were at work."""
    environment: dict[str, list[str]] = field(default_factory=dict)
    """By slot: what it saw of the environment, and of processes that it started."""
    lines: list[str] = field(default_factory=list)
    """Of logs, and of what a Worker wrote."""
    store: Mapping[str, str] = field(default_factory=dict)
    """By key."""


def leaks(seen: Seen) -> list[str]:
    """What stands where it has no business, each with the place; nothing where slots isolate."""
    said: list[str] = []
    secrets = [slot.secret for slot in SLOTS]
    for slot in SLOTS:
        others = [mark for other in SLOTS if other is not slot for mark in other.marks]
        assert found(slot.marks, seen.reached[slot.name]) == list(slot.marks), (
            f"the walk from {slot.name} finds its own"
        )
        said += [
            f"{mark} is reached from the context of {slot.name}" for mark in found(others, seen.reached[slot.name])
        ]
        own = [line for line in seen.lines if slot.name in line]
        assert own, f"the log says something of {slot.name}"
        said += [f"{mark} is in a line of {slot.name}" for mark in found(others, own)]
        said += [f"{mark} is in the environment of {slot.name}" for mark in found(secrets, seen.environment[slot.name])]
        keys = {key: text for key, text in seen.store.items() if re.search(rf"\b{slot.mission}:\w+:{slot.item}$", key)}
        assert keys, f"the store holds {slot.name}"
        said += [f"{mark} is in a key of {slot.name}" for mark in found(others, keys.values())]
    said += [f"{mark} is in a log" for mark in found(secrets, seen.lines)]
    said += [f"{mark} is in {key}" for key, text in seen.store.items() for mark in found(secrets, [text])]
    return said
