"""What the server holds, read key by key with plain commands: the checker's own picture, made by none of the store's rooms.

Only the names of keys are shared with the house (`keys`), and the form of a log's entries (`codec.read_event`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.shared import codec
from treadle.shared.model import Event, GroupId
from treadle.shared.store import keys

Fields = dict[str, str]


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")


def _fields(raw: dict[bytes, bytes]) -> Fields:
    return {_text(name): _text(value) for name, value in raw.items()}


@dataclass
class GroupDump:
    """One Group's own keys, and its fields in the partition's hashes."""

    group: GroupId
    record: list[str]
    """State, weight, account, class, incarnation, form."""
    seq: int
    events: list[Event]
    mission: Fields
    items: dict[str, Fields]
    results: dict[str, bytes] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return self.record[0]


@dataclass
class PartitionDump:
    """One partition's own keys."""

    number: int
    base: str
    meta: Fields
    due: dict[str, int]
    halted: list[str]
    held: dict[str, set[str]]
    take: dict[str, set[str]]
    directory: dict[str, set[str]]
    tombs: dict[str, set[str]]
    usage: dict[str, tuple[int, ...]]
    tally: Fields
    sessions: Fields
    members: dict[str, Fields]
    """By Agent: a record a Group."""
    minted: Fields
    live: Fields
    caps: Fields
    lanes: Fields
    wakes: dict[str, list[str]]
    groups: dict[str, GroupDump] = field(default_factory=dict)


Kept = Mapping[tuple[str, str], Sequence[Event]]
"""(Base, Group) -> its log as it was before any of it was trimmed."""


def read_partition(redis: Any, prefix: str, number: int, partitions: int, kept: Kept) -> PartitionDump:
    """Reads all of one partition."""
    base = keys.base(prefix, number, partitions)

    def hash_of(name: str) -> Fields:
        return _fields(redis.hgetall(base + name))

    def sets_of(kind: str) -> dict[str, set[str]]:
        found = {}
        for raw in redis.keys(f"{base}{kind}:*"):
            key = _text(raw)
            found[key.removeprefix(f"{base}{kind}:")] = {_text(one) for one in redis.zrange(key, 0, -1)}
        return found

    part = PartitionDump(
        number=number,
        base=base,
        meta=hash_of("@meta"),
        due={_text(one): int(score) for one, score in redis.zrange(base + "@due", 0, -1, withscores=True)},
        halted=[_text(one) for one in redis.zrange(base + "@halted", 0, -1)],
        held=sets_of("@held"),
        take=sets_of("@take"),
        directory=sets_of("@dir"),
        tombs=sets_of("@tomb"),
        usage={node: tuple(map(int, packed.split())) for node, packed in hash_of("@usage").items()},
        tally=hash_of("@tally"),
        sessions=hash_of("@sessions"),
        members={
            _text(raw).removeprefix(f"{base}@joined:"): _fields(redis.hgetall(raw))
            for raw in redis.keys(f"{base}@joined:*")
        },
        minted=hash_of("@epochs"),
        live=hash_of("@live"),
        caps=hash_of("@caps"),
        lanes=hash_of("@lanes"),
        wakes={
            _text(raw).removeprefix(f"{base}@wake:"): [_text(one) for one in redis.lrange(raw, 0, -1)]
            for raw in redis.keys(f"{base}@wake:*")
        },
    )
    sequences = hash_of("@seqs")
    for name, record in hash_of("@groups").items():
        part.groups[name] = _read_group(redis, base, GroupId(name), record, int(sequences.get(name, "0")), kept)
    return part


def read_log(redis: Any, base: str, group: GroupId, kept: Kept) -> list[Event]:
    """A Group's whole log, with what was trimmed of it, entry by entry; holes are the checker's to find."""
    there = [
        codec.read_event(group, 1, entry_id, fields)
        for entry_id, fields in redis.xrange(keys.log(base, group), min="-", max="+")
    ]
    first = there[0].seq if there else 1
    return [*(event for event in kept.get((base, group), ()) if event.seq < first), *there]


def _read_group(redis: Any, base: str, group: GroupId, record: str, seq: int, kept: Kept) -> GroupDump:
    names = [_text(raw) for raw in redis.lrange(keys.items(base, group), 0, -1)]
    items = {name: _fields(redis.hgetall(keys.item(base, group, name))) for name in names}
    found = GroupDump(
        group,
        record.split(),
        seq,
        read_log(redis, base, group, kept),
        _fields(redis.hgetall(keys.mission(base, group))),
        items,
    )
    for name, item in items.items():
        if "out" in item:
            item["out"] = " ".join(map(_text, redis.lrange(f"{base}{group}:out:{name}", 0, -1)))
        if item["st"] == "verified":
            long = redis.get(keys.body(base, group, name, "rs")) if "rsx" in item else None
            found.results[name] = item["rs"].encode("latin-1") if long is None else long
    return found
