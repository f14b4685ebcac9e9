"""Logs of a Group as the scripts might write them: legal by lifecycle's table, of any length, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from builders import AGENT, GROUP, NOW_MS, OTHER
from treadle.shared.model import Event, EventKind, GroupId, ItemId

K = EventKind


@dataclass
class _Life:
    name: str
    at: str = "nothing"
    epoch: int = 0
    number: int = 0
    checkpoint: int = 0
    owner: str = ""


def a_log(seed: int, length: int, *, group: GroupId = GROUP, alive: int = 20) -> list[Event]:
    """A log of just `length` Events, in which about `alive` items live at a time."""
    events: list[Event] = []
    for kind, item, by, data, payload in _told(Random(seed), alive):
        seq = len(events) + 1
        events.append(Event(group, 1, seq, kind, NOW_MS + seq, item, by, tuple(map(str, data)), payload))
        if seq == length:
            break
    return events


def entry_of(event: Event) -> tuple[bytes, dict[bytes, bytes]]:
    """The entry of a stream that holds an Event."""
    data = " ".join(event.data).encode() + (b"\n" + event.payload if event.payload else b"")
    fields = {
        b"t": str(event.at_ms).encode(),
        b"k": event.kind.value.encode(),
        b"i": (event.item or "").encode(),
        b"b": event.by.encode(),
        b"d": data,
    }
    return f"{event.seq}-0".encode(), fields


_Told = tuple[EventKind, ItemId | None, str, tuple[object, ...], bytes]


def _told(random: Random, alive: int) -> Iterator[_Told]:
    yield K.MISSION_CREATED, None, "ana", ("digest", "acme", "1", "standard", 0), b""
    lives: list[_Life] = []
    made = 0
    while True:
        if len(lives) < alive:
            lives.append(_Life(f"item-{made}"))
            made += 1
        life = random.choice(lives)
        item = ItemId(life.name)
        for kind, by, data, payload in _next(random, life):
            yield kind, item, by, data, payload
        if life.at == "over":
            lives.remove(life)


def _next(random: Random, life: _Life) -> Iterator[tuple[EventKind, str, tuple[object, ...], bytes]]:
    """What happens to an item next."""
    match life.at:
        case "nothing":
            yield K.AUTHORIZED, "ana", ("index", 1, 0), b""
            life.at = "open"
        case "open":
            yield K.OFFERED, "policy", ("index", "created", "-", 0), b""
            life.at = "offered"
        case "offered":
            life.epoch, life.at = life.epoch + 1, "queued"
            life.owner = f"{random.choice((AGENT, OTHER))}@7"
            yield K.ACCEPTED, life.owner, (life.epoch, NOW_MS, "all"), b""
        case "queued":
            life.number, life.at = life.number + 1, "active"
            yield K.STARTED, life.owner, (life.epoch, f"l-{life.name}-{life.number}", NOW_MS, life.number), b""
        case "failed":
            yield K.OFFERED, "policy", ("index", random.choice(("retry", "retried")), "-", 0), b""
            life.at = "offered"
        case _:
            yield from _end(random, life)


def _end(random: Random, life: _Life) -> Iterator[tuple[EventKind, str, tuple[object, ...], bytes]]:
    """How a run goes on: mostly it is submitted."""
    agent, _, session = life.owner.partition("@")
    how = random.choices(
        ("submit", "save", "word", "yield", "release", "lapse", "requeue", "fail", "cancel"),
        (9, 3, 1, 2, 1, 1, 1, 2, 1),
    )
    life.at = {
        "submit": "over",
        "save": "active",
        "word": "active",
        "yield": "queued",
        "requeue": "queued",
        "cancel": "over",
    }.get(how[0], "open")
    match how[0]:
        case "submit":
            yield K.SUBMITTED, life.owner, (life.epoch, f"d{life.number}", 9), b""
            yield K.RESULT_ACCEPTED, "policy", (life.epoch, "evidence"), b""
        case "save" | "yield":
            life.checkpoint += 1
            saved = (life.epoch, life.checkpoint, f"c{life.checkpoint}", 9)
            kind = K.PROGRESS_SAVED if how[0] == "save" else K.CHECKPOINTED
            yield kind, life.owner, saved if how[0] == "save" else (*saved, NOW_MS), b""
        case "word":
            yield K.PROGRESSED, life.owner, (life.epoch, f"phase-{life.number}", "-", 1, 2), b""
        case "release":
            yield K.RELEASED, life.owner, (life.epoch, "shutdown"), b""
        case "lapse":
            yield K.LAPSED, "timer", (life.epoch, agent, "lease", NOW_MS), b""
        case "requeue":
            yield K.REQUEUED, life.owner, (life.epoch, agent, session, "session", NOW_MS), b""
        case "fail":
            life.at = "failed"
            yield K.FAILED, life.owner, (life.epoch, "digest", random.choice((0, NOW_MS))), b"evidence\nof it"
        case _:
            yield K.CANCELLED, "ana", ("no-more",), b""
