"""Pause and resume: flags in the partitions that accepting and starting look at (design.md 5, 'Pause').

What is paused is neither accepted nor started anywhere once the command has returned; what runs goes on, saves and ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import Corrupt, Misuse
from ..names import check_capability, name_of, token
from . import keys
from .store import Store

_FIELDS = {"account": "a", "capability": "c", "mission": "g"}
KINDS = {letter: kind for kind, letter in _FIELDS.items()}


@dataclass(frozen=True, slots=True)
class Pause:
    """One thing that is paused: `what` as it was asked for, by whom, since when in the store's time."""

    what: str
    actor: str
    since_ms: int


async def pause(store: Store, what: str, *, actor: str) -> bool:
    """Keeps new work of `what` from being accepted and started, everywhere, until it is resumed; False: it was paused.

    `what` is `all`, `account:NAME`, `capability:NAME` or `mission:ID`. Refused (GROUP_NOT_FOUND) for a Mission that is not
    in the store. Repeat it where it raises Unavailable: some partitions may have it and others not.
    """
    return await _set(store, "pause", what, actor)


async def resume(store: Store, what: str, *, actor: str) -> bool:
    """Takes back a pause of just this `what` and wakes Workers for what may be taken again; False: it was not paused."""
    return await _set(store, "resume", what, actor)


async def pauses(store: Store) -> list[Pause]:
    """All that is paused, in the order of its words; what stands in one partition only, is not everywhere yet, too."""
    found: dict[str, Pause] = {}
    for partition in range(store.partitions):
        key = keys.pause(store.base(partition))
        for field, value in (await store.run(_read, key)).items():
            one = _parse(field.decode(), value.decode(), where=key)
            known = found.get(one.what)
            if known is None or one.since_ms < known.since_ms:
                found[one.what] = one
    return [found[what] for what in sorted(found)]


async def paused(store: Store) -> list[str]:
    """What is paused, as `pause` takes it, sorted."""
    return [one.what for one in await pauses(store)]


def _flag(what: str) -> tuple[str, str]:
    """The field of a flag, and the Group whose partition alone needs it ('' for every partition)."""
    if what == "all":
        return "all", ""
    kind, colon, name = what.partition(":")
    if not colon or kind not in _FIELDS:
        raise Misuse(f"what: {what[:80]!r}; use 'all', 'account:NAME', 'capability:NAME' or 'mission:ID'")
    if kind == "capability":
        return f"c:{check_capability(name, field='capability')}", ""
    named = token(name, field=kind)
    return f"{_FIELDS[kind]}:{named}", named if kind == "mission" else ""


async def _set(store: Store, verb: str, what: str, actor: str) -> bool:
    flag, group = _flag(what)
    by = token(actor, field="actor")
    pending = dict.fromkeys([store.partition_of(group)] if group else range(store.partitions), "-")
    changed = False
    while pending:
        calls = [("pause", p, (store.replid, verb, flag, by, after)) for p, after in pending.items()]
        answers = await store.call_all(calls)
        again: dict[int, str] = {}
        for partition, answer in zip(pending, answers, strict=True):
            more, _, place = answer[1].decode().partition(" ")
            if more == "more":
                again[partition] = place
            changed = changed or answer[2] == b"1"
        pending = again
    return changed


async def _read(client: Any, key: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = await client.hgetall(key)
    return found


def _parse(field: str, value: str, *, where: str) -> Pause:
    letter, _, name = field.partition(":")
    actor, _, since_ms = value.rpartition(" ")
    if (field != "all" and letter not in KINDS) or not actor or not since_ms.isdecimal():
        raise Corrupt(f"{where}: {field[:80]!r} = {value[:80]!r} is no pause")
    return Pause("all" if field == "all" else f"{KINDS[letter]}:{name_of(name)}", name_of(actor), int(since_ms))
