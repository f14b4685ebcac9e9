"""The state of one Group as its Events tell it: the fold behind Snapshots, recovery, replay and verification. Pure.

    Projection(group).fold(event)         one Event, by the rows of lifecycle's table; Corrupt where there is none
    projection.pack() -> Projection.unpack(group, raw)      a Snapshot's body: schema version, digest, canonical form

The same Events give the same bytes, on every machine and however the fold was cut: Snapshot + later Events equal the whole
log (protocol R66, S13). What no Event tells is not in it: how far a lease was renewed, when an offer expires, what waits
for a dependency or a time. Nor are bodies: they stand with the items.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from . import codec
from .errors import Corrupt
from .lifecycle import ITEM_MOVES, MISSION_MOVES, Given
from .model import EVENT_FIELDS, INCARNATION, AgentId, Event, EventKind, GroupId, ItemState

SCHEMA = 1
"""Of a Snapshot's body; a reader refuses a newer one."""
SNAPSHOT_MAX = 256 << 20
FINISHED_MAX = 4_096
"""Items kept by name after they were verified or cancelled, the newest; of those before, the counts alone remain."""
_MAGIC = b"treadle-snapshot"


@dataclass(slots=True)
class Item:
    """One WorkItem that has not ended for good, or that failed and may be offered again."""

    state: str
    """An ItemState."""
    capability: str
    width: int
    owner: str = ""
    """The Agent that owns it now, '' for none."""
    session: int = 0
    ownership_epoch: int = 0
    lease_id: str = ""
    """Of the Execution Lease it runs under; '' while it does not run."""
    number: int = 0
    """How many leases it has had."""
    latest: int = 0
    """The number of its latest lease under this ownership; 0 before the first start."""
    start_by_ms: int = 0
    """While it is queued."""
    checkpoint: int = 0
    checkpoint_digest: str = ""
    failures: int = 0
    """Failed attempts since it was offered anew."""
    retry_ms: int = 0
    """Of a failed one: when it is offered again; 0 where it has failed for good."""
    held: str = ""
    """Why it is parked."""
    digest: str = ""
    """Of its result, once one is submitted."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What is left to say of an item that was verified or cancelled."""

    state: str
    ownership_epoch: int
    number: int
    digest: str
    """Of its result."""


class Projection:
    """One Group's state at a sequence. It is moved by `fold`, whole Events at a time: a refused one changes nothing."""

    def __init__(self, group: GroupId, incarnation: int = INCARNATION) -> None:
        self.group = group
        self.incarnation = incarnation
        self.through = 0
        """The sequence of the last Event folded."""
        self.mission: str = ""
        """A MissionState; '' before the first Event."""
        self.terms: tuple[str, ...] = ()
        """What the Mission was created with: digest, account, weight, class."""
        self.total = self.verified = self.failed = self.cancelled = 0
        self.items: dict[str, Item] = {}
        self.finished: OrderedDict[str, Finished] = OrderedDict()
        """In the order in which they ended."""

    def fold(self, event: Event) -> None:
        """Move the state by the next Event; Corrupt for a hole, another incarnation, or a step the table does not have."""
        if event.incarnation != self.incarnation:
            raise self._corrupt(event.seq, event.kind, f"is of incarnation {event.incarnation}, not {self.incarnation}")
        self._step(event.seq, event.kind.value, event.item or "", event.by, () if event.is_void else event.data)

    def fold_entries(self, entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        """The same for entries as a stream has them, without an Event made of each."""
        step, read, group = self._step, codec.read_entry, self.group
        for entry_id, entry in entries:
            step(*read(group, entry_id, entry))

    def held(self, agent: AgentId) -> dict[str, Item]:
        """The items that one Agent owns: its slice, from which its queues are rebuilt."""
        return {name: item for name, item in sorted(self.items.items()) if item.owner == agent}

    # --- the canonical form ---

    def canonical(self) -> bytes:
        """The whole state as bytes: equal for two projections exactly where these agree."""
        value = {
            "counts": [self.total, self.verified, self.failed, self.cancelled],
            "finished": [[name, *_values(item)] for name, item in self.finished.items()],
            "group": self.group,
            "incarnation": self.incarnation,
            "items": [[name, *_values(self.items[name])] for name in sorted(self.items)],
            "mission": [self.mission, *self.terms],
            "through": self.through,
        }
        return codec.pack(value, field="snapshot", limit=SNAPSHOT_MAX)

    def digest(self) -> str:
        return codec.digest(self.canonical())

    def pack(self) -> bytes:
        """A Snapshot's body: a line of schema version and digest, then the canonical form."""
        body = self.canonical()
        return b"%s %d %s\n" % (_MAGIC, SCHEMA, codec.digest(body).encode()) + body

    @classmethod
    def unpack(cls, group: GroupId, raw: bytes) -> Projection:
        """The projection of a Snapshot's body; Corrupt for one that was altered, of another Group, or of a newer schema."""
        what = f"group {group}: its Snapshot"
        head, _, body = raw.partition(b"\n")
        words = head.split(b" ")
        if len(words) != 3 or words[0] != _MAGIC or not words[1].isdigit() or not int(words[1]):
            raise Corrupt(f"{what} begins with {codec.shown(head)}, not with '{_MAGIC.decode()} VERSION DIGEST'")
        if int(words[1]) > SCHEMA:
            raise Corrupt(f"{what} has schema {int(words[1])}, this program reads up to {SCHEMA}; use a newer program")
        if codec.digest(body).encode() != words[2]:
            raise Corrupt(
                f"{what} of {len(body):,} bytes does not have the digest {codec.shown(words[2])}; it was altered"
            )
        return cls._read(group, codec.unpack(body, what=what, limit=SNAPSHOT_MAX), what)

    @classmethod
    def _read(cls, group: GroupId, value: Any, what: str) -> Projection:
        try:
            found = cls(group, value["incarnation"])
            if value["group"] != group:
                raise ValueError(f"it is of group {value['group']}")
            found.through = value["through"]
            found.mission, *terms = value["mission"]
            found.terms = tuple(terms)
            found.total, found.verified, found.failed, found.cancelled = value["counts"]
            found.items = {name: Item(*rest) for name, *rest in value["items"]}
            found.finished = OrderedDict((name, Finished(*rest)) for name, *rest in value["finished"])
        except (KeyError, TypeError, ValueError) as problem:
            raise Corrupt(f"{what} is not of schema {SCHEMA}: {problem!r}") from None
        return found

    # --- the steps ---

    def _step(self, seq: int, kind: str, name: str, by: str, data: Sequence[str]) -> None:
        if seq != self.through + 1:
            raise Corrupt(f"group {self.group}: sequence {self.through + 1} is missing, {seq} follows; halt this Group")
        try:
            if not data:  # it could not be read, and no state hangs on it
                if not self.mission:
                    raise ValueError("no transition: the Mission is nothing")
            elif name:
                self._move_item(kind, name, by, data)
            elif not self._move_mission(kind, data):
                raise ValueError(f"no transition: the Mission is {self.mission or 'nothing'}")
        except (ValueError, IndexError) as problem:
            about = f" of item {name}" if name else ""
            raise self._corrupt(seq, kind, f"{about}: {problem}") from None
        self.through = seq

    def _corrupt(self, seq: int, kind: str, what: str) -> Corrupt:
        return Corrupt(f"Event {self.group}.{self.incarnation}.{seq} ({kind}){what}; halt this Group")

    def _move_mission(self, kind: str, data: Sequence[str]) -> bool:
        row = _MISSIONS.get(kind)
        if row is None:  # it says something of the Group, not of its Mission's state
            return bool(self.mission)
        if self.mission not in row[0]:
            return False
        if kind == EventKind.MISSION_CREATED:
            self.terms = tuple(data[:4])
        self.mission = row[1]
        return True

    def _move_item(self, kind: str, name: str, by: str, data: Sequence[str]) -> None:
        item = self.items.get(name)
        rows = _OWNED if item is not None and item.owner else _FREE
        target = rows[kind].get(item.state if item else "")
        if target is None:
            before = item or self.finished.get(name)
            raise ValueError(f"no transition: it is {before.state if before else 'nothing'}")
        if item is None:
            self._authorize(name, target, data)
            return
        if kind in _CITES_EPOCH and int(data[0]) != item.ownership_epoch:
            raise ValueError(f"it cites Ownership Epoch {data[0][:20]}, current is {item.ownership_epoch}")
        step = _STEPS.get(kind)
        if step is not None:
            step(self, item, by, data)
        item.state = target
        if target in _ENDED:
            self._finish(name, item)
        elif kind == EventKind.EXPIRED:
            del self.items[name]

    def _authorize(self, name: str, target: str, data: Sequence[str]) -> None:
        # An item of a Mission that grows may come again under its id once its time was over.
        item = Item(target, data[0], int(data[1]))
        self.finished.pop(name, None)
        self.items[name] = item
        self.total += 1

    def _finish(self, name: str, item: Item) -> None:
        if item.state == ItemState.VERIFIED:
            self.verified += 1
        else:
            self.cancelled += 1
        del self.items[name]
        self.finished[name] = Finished(item.state, item.ownership_epoch, item.number, item.digest)
        if len(self.finished) > FINISHED_MAX:
            self.finished.popitem(last=False)


def _offered(projection: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    again = data[1] in ("retried", "asked")
    if item.state == ItemState.FAILED and not item.retry_ms:
        projection.failed -= 1
    if again:
        item.failures = 0
    _disown(item)
    item.held, item.retry_ms = "", 0


def _failed(projection: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    retry_ms = int(data[2])
    _disown(item)
    item.held, item.retry_ms = "", retry_ms
    if retry_ms:
        item.failures += 1
    else:
        projection.failed += 1


def _retries_ended(projection: Projection, item: Item, _by: str, _data: Sequence[str]) -> None:
    if not item.retry_ms:
        raise ValueError("it does not wait for another attempt")
    item.retry_ms = 0
    projection.failed += 1


def _accepted(_: Projection, item: Item, by: str, data: Sequence[str]) -> None:
    epoch, start_by_ms, (agent, session) = int(data[0]), int(data[1]), _runtime(by)
    if epoch <= item.ownership_epoch:
        raise ValueError(f"Ownership Epoch {epoch} was given after {item.ownership_epoch}")
    item.owner, item.session, item.ownership_epoch, item.start_by_ms = agent, session, epoch, start_by_ms


def _started(_: Projection, item: Item, by: str, data: Sequence[str]) -> None:
    number, (agent, session) = int(data[3]), _runtime(by)
    if agent != item.owner or number != item.number + 1:
        raise ValueError(f"{agent} starts run {number} of what {item.owner} owns after {item.number} runs")
    item.session, item.lease_id, item.number, item.start_by_ms = session, data[1], number, 0
    item.latest = number


def _saved(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    item.checkpoint, item.checkpoint_digest = int(data[1]), data[2]


def _checkpointed(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    number, start_by_ms = int(data[1]), int(data[4])
    item.checkpoint, item.checkpoint_digest = number, data[2]
    item.lease_id, item.start_by_ms = "", start_by_ms


def _blocked(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    item.checkpoint, item.checkpoint_digest, item.lease_id = int(data[1]), data[2], ""


def _unblocked(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    item.start_by_ms = int(data[1])


def _requeued(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    session, start_by_ms = int(data[2]), int(data[4])
    if data[1] != item.owner:
        raise ValueError(f"{data[1]} is given what {item.owner} owns")
    item.session, item.start_by_ms, item.lease_id = session, start_by_ms, ""


def _returned(_: Projection, item: Item, _by: str, _data: Sequence[str]) -> None:
    _disown(item)


def _submitted(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    item.digest = data[1]
    _disown(item)


def _parked(_: Projection, item: Item, _by: str, data: Sequence[str]) -> None:
    item.held = data[0]


def _approved(_: Projection, item: Item, _by: str, _data: Sequence[str]) -> None:
    item.held = ""


def _disown(item: Item) -> None:
    item.owner = item.lease_id = ""
    item.session = item.start_by_ms = item.latest = 0


def _runtime(by: str) -> tuple[str, int]:
    """The Agent and the session of who caused an Event."""
    agent, at, session = by.rpartition("@")
    if not at or not session.isdecimal():
        raise ValueError(f"by {by[:80]!r}, which is no session")
    return agent, int(session)


_STEPS: dict[str, Callable[[Projection, Item, str, Sequence[str]], None]] = {
    EventKind.OFFERED.value: _offered,
    EventKind.ACCEPTED.value: _accepted,
    EventKind.STARTED.value: _started,
    EventKind.PROGRESS_SAVED.value: _saved,
    EventKind.CHECKPOINTED.value: _checkpointed,
    EventKind.BLOCKED.value: _blocked,
    EventKind.UNBLOCKED.value: _unblocked,
    EventKind.RELEASED.value: _returned,
    EventKind.LAPSED.value: _returned,
    EventKind.REQUEUED.value: _requeued,
    EventKind.SUBMITTED.value: _submitted,
    EventKind.FAILED.value: _failed,
    EventKind.RETRIES_ENDED.value: _retries_ended,
    EventKind.PARKED.value: _parked,
    EventKind.EXECUTION_APPROVED.value: _approved,
}
"""What a kind changes besides the state; a step checks everything before it writes."""
_CITES_EPOCH = frozenset(
    kind.value for kind, names in EVENT_FIELDS.items() if names[:1] == ("epoch",) and kind is not EventKind.ACCEPTED
)
_ENDED = frozenset({ItemState.VERIFIED.value, ItemState.CANCELLED.value})


def _targets(but: Given) -> dict[str, dict[str, str]]:
    """By kind and state, where a kind leads, by all rows but those for what is `but`."""
    found: dict[str, dict[str, str]] = {kind.value: {} for kind in EventKind}
    for move in ITEM_MOVES:
        if move.given is not but:
            states = (source.value if source else "" for source in move.sources)
            found[move.cause.value].update(dict.fromkeys(states, move.target.value))
    return found


_OWNED, _FREE = _targets(Given.OWNERLESS), _targets(Given.OWNED)
"""The rows for an item with an owner, and for one without."""
_MISSIONS = {
    kind.value: (frozenset(source.value if source else "" for source in sources), target.value)
    for kind, (sources, target) in MISSION_MOVES.items()
}
"""The rows of the table by plain text: an enum's hash costs more than the rest of a step."""
_NAMES = {kind: tuple(field.name for field in fields(kind)) for kind in (Item, Finished)}


def _values(record: Item | Finished) -> list[Any]:
    """The fields in their order; `dataclasses.astuple` copies each of them deeply."""
    return [getattr(record, name) for name in _NAMES[type(record)]]
