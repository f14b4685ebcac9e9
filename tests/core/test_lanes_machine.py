"""Lanes against a plain list: whatever is asked, frozen, repeated and answered, each operation goes out once, in its order."""

from __future__ import annotations

from collections import deque

import pytest
from builders import GROUP
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from treadle.shared.model import Capability, GroupId, ItemId, LeaseId
from treadle.shared.store import Fail, Operation, Save, Start, Submit, Take, Turn, payload_size
from treadle.shared.store.operations import OPERATIONS_MAX, TURN_BYTES_MAX
from treadle.worker.lanes import TAKES_KEPT, Lanes

PARTITIONS = 3
LEASE = LeaseId("l")
QUICK = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
DEEP = settings(max_examples=400, stateful_step_count=60, deadline=None)
partitions = st.integers(0, PARTITIONS - 1)
sizes = st.sampled_from([0, 10, TURN_BYTES_MAX // 3, TURN_BYTES_MAX // 2 + 1, TURN_BYTES_MAX])


class LanesMachine(RuleBasedStateMachine):
    """The model of a lane: what was asked and not sent, the turn that is under way, and how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[int] = Lanes(PARTITIONS)
        self.asked: list[deque[tuple[Operation, int]]] = [deque() for _ in range(PARTITIONS)]
        self.sent: dict[int, Turn] = {}
        self.tickets: dict[int, list[int | None]] = {}
        self.numbers = dict.fromkeys(range(PARTITIONS), 0)
        self.tokens = dict.fromkeys(range(PARTITIONS), "-")
        self.count = 0

    def make(self, kind: str, size: int) -> Operation:
        item, body = ItemId(f"i{self.count}"), bytes(size)
        match kind:
            case "start":
                return Start(GROUP, item, 1, Capability("index"), width=1 + self.count % 3)
            case "save":
                return Save(GROUP, item, 1, LEASE, 1, "d", body)
            case "fail":
                return Fail(GROUP, item, 1, LEASE, "d", body)
            case _:
                return Submit(GROUP, item, 1, LEASE, "d", body)

    @rule(
        partition=partitions,
        kind=st.sampled_from(["start", "save", "submit", "fail"]),
        size=sizes,
        times=st.sampled_from([1, 1, 1, 40]),
    )
    def ask(self, partition: int, kind: str, size: int, times: int) -> None:
        for _ in range(times):
            self.count += 1
            operation = self.make(kind, size)
            self.lanes.ask(partition, operation, self.count)
            self.asked[partition].append((operation, self.count))

    @rule(partition=partitions, hop=st.integers(0, 9))
    def wake(self, partition: int, hop: int) -> None:
        self.tokens[partition] = f"index m-1 {hop}"
        self.lanes.token(partition, self.tokens[partition])

    @rule(partition=partitions, takes=st.integers(0, 70), slots=st.integers(0, 9), cursors=st.sampled_from([0, 1, 300]))
    def freeze(self, partition: int, takes: int, slots: int, cursors: int) -> None:
        list_of = [Take(GROUP, Capability("index"), 1, number) for number in range(takes)]
        told = [(GroupId(f"g{number}"), 1) for number in range(cursors)]
        turns = self.lanes.freeze({partition: (list_of, slots)} if takes else {}, {partition: told})
        assert [turn.partition for turn in turns] == sorted(turn.partition for turn in turns)
        assert len({turn.partition for turn in turns}) == len(turns)
        for turn in turns:
            if turn.partition in self.sent:
                assert turn is self.sent[turn.partition], "byte for byte what was sent before"
            else:
                self.new(turn, list_of if turn.partition == partition else [])
        for number in range(PARTITIONS):
            idle = not self.asked[number] and not (number == partition and takes) and self.tokens[number] == "-"
            assert number in self.sent or idle, "what waits is sent"

    def new(self, turn: Turn, takes: list[Take]) -> None:
        lane, tickets = self.asked[turn.partition], list[int | None]()
        operations = deque(turn.operations)
        while operations and lane and operations[0] is lane[0][0]:
            operations.popleft()
            tickets.append(lane.popleft()[1])
        assert list(operations) == takes[: len(operations)], "then takes, from the first"
        tickets += [None] * len(operations)
        self.numbers[turn.partition] += 1
        assert turn.number == self.numbers[turn.partition]
        assert len(turn.operations) <= OPERATIONS_MAX
        assert len(turn.cursors) <= 256
        carried = [size for operation in turn.operations if (size := payload_size(operation))]
        assert sum(carried) <= TURN_BYTES_MAX or len(carried) == 1
        assert len(operations) >= min(len(takes), TAKES_KEPT), "takes keep room of their own"
        assert turn.token == self.tokens[turn.partition]
        self.tokens[turn.partition] = "-"
        self.sent[turn.partition], self.tickets[turn.partition] = turn, tickets

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.sent)))
        turn = self.sent.pop(partition)
        assert list(self.lanes.answered(turn)) == self.tickets.pop(partition)

    @rule()
    def abandon(self) -> None:
        """The session is over: everybody who asked and was not answered is told, once."""
        waiting = [ticket for lane in self.asked for _, ticket in lane]
        under_way = [ticket for tickets in self.tickets.values() for ticket in tickets if ticket is not None]
        assert sorted(self.lanes.abandon()) == sorted(waiting + under_way)
        for lane in self.asked:
            lane.clear()
        self.sent.clear()
        self.tickets.clear()

    @invariant()
    def it_knows_what_waits_and_what_it_is_about_to_start(self) -> None:
        assert self.lanes.is_idle is (not self.sent and not any(self.asked))
        starts = [operation for lane in self.asked for operation, _ in lane]
        starts += [operation for turn in self.sent.values() for operation in turn.operations]
        width = sum(operation.width for operation in starts if isinstance(operation, Start))
        assert self.lanes.reserved == width + sum(turn.slots for turn in self.sent.values())

    @invariant()
    def what_is_said_to_leave_leaves_with_the_next_turn(self) -> None:
        said = list(self.lanes.leaving())
        for partition, lane in enumerate(self.asked):
            ends = [operation for operation, _ in lane if operation in said]
            assert partition not in self.sent or not ends
            assert ends == [operation for operation, _ in lane if isinstance(operation, Submit | Fail)][: len(ends)]


def test_each_operation_goes_out_once_in_its_order_whatever_is_repeated() -> None:
    run_state_machine_as_test(LanesMachine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_operation_goes_out_once_in_its_order_whatever_is_repeated_for_long() -> None:
    run_state_machine_as_test(LanesMachine, settings=DEEP)
