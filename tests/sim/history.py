"""A Group's log read as a history, Event by Event: what each item went through, and every sentence it breaks.

It shares the table of states with the house (`lifecycle.next_state`) and nothing else: no fold, no script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from treadle.shared.lifecycle import GROUP_CALLS, MISSION_MOVES, TERMINAL_ITEMS, is_ownerless, next_state
from treadle.shared.model import Event, EventKind, ItemState, MissionState

K = EventKind
S = ItemState

Renewals = Mapping[tuple[str, str, str], list[tuple[int, int]]]
"""(Group, item, lease) -> (when, until when) of each renewal that was granted."""

_BY_THE_OWNER = frozenset(
    {*(K.STARTED, K.PROGRESSED, K.PROGRESS_SAVED, K.CHECKPOINTED), *(K.BLOCKED, K.SUBMITTED, K.FAILED, K.RELEASED)}
)
_NEEDS_A_LIVE_LEASE = frozenset({K.PROGRESSED, K.PROGRESS_SAVED, K.CHECKPOINTED, K.BLOCKED, K.SUBMITTED, K.FAILED})


@dataclass
class Lease:
    """One run: from its start to the moment its charge ends."""

    item: str
    lease: str
    agent: str
    session: int
    epoch: int
    number: int
    start_seq: int
    start_ms: int
    expires_ms: int
    saved: str
    """The digest of the Checkpoint it begins with; '' for none."""
    end_seq: int = 0
    end_ms: int = 0
    end: EventKind | None = None
    digest: str = ""
    """Of the result it submitted."""


@dataclass
class Item:
    """One WorkItem as its log has it so far."""

    state: ItemState | None = None
    owner: str = ""
    session: int = 0
    epoch: int = 0
    number: int = 0
    start_by_ms: int = 0
    blocked_until_ms: int = 0
    offered_ms: int = 0
    checkpoint: int = 0
    saved: str = ""
    lease: Lease | None = None
    submitted_seq: int = 0
    reason: bytes = b""
    retry_ms: int = 0
    """When a failed item is offered again; 0 where it is not."""


@dataclass
class History:
    """One Group's log, folded. `faults` says what was wrong with it."""

    group: str
    waits: Mapping[str, tuple[str, ...]]
    """What each item waits for."""
    start_by_s: Mapping[str, int]
    renewed: Renewals
    quarantines: tuple[tuple[int, int], ...] = ()
    """Of its partition: nothing is accepted, started or lapses in one."""
    items: dict[str, Item] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    mission: MissionState | None = None
    faults: list[str] = field(default_factory=list)
    sessions: dict[str, int] = field(default_factory=dict)
    concerns: dict[str, int] = field(default_factory=dict)
    """Agent -> the last sequence that is about an item of its own."""
    ends: list[Lease] = field(default_factory=list)
    """Runs in the order in which they ended."""

    def expiry_ms(self, lease: Lease, at_ms: int) -> int:
        """Until when a lease was granted, as of a moment."""
        renewals = self.renewed.get((self.group, lease.item, lease.lease), [])
        return max([lease.expires_ms, *(until for when, until in renewals if when <= at_ms)])

    def start_by_ms(self, item: str, by_ms: int) -> set[int]:
        """What a start-by deadline may mean: one that fell into a quarantine is given again in full after it."""
        again_ms = 1000 * self.start_by_s[item]
        return {by_ms} | {until + again_ms for since, until in self.quarantines if since < by_ms <= until}

    def wrong(self, event: Event, text: str) -> None:
        self.faults.append(f"{self.group} sequence {event.seq}, {event.kind} of {event.item}: {text}")


def read(history: History, events: Iterable[Event]) -> History:
    """Folds a log into a new history."""
    before = 0
    at_ms = 0
    for event in events:
        if event.seq != before + 1:
            history.wrong(event, f"sequence {before + 1} is missing")
        if event.at_ms < at_ms:
            history.wrong(event, "is of an earlier time than the one before it")
        before, at_ms = event.seq, event.at_ms
        if event.item is None:
            _mission(history, event)
        else:
            _item(history, event)
    return history


def _mission(history: History, event: Event) -> None:
    if event.kind in GROUP_CALLS:
        return
    sources, target = MISSION_MOVES[event.kind]
    if history.mission not in sources:
        history.wrong(event, f"the Mission is {history.mission}")
    history.mission = target


def _item(history: History, event: Event) -> None:
    item = history.items.setdefault(str(event.item), Item())
    try:
        state = next_state(item.state, event.kind, ownerless=is_ownerless(event))
    except ValueError as error:
        history.wrong(event, str(error))
        return
    _by_whom(history, item, event)
    if event.kind in (K.ACCEPTED, K.STARTED, K.LAPSED):
        for since, until in history.quarantines:
            if since < event.at_ms < until:
                history.wrong(event, f"in the quarantine from {since} until {until}")
    _MOVES.get(event.kind, _nothing)(history, item, event)
    if event.kind is K.OFFERED:
        missing = [
            other
            for other in history.waits[str(event.item)]
            if history.items.get(other, Item()).state is not S.VERIFIED
        ]
        if missing:
            history.wrong(event, f"it waits for {missing}")
        if item.state is S.FAILED and not 0 < item.retry_ms <= event.at_ms:
            history.wrong(event, f"it is not to be tried again before {item.retry_ms or 'ever'}")
        item.offered_ms = item.offered_ms or event.at_ms
    if state is not S.ACTIVE:
        item.lease = None
    loosened = event.kind in (K.RELEASED, K.LAPSED)
    if state not in (S.QUEUED, S.ACTIVE, S.BLOCKED, S.SUBMITTED) or loosened:
        item.owner = ""
    item.state = state
    if state in TERMINAL_ITEMS and item.epoch == 0 and state is not S.CANCELLED and "@" in event.by:
        history.wrong(event, "nobody ever owned it")


def _by_whom(history: History, item: Item, event: Event) -> None:
    """Ownership, session and lease of what a Worker did."""
    agent, at, session = event.by.rpartition("@")
    if event.kind is K.RESULT_ACCEPTED:
        history.concerns[item.owner] = event.seq
    if not at or event.kind not in (*_BY_THE_OWNER, K.ACCEPTED, K.REQUEUED):
        return
    history.concerns[agent] = event.seq
    number = int(session)
    if number < history.sessions.get(agent, 0):
        history.wrong(event, f"session {number} of {agent} after its session {history.sessions[agent]} (S8)")
    history.sessions[agent] = max(number, history.sessions.get(agent, 0))
    if event.kind not in _BY_THE_OWNER:
        return
    by_the_next = item.state is S.BLOCKED and agent == item.owner and number > item.session
    if (agent, number) != (item.owner, item.session) and not by_the_next:
        history.wrong(event, f"by {event.by}, but {item.owner}@{item.session} owns it (S1, S4)")
    if int(event.get("epoch")) != item.epoch:
        history.wrong(event, f"at Ownership Epoch {event.get('epoch')}, current is {item.epoch} (S4)")
    if event.kind in _NEEDS_A_LIVE_LEASE:
        lease = item.lease
        if lease is None:
            history.wrong(event, "without a lease (S7)")
        elif event.at_ms >= history.expiry_ms(lease, event.at_ms):
            history.wrong(event, f"its lease {lease.lease} was over at {history.expiry_ms(lease, event.at_ms)} (S4)")


def _accepted(history: History, item: Item, event: Event) -> None:
    agent, _, session = event.by.rpartition("@")
    epoch = int(event.get("epoch"))
    if epoch != item.epoch + 1:
        history.wrong(event, f"Ownership Epoch {epoch} after {item.epoch} (S1)")
    item.owner, item.session, item.epoch = agent, int(session), epoch
    item.start_by_ms = int(event.get("start_by_ms"))
    if item.start_by_ms != event.at_ms + 1000 * history.start_by_s[str(event.item)]:
        history.wrong(event, f"its start-by is {item.start_by_ms}")


def _started(history: History, item: Item, event: Event) -> None:
    number, lease = int(event.get("number")), event.get("lease")
    if number != item.number + 1:
        history.wrong(event, f"lease number {number} after {item.number} (S2)")
    if any(other.lease == lease for other in history.leases):
        history.wrong(event, f"Lease ID {lease} was given before (S2)")
    live = [
        other for other in history.leases if other.item == event.item and (not other.end or other.end_ms > event.at_ms)
    ]
    if live:
        history.wrong(event, f"lease {live[0].lease} is live: {live[0].start_ms}..{live[0].end_ms or ''} (S1)")
    if event.at_ms >= max(history.start_by_ms(str(event.item), item.start_by_ms)):
        history.wrong(event, f"its start-by was {item.start_by_ms}")
    item.number = number
    item.lease = Lease(
        str(event.item),
        lease,
        item.owner,
        item.session,
        item.epoch,
        number,
        event.seq,
        event.at_ms,
        int(event.get("expires_ms")),
        item.saved,
    )
    history.leases.append(item.lease)


def _end(history: History, item: Item, event: Event, at_ms: int) -> None:
    if item.lease is not None:
        item.lease.end, item.lease.end_seq, item.lease.end_ms = event.kind, event.seq, at_ms
        history.ends.append(item.lease)


def _over(history: History, item: Item, event: Event) -> None:
    """Ends a run now, or when its lease ended, whichever was first."""
    at_ms = event.at_ms
    if item.lease is not None:
        at_ms = min(at_ms, history.expiry_ms(item.lease, at_ms))
    _end(history, item, event, at_ms)


def _saved(history: History, item: Item, event: Event) -> None:
    number = int(event.get("number"))
    if number != item.checkpoint + 1 and (number, event.get("digest")) != (item.checkpoint, item.saved):
        history.wrong(event, f"Checkpoint {number} after {item.checkpoint}")
    item.checkpoint, item.saved = number, event.get("digest")


def _checkpointed(history: History, item: Item, event: Event) -> None:
    _saved(history, item, event)
    _over(history, item, event)
    item.start_by_ms = int(event.get("start_by_ms"))


def _blocked(history: History, item: Item, event: Event) -> None:
    _saved(history, item, event)
    _over(history, item, event)
    item.blocked_until_ms = int(event.get("expires_ms"))


def _unblocked(history: History, item: Item, event: Event) -> None:
    """It goes on with its owner while the blocked lease holds, else it is anybody's."""
    start_by_ms = int(event.get("start_by_ms"))
    if bool(start_by_ms) is not bool(item.owner):
        history.wrong(event, f"start-by {start_by_ms}, owner {item.owner or 'nobody'}")
    if item.owner and event.at_ms >= item.blocked_until_ms:
        history.wrong(event, f"its blocked lease was over at {item.blocked_until_ms}")
    if int(event.get("epoch")) != item.epoch:
        history.wrong(event, f"at Ownership Epoch {event.get('epoch')}, current is {item.epoch}")
    item.start_by_ms = start_by_ms


def _lapsed(history: History, item: Item, event: Event) -> None:
    agent, at_ms, what = event.get("agent"), int(event.get("at_ms")), event.get("what")
    history.concerns[agent] = event.seq
    if agent != item.owner or int(event.get("epoch")) != item.epoch:
        history.wrong(event, f"of {agent}, but {item.owner} owns it")
    if what == "blocked" and item.state is S.BLOCKED:
        if event.at_ms < at_ms or at_ms > item.blocked_until_ms:
            history.wrong(event, f"said to be over at {at_ms}, it was granted until {item.blocked_until_ms}")
        return
    if what == "lease" and item.lease is not None:
        due = {history.expiry_ms(item.lease, event.at_ms)}
    else:
        due = history.start_by_ms(str(event.item), item.start_by_ms)
        if (what == "lease") or item.state is not S.QUEUED:
            history.wrong(event, f"{what} of an item that is {item.state}")
    if at_ms not in due or event.at_ms < at_ms:
        history.wrong(event, f"{what} said to be over at {at_ms}, it was granted until {sorted(due)}")
    _end(history, item, event, at_ms)


def _requeued(history: History, item: Item, event: Event) -> None:
    agent, session = event.get("agent"), int(event.get("session"))
    history.concerns[agent] = event.seq
    if agent != item.owner or session <= item.session or event.by != f"{agent}@{session}":
        history.wrong(event, f"for {agent}@{session}, but {item.owner}@{item.session} owns it")
    if int(event.get("epoch")) != item.epoch:
        history.wrong(event, f"at Ownership Epoch {event.get('epoch')}, current is {item.epoch}")
    _over(history, item, event)
    item.session = session
    item.start_by_ms = event.at_ms + 1000 * history.start_by_s[str(event.item)]


def _submitted(history: History, item: Item, event: Event) -> None:
    if item.lease is not None:
        item.lease.digest = event.get("digest")
    item.submitted_seq = event.seq
    _end(history, item, event, event.at_ms)


def _verified(history: History, item: Item, event: Event) -> None:
    if event.seq != item.submitted_seq + 1 or int(event.get("epoch")) != item.epoch:
        history.wrong(event, "does not follow its submission")


def _failed(history: History, item: Item, event: Event) -> None:
    item.reason, item.retry_ms = event.payload, int(event.get("retry_ms"))
    _over(history, item, event)


def _tried_no_more(history: History, item: Item, event: Event) -> None:
    if item.retry_ms == 0:
        history.wrong(event, "it was not to be tried again anyway")
    item.retry_ms = 0


def _nothing(history: History, item: Item, event: Event) -> None:
    """The table of states says all there is to say."""


_MOVES: Mapping[EventKind, Callable[[History, Item, Event], None]] = {
    K.ACCEPTED: _accepted,
    K.STARTED: _started,
    K.PROGRESS_SAVED: _saved,
    K.CHECKPOINTED: _checkpointed,
    K.RELEASED: _over,
    K.LAPSED: _lapsed,
    K.REQUEUED: _requeued,
    K.SUBMITTED: _submitted,
    K.RESULT_ACCEPTED: _verified,
    K.FAILED: _failed,
    K.RETRIES_ENDED: _tried_no_more,
    K.CANCELLED: _over,
    K.BLOCKED: _blocked,
    K.UNBLOCKED: _unblocked,
}
