"""From what runs ask to frozen turns: one lane a partition, one call in flight, repeated byte for byte (design.md 3.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from treadle.shared.model import GroupId
from treadle.shared.resources import Resources
from treadle.shared.store import Block, Fail, Operation, Start, Submit, Turn, payload_size
from treadle.shared.store.operations import OPERATIONS_MAX, TURN_BYTES_MAX, Take

TAKES_KEPT = 16
Takes = dict[int, tuple[list[Take], int]]
"""By partition, the list to take from and the total width to fill."""
TICKET = TypeVar("TICKET")


@dataclass(slots=True)
class _Lane(Generic[TICKET]):
    number: int = 0
    waiting: deque[tuple[Operation, TICKET]] = field(default_factory=deque)
    frozen: Turn | None = None
    tickets: tuple[TICKET | None, ...] = ()
    token: str = "-"


class Lanes(Generic[TICKET]):
    """The lanes of one session. A ticket is whatever the caller wants back with an operation's outcome."""

    def __init__(self, partitions: int) -> None:
        self._lanes: dict[int, _Lane[TICKET]] = {partition: _Lane() for partition in range(partitions)}
        self._provided = -1
        """The partition whose takes were given what is free of resources last."""

    def ask(self, partition: int, operation: Operation, ticket: TICKET) -> None:
        """Queues an operation for the partition's next turn."""
        self._lanes[partition].waiting.append((operation, ticket))

    def token(self, partition: int, token: str) -> None:
        """Remembers a wake token, to be handed on with the next turn where that gets nothing."""
        self._lanes[partition].token = token

    @property
    def is_idle(self) -> bool:
        """Whether no operation waits and no turn is unanswered."""
        return not any(lane.frozen or lane.waiting for lane in self._lanes.values())

    def awaits(self, partition: int) -> bool:
        """Whether the partition's last turn is unanswered: it is repeated before anything else is asked there."""
        return self._lanes[partition].frozen is not None

    @property
    def reserved(self) -> int:
        """Width that is about to be started: what unanswered turns may take, and every Start that was asked for."""
        width = 0
        for lane in self._lanes.values():
            asked = [operation for operation, _ in lane.waiting]
            if lane.frozen is not None:
                width += lane.frozen.slots
                asked += lane.frozen.operations
            width += sum(operation.width for operation in asked if isinstance(operation, Start))
        return width

    @property
    def filled(self) -> Iterator[Resources]:
        """Resources that are about to be in use, as `reserved` are slots."""
        for lane in self._lanes.values():
            asked = [operation for operation, _ in lane.waiting]
            if lane.frozen is not None:
                yield lane.frozen.resources
                asked += lane.frozen.operations
            yield from (operation.resources for operation in asked if isinstance(operation, Start))

    def leaving(self) -> Iterator[Submit | Fail | Block]:
        """The ends of runs that the next turns carry for certain."""
        for lane in self._lanes.values():
            size = 0
            if lane.frozen is None:
                for operation, _ in islice(lane.waiting, OPERATIONS_MAX - TAKES_KEPT):
                    size += payload_size(operation)
                    if size > TURN_BYTES_MAX:
                        break
                    if isinstance(operation, Submit | Fail | Block):
                        yield operation

    def freeze(
        self,
        takes: Takes,
        cursors: dict[int, list[tuple[GroupId, int]]],
        resources: Resources = (),
        provided: int | None = None,
    ) -> list[Turn]:
        """The turns to send now: unanswered ones as they were, new ones from what waits and from `takes`.

        What is free of `resources` goes to one partition that is taken from, the one that is to be `provided` or each in its
        turn: what two were given could be filled twice.
        """
        turns: list[Turn] = []
        if provided in takes:
            self._provided = provided
        elif resources and (open_ := [one for one in takes if self._lanes[one].frozen is None]):
            self._provided = min(open_, key=lambda one: (one <= self._provided, one))
        for partition, lane in self._lanes.items():
            if lane.frozen is None:
                has = resources if partition == self._provided and partition in takes else ()
                self._compose(partition, lane, *takes.get(partition, ([], 0)), cursors.get(partition, []), has)
            if lane.frozen is not None:
                turns.append(lane.frozen)
        return turns

    def _compose(
        self,
        partition: int,
        lane: _Lane[TICKET],
        takes: Sequence[Take],
        slots: int,
        cursors: list[tuple[GroupId, int]],
        resources: Resources,
    ) -> None:
        operations: list[Operation] = []
        tickets: list[TICKET | None] = []
        size = 0
        # Takes keep room of their own, or what runs ask would keep a Worker with free slots from asking for work.
        most = OPERATIONS_MAX - min(len(takes), TAKES_KEPT)
        while lane.waiting and len(operations) < most:
            operation, ticket = lane.waiting[0]
            size += payload_size(operation)
            if operations and size > TURN_BYTES_MAX:
                break
            lane.waiting.popleft()
            operations.append(operation)
            tickets.append(ticket)
        room = OPERATIONS_MAX - len(operations)
        operations += takes[:room]
        tickets += [None] * len(takes[:room])
        if not operations and lane.token == "-":
            return
        lane.number += 1
        lane.frozen = Turn(
            partition,
            lane.number,
            tuple(operations),
            slots=slots,
            token=lane.token,
            cursors=tuple(cursors[:256]),
            resources=resources,
        )
        lane.tickets = tuple(tickets)
        lane.token = "-"

    def answered(self, turn: Turn) -> tuple[TICKET | None, ...]:
        """Takes a turn as answered; gives its tickets, one an operation."""
        lane = self._lanes[turn.partition]
        assert lane.frozen is turn, "a lane has one call in flight"
        lane.frozen = None
        return lane.tickets

    def abandon(self) -> list[TICKET]:
        """Gives up all that is unanswered or waits: the session is over."""
        tickets: list[TICKET] = []
        for lane in self._lanes.values():
            if lane.frozen is not None:
                tickets += [ticket for ticket in lane.tickets if ticket is not None]
            tickets += [ticket for _, ticket in lane.waiting]
            lane.waiting.clear()
            lane.frozen = None
        return tickets
