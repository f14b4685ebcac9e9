"""What runs ask becomes frozen turns: bounded, repeated byte for byte, and never all there is room for."""

from __future__ import annotations

from builders import GROUP
from treadle.shared.model import Capability, ItemId, LeaseId
from treadle.shared.store import Save, Start, Submit, Take
from treadle.shared.store.operations import OPERATIONS_MAX, TURN_BYTES_MAX
from treadle.worker.lanes import TAKES_KEPT, Lanes


def a_save(number: int) -> Save:
    return Save(GROUP, ItemId(f"i{number}"), 1, LeaseId("l"), 1, "d", b"state")


def some_takes(number: int) -> list[Take]:
    return [Take(GROUP, Capability("index"), 1, 0) for _ in range(number)]


def test_an_unanswered_turn_is_sent_again_as_it_was() -> None:
    lanes: Lanes[str] = Lanes(1)
    lanes.ask(0, a_save(1), "one")
    (first,) = lanes.freeze({}, {})
    lanes.ask(0, a_save(2), "two")
    assert lanes.freeze({}, {}) == [first]
    assert lanes.answered(first) == ("one",)
    (second,) = lanes.freeze({}, {})
    assert (second.number, second.operations) == (2, (a_save(2),))


def test_what_runs_ask_leaves_room_for_takes() -> None:
    """Else a Worker whose handlers save all the time would never ask for work with the slots it has free."""
    lanes: Lanes[int] = Lanes(1)
    for number in range(3 * OPERATIONS_MAX):
        lanes.ask(0, a_save(number), number)
    (turn,) = lanes.freeze({0: (some_takes(40), 40)}, {})
    assert len(turn.operations) == OPERATIONS_MAX
    assert sum(isinstance(operation, Take) for operation in turn.operations) == TAKES_KEPT


def test_a_turn_carries_no_more_payload_than_its_bound_but_always_one_operation() -> None:
    lanes: Lanes[int] = Lanes(1)
    for number in range(3):
        lanes.ask(
            0, Submit(GROUP, ItemId(f"i{number}"), 1, LeaseId("l"), "d", b"x" * (TURN_BYTES_MAX // 2 + 1)), number
        )
    sizes = []
    while turns := lanes.freeze({}, {}):
        sizes.append(len(turns[0].operations))
        lanes.answered(turns[0])
    assert sizes == [1, 1, 1]


def test_what_is_given_up_is_given_back_to_those_who_asked() -> None:
    lanes: Lanes[str] = Lanes(2)
    lanes.ask(0, a_save(1), "sent")
    lanes.freeze({}, {})
    lanes.ask(0, a_save(2), "waiting")
    lanes.ask(1, a_save(3), "elsewhere")
    assert sorted(lanes.abandon()) == ["elsewhere", "sent", "waiting"]
    assert lanes.is_idle


GPU = (("gpu", 2),)


def test_what_is_free_besides_slots_goes_to_one_turn_and_to_each_partition_in_its_turn() -> None:
    """Two calls that may both use it would use it twice; one that is always first would keep it from the others."""
    lanes: Lanes[str] = Lanes(3)
    given = []
    for _ in range(4):
        turns = lanes.freeze({0: (some_takes(1), 1), 2: (some_takes(1), 1)}, {}, GPU)
        given.append([turn.partition for turn in turns if turn.resources == GPU])
        assert list(lanes.filled) in ([GPU, ()], [(), GPU])
        for turn in turns:
            lanes.answered(turn)
    assert given == [[0], [2], [0], [2]]
    lanes.ask(1, Start(GROUP, ItemId("a"), 1, Capability("index"), resources=GPU), "start")
    assert list(lanes.filled) == [GPU], "a start fills it as well"
    (turn,) = lanes.freeze({}, {}, GPU)
    assert turn.resources == ()


def test_whose_turn_is_to_be_provided_gets_what_is_free_and_nobody_while_it_is_unanswered() -> None:
    lanes: Lanes[str] = Lanes(3)
    takes = {0: (some_takes(1), 1), 2: (some_takes(1), 1)}
    first, second = lanes.freeze(takes, {}, GPU, provided=2)
    assert (first.resources, second.resources) == ((), GPU)
    lanes.answered(first)
    again, same = lanes.freeze(takes, {}, GPU, provided=2)
    assert (again.resources, same) == ((), second), "it is kept for that one"
