"""A Worker's queues: per Group, the WorkItems this Agent owns now, as a fold of Events (protocol R30, C10).

They are a projection and nothing else: the same queues come out of the replies and doorbells that concern this Agent
as out of a replay of the whole log. So they hold only what the Agent's own Events tell: what happened to an item
before it was accepted here (its capability, earlier Checkpoints) stands in the Grant, not here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.shared.errors import Corrupt
from treadle.shared.lifecycle import is_ownerless, next_state
from treadle.shared.model import AgentId, Event, EventKind, GroupId, ItemId, ItemState, LeaseId
from treadle.shared.projection import Projection


@dataclass(frozen=True, slots=True)
class Held:
    """One WorkItem this Agent owns: queued, active or blocked."""

    group: GroupId
    item: ItemId
    state: ItemState
    ownership_epoch: int
    start_by_ms: int
    """While it is queued."""
    number: int = 0
    """The number of the latest lease under this ownership; 0 before the first start."""
    lease_id: LeaseId | None = None
    session_epoch: int = 0
    """The session that holds the lease; 0 while queued."""


_NAMES_ITS_AGENT = frozenset({EventKind.LAPSED, EventKind.REQUEUED})
"""Kinds whose data names the Agent concerned: others cause them."""
_BY_ITS_OWNER = frozenset(
    {
        EventKind.STARTED,
        EventKind.SCHEDULE_DISCLOSED,
        EventKind.PROGRESSED,
        EventKind.PROGRESS_SAVED,
        EventKind.PREEMPTION_REQUESTED,
        EventKind.CHECKPOINTED,
        EventKind.BLOCKED,
        EventKind.RELEASED,
        EventKind.SUBMITTED,
    }
)
ENDS_A_RUN = frozenset(
    {EventKind.LAPSED, EventKind.REQUEUED, EventKind.CANCELLED, EventKind.FAILED, EventKind.ACCEPTED}
)
"""Kinds that may end a run from outside of it."""
_KEPT = frozenset({ItemState.QUEUED, ItemState.ACTIVE, ItemState.BLOCKED})
_END_AN_OWNERSHIP = frozenset({EventKind.RELEASED, EventKind.LAPSED})
"""Whatever state the item is left in: a blocked one stays blocked, and is nobody's."""


class Queues:
    """The queues of one Agent's runtime. `fold` takes each Event once, in its Group's order (the Inbox's duty)."""

    def __init__(self, agent: AgentId, session_epoch: int) -> None:
        self.agent = agent
        self.session_epoch = session_epoch
        self._groups: dict[GroupId, dict[ItemId, Held]] = {}
        self._newest_session = session_epoch

    @property
    def is_replaced(self) -> bool:
        """Whether the log shows a newer session of this Agent: then this runtime is fenced (R42)."""
        return self._newest_session > self.session_epoch

    def fold(self, event: Event) -> None:
        """Move what this Agent owns by one Event; Corrupt, with nothing changed, where the table has no such move."""
        if event.item is None:
            return
        agent, session = self._cause(event)
        held = self._groups.get(event.group, {}).get(event.item)
        if held is not None:
            self._change(held, event, agent, session)
        elif agent == self.agent:
            if event.kind is EventKind.ACCEPTED:
                self._keep(self._accepted(event))
            elif event.kind in _BY_ITS_OWNER or event.kind in _NAMES_ITS_AGENT:
                raise _corrupt(event, f"Agent {self.agent} does not own the item")
        if agent == self.agent:
            self._newest_session = max(self._newest_session, session)

    def queued(self, group: GroupId) -> tuple[Held, ...]:
        """What is owned and waits for its start, in the order it was accepted."""
        return tuple(held for held in self._groups.get(group, {}).values() if held.state is ItemState.QUEUED)

    def active(self) -> tuple[Held, ...]:
        """What this session runs. An item still active under an older session is not this one's to run."""
        return tuple(
            held
            for items in self._groups.values()
            for held in items.values()
            if held.state is ItemState.ACTIVE and held.session_epoch == self.session_epoch
        )

    def get(self, group: GroupId, item: ItemId) -> Held | None:
        """The item as held now; None where this Agent does not own it."""
        return self._groups.get(group, {}).get(item)

    def owns(self, group: GroupId) -> bool:
        """Whether something of this Group is owned."""
        return group in self._groups

    def groups(self) -> tuple[GroupId, ...]:
        """The Groups in which something is owned, sorted."""
        return tuple(sorted(self._groups))

    def drop_group(self, group: GroupId) -> None:
        """Forget a Group that ended or is to be replayed from its start."""
        self._groups.pop(group, None)

    def resume(self, snapshot: Projection) -> None:
        """Take this Agent's slice of a Group's Snapshot in place of the Events below it (protocol R66)."""
        self.drop_group(snapshot.group)
        for name, item in snapshot.held(self.agent).items():
            self._newest_session = max(self._newest_session, item.session)
            runs = item.state == ItemState.ACTIVE
            held = Held(
                group=snapshot.group,
                item=ItemId(name),
                state=ItemState(item.state),
                ownership_epoch=item.ownership_epoch,
                start_by_ms=item.start_by_ms,
                number=item.latest,
                lease_id=LeaseId(item.lease_id) if runs else None,
                session_epoch=item.session if runs else 0,
            )
            self._keep(held)

    def canonical(self) -> tuple[tuple[GroupId, tuple[Held, ...]], ...]:
        """The whole projection as one value: equal for two folds that agree."""
        return tuple(
            (group, tuple(items[name] for name in sorted(items))) for group, items in sorted(self._groups.items())
        )

    # --- the steps ---

    def _cause(self, event: Event) -> tuple[AgentId, int]:
        """The Agent an Event is about, and the session it names ('' and 0 for none)."""
        by, at, session = event.by.rpartition("@")
        if event.kind in _NAMES_ITS_AGENT:
            number = _number(event, "session") if event.kind is EventKind.REQUEUED else 0
            return AgentId(_text(event, "agent")), number
        if not at:
            return AgentId(""), 0
        if not session.isdecimal():
            raise _corrupt(event, f"by {event.by!r} names no session")
        return AgentId(by), int(session)

    def _accepted(self, event: Event) -> Held:
        # The offer before it need not concern this Agent, so it is taken as made: the store checked it.
        return Held(
            group=event.group,
            item=ItemId(event.item or ""),
            state=next_state(ItemState.OFFERED, EventKind.ACCEPTED),
            ownership_epoch=_number(event, "epoch"),
            start_by_ms=_number(event, "start_by_ms"),
        )

    def _change(self, held: Held, event: Event, agent: AgentId, session: int) -> None:
        kind = event.kind
        if kind is EventKind.ACCEPTED and agent != self.agent:
            epoch = _number(event, "epoch")
            if epoch <= held.ownership_epoch:
                raise _corrupt(event, f"Ownership Epoch {epoch} was given after {held.ownership_epoch}")
            self._drop(held)  # A higher Ownership Epoch ends this one, however the news came (R43).
            return
        if kind is EventKind.FAILED and agent and agent != self.agent:
            raise _corrupt(event, f"it is about Agent {agent}, but {self.agent} owns the item")
        if kind is EventKind.FAILED and _number(event, "epoch") != held.ownership_epoch:
            raise _corrupt(event, f"it cites Ownership Epoch {event.get('epoch')}, current is {held.ownership_epoch}")
        try:
            state = next_state(held.state, kind, ownerless=is_ownerless(event))
        except ValueError as error:
            raise _corrupt(event, str(error)) from None
        if (kind in _BY_ITS_OWNER or kind in _NAMES_ITS_AGENT) and agent != self.agent:
            raise _corrupt(event, f"it is about Agent {agent or event.by}, but {self.agent} owns the item")
        if kind in _BY_ITS_OWNER or kind in _NAMES_ITS_AGENT:
            epoch = _number(event, "epoch")
            if epoch != held.ownership_epoch:
                raise _corrupt(event, f"it cites Ownership Epoch {epoch}, current is {held.ownership_epoch}")
        if state not in _KEPT or kind in _END_AN_OWNERSHIP:
            self._drop(held)
            return
        match kind:
            case EventKind.STARTED:
                lease, number = LeaseId(_text(event, "lease")), _number(event, "number")
                held = replace(held, state=state, start_by_ms=0, number=number, lease_id=lease, session_epoch=session)
            case EventKind.CHECKPOINTED | EventKind.REQUEUED | EventKind.UNBLOCKED:
                held = replace(held, state=state, start_by_ms=_number(event, "start_by_ms"))
            case _:
                held = replace(held, state=state)
        if state is not ItemState.ACTIVE:
            held = replace(held, lease_id=None, session_epoch=0)
        self._keep(held)

    def _keep(self, held: Held) -> None:
        self._groups.setdefault(held.group, {})[held.item] = held

    def _drop(self, held: Held) -> None:
        items = self._groups[held.group]
        del items[held.item]
        if not items:
            del self._groups[held.group]


def _text(event: Event, name: str) -> str:
    try:
        return event.get(name)
    except KeyError:
        raise _corrupt(event, f"has no {name!r}") from None


def _number(event: Event, name: str) -> int:
    text = _text(event, name)
    if not text.isdecimal():
        raise _corrupt(event, f"{name} is {text[:40]!r}, not a number")
    return int(text)


def _corrupt(event: Event, what: str) -> Corrupt:
    return Corrupt(
        f"Event {event.event_id} ({event.kind}) of item {event.item}: {what}; the Group's log must be read again"
    )
