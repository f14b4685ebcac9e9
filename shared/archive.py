"""One ended Mission as lines of an archive: written, read back, verified. Pure.

Each line is a JSON object with one key that says what it is; `zcat FILE` shows them:

    header     format, schema, Mission, Group, incarnation, first and last sequence
    mission    its record
    snapshot   where its log was trimmed: what its Events before folded to; in parts
    event      an Event as its log had it
    body       inputs, contract, result or failure of the next item: msgpack bytes, in base64, under their digest
    item       a WorkItem's record, with the digests of its bodies
    end        how many of each there were, and the SHA-256 of all lines before

The same Mission gives the same bytes. Nothing that was altered, cut, or written by a newer program is read (Corrupt).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from . import codec
from .errors import Corrupt, TreadleError
from .model import Event, GroupId, ItemId
from .projection import SNAPSHOT_MAX

FORMAT = "treadle-archive"
SCHEMA = 1
LINE_MAX = 4 << 20
"""Bytes of a line: a body of 1 MiB in base64, and room."""
CHUNK_BYTES = 1 << 20
"""Of a Snapshot, in a line."""
BODIES = ("in", "ct", "rs", "fl")
"""Of an item: inputs, contract, result, failure. Checkpoints are of no use after its end, and left out."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an archive is of."""

    mission: str
    group: GroupId
    incarnation: int
    created_ms: int
    first: int
    through: int
    """The first and the last sequence in it."""


@dataclass(frozen=True, slots=True)
class Record:
    """The Mission's own fields, as the store had them."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The body of the Group's Snapshot, from which a trimmed log goes on (`projection.Projection`)."""

    group: GroupId
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Body:
    digest: str
    raw: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ArchivedItem:
    """A WorkItem's fields as the store had them, and its bodies by their names in `BODIES`."""

    item: ItemId
    fields: Mapping[str, str]
    bodies: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class End:
    events: int
    items: int
    digest: str
    """The SHA-256 of all lines before."""


Part = Header | Record | Snapshot | Event | ArchivedItem | End


class Scribe:
    """Writes the lines of one archive; the caller gives the parts in their order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.through = self.events = self.items = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of all lines so far."""
        return self._hash.hexdigest()

    def header(self, header: Header) -> bytes:
        self.through = header.through
        said = {name: getattr(header, name) for name in Header.__dataclass_fields__}
        return self._line("header", {"format": FORMAT, "schema": SCHEMA} | said)

    def mission(self, fields: Mapping[bytes, bytes]) -> bytes:
        return self._line("mission", _texts(fields))

    def snapshot(self, raw: bytes) -> Iterator[bytes]:
        """A Snapshot's body, in as many lines as it takes."""
        for start in range(0, len(raw), CHUNK_BYTES):
            yield self._line("snapshot", {"of": len(raw), "bytes": _base64(raw[start : start + CHUNK_BYTES])})

    def event(self, entry_id: bytes, fields: Mapping[bytes, bytes]) -> bytes:
        """An entry of the log, as it is."""
        self.events += 1
        data, newline, payload = fields[b"d"].partition(b"\n")
        said = _texts({**fields, b"d": data}) | {"id": entry_id.decode()}
        if newline:
            said["payload"] = _base64(payload)
        return self._line("event", said)

    def item(self, item: ItemId, fields: Mapping[bytes, bytes], bodies: Mapping[str, bytes]) -> Iterator[bytes]:
        """An item's record behind its bodies."""
        self.items += 1
        digests = {name: codec.digest(raw) for name, raw in bodies.items()}
        for name, raw in bodies.items():
            yield self._line("body", {"digest": digests[name], "bytes": _base64(raw)})
        yield self._line("item", {"id": item, "fields": _texts(fields), "bodies": digests})

    def end(self) -> bytes:
        return self._line("end", {"events": self.events, "items": self.items, "sha256": self.digest})

    def _line(self, what: str, said: Mapping[str, object]) -> bytes:
        line = json.dumps({what: said}, separators=(",", ":"), sort_keys=True).encode() + b"\n"
        if what != "end":
            self._hash.update(line)
        return line


def read(lines: Iterable[bytes], *, what: str) -> Iterator[Part]:
    """The parts of an archive, each verified before it is given; Corrupt, naming line and sequence, for any other bytes.

    Only behind the last one, the End, all of it is known to be sound.
    """
    reader = _Reader(what)
    for line in lines:
        part = reader.take(line)
        if part is not None:
            yield part
    reader.close()


class _Reader:
    def __init__(self, what: str) -> None:
        self._what = what
        self._hash = hashlib.sha256()
        self._line = 0
        self._header: Header | None = None
        self._has_record = False
        self._seq = self._events = self._items = 0
        self._bodies: dict[str, bytes] = {}
        self._snapshot = bytearray()
        self._wanted = 0
        """Bytes of the Snapshot, of which some may still be missing."""
        self._ended = False

    def take(self, line: bytes) -> Part | None:
        self._line += 1
        if self._ended:
            raise self._corrupt("something stands behind its end")
        if len(line) > LINE_MAX:
            raise self._corrupt(f"longer than {LINE_MAX:,} bytes")
        if not line.endswith(b"\n"):
            raise self._corrupt(f"it is cut: {self._reached()}")
        try:
            what, said = self._parsed(line)
            part = self._part(what, said)
        except TreadleError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, binascii.Error) as problem:
            raise self._corrupt(f"not what is written in an archive: {codec.shown(problem)}") from None
        if what != "end":
            self._hash.update(line)
        return part

    def close(self) -> None:
        if not self._ended:
            raise self._corrupt(f"it is cut: {self._reached()}")

    def _parsed(self, line: bytes) -> tuple[str, dict[str, Any]]:
        said = json.loads(line)
        ((what, part),) = cast("dict[str, Any]", said).items()
        if (what == "header") is (self._line != 1):
            raise self._corrupt(f"{what!r} stands where its header should, or again: this is no archive")
        return what, dict(part)

    def _part(self, what: str, said: dict[str, Any]) -> Part | None:
        match what:
            case "header":
                return self._take_header(said)
            case "mission" if not self._has_record:
                self._has_record = True
                return Record({str(name): str(value) for name, value in said.items()})
            case "snapshot" if self._has_record and self._events == self._items == 0:
                return self._take_snapshot(said)
            case _ if len(self._snapshot) < self._wanted:
                raise self._corrupt(f"its Snapshot ends after {len(self._snapshot):,} of {self._wanted:,} bytes")
            case "event" if self._items == 0 and self._has_record:
                return self._take_event(said)
            case "body":
                self._take_body(said)
                return None
            case "item":
                return self._take_item(said)
            case "end":
                return self._take_end(said)
            case _:
                raise self._corrupt(f"{what!r} may not stand here")

    def _take_header(self, said: dict[str, Any]) -> Header:
        if said.pop("format") != FORMAT:
            raise self._corrupt("it is no archive of treadle")
        schema = said.pop("schema")
        if schema != SCHEMA:
            raise self._corrupt(f"it has schema {schema}, this program reads {SCHEMA}; use the program that wrote it")
        self._header = header = Header(**said)
        self._seq = header.first - 1
        return header

    def _take_snapshot(self, said: dict[str, Any]) -> Snapshot | None:
        assert self._header is not None
        chunk, self._wanted = base64.b64decode(said["bytes"], validate=True), int(said["of"])
        if not (chunk and len(self._snapshot) + len(chunk) <= self._wanted <= SNAPSHOT_MAX):
            raise self._corrupt(f"{len(self._snapshot) + len(chunk):,} of {self._wanted:,} bytes of a Snapshot")
        self._snapshot += chunk
        whole = len(self._snapshot) == self._wanted
        return Snapshot(self._header.group, bytes(self._snapshot)) if whole else None

    def _take_event(self, said: dict[str, Any]) -> Event:
        header = self._header
        assert header is not None
        payload = said.pop("payload", None)
        entry_id = str(said.pop("id")).encode()
        fields = _raw(said)
        if payload is not None:
            fields[b"d"] += b"\n" + base64.b64decode(payload, validate=True)
        try:
            event = codec.read_event(header.group, header.incarnation, entry_id, fields)
        except Corrupt as problem:
            raise self._corrupt(str(problem)) from None
        if event.seq != self._seq + 1:
            raise self._corrupt(f"sequence {self._seq + 1} is missing, {event.seq} follows")
        self._seq = event.seq
        self._events += 1
        return event

    def _take_body(self, said: dict[str, Any]) -> None:
        raw, digest = base64.b64decode(said["bytes"], validate=True), said["digest"]
        if codec.digest(raw) != digest:
            raise self._corrupt(f"a body has the digest {codec.digest(raw)}, not {codec.shown(digest)}: it was altered")
        if len(self._bodies) == len(BODIES):
            raise self._corrupt("more bodies than an item has")
        self._bodies[digest] = raw

    def _take_item(self, said: dict[str, Any]) -> ArchivedItem:
        bodies = {str(name): self._bodies[digest] for name, digest in said["bodies"].items()}
        self._bodies.clear()
        self._items += 1
        fields = {str(name): str(value) for name, value in said["fields"].items()}
        return ArchivedItem(ItemId(str(said["id"])), fields, bodies)

    def _take_end(self, said: dict[str, Any]) -> End:
        header, digest = self._header, self._hash.hexdigest()
        assert header is not None
        if said["sha256"] != digest:
            raise self._corrupt(
                f"the lines before have the SHA-256 {digest}, not {codec.shown(said['sha256'])}: altered"
            )
        if (said["events"], said["items"], header.through) != (self._events, self._items, self._seq):
            raise self._corrupt(f"it counts other Events or items than stand before it: {self._reached()}")
        self._ended = True
        return End(self._events, self._items, digest)

    def _reached(self) -> str:
        return f"it ends after sequence {self._seq} and {self._items:,} items"

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{self._what}: line {self._line}: {why}")


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "surrogateescape") for name, value in fields.items()}


def _raw(said: Mapping[str, Any]) -> dict[bytes, bytes]:
    return {name.encode(): str(value).encode("utf-8", "surrogateescape") for name, value in said.items()}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
