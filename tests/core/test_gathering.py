"""Resources are kept free for an item that needs several of one, as slots are for a wide one (scheduler.md, rule 8)."""

from __future__ import annotations

from builders import AGENT, CAPABILITY, NOW_MS, a_usage, an_entry
from core.test_tenure import ENVELOPE
from treadle.shared.model import DirectoryEntry, GroupId, ItemId
from treadle.shared.resources import Resources
from treadle.shared.store import Outcome, Take, Turn, TurnReply
from treadle.worker.core.nodes import Leaf
from treadle.worker.core.reservations import Besides, Reservation, Wide, behind, gathers, slots_for, still_first
from treadle.worker.core.schedule import Plan, View, plan
from treadle.worker.core.tree import Ready
from treadle.worker.taking import Taking

A, B, C, P = "a-many", "b-one", "c-one", "p-plain"
ONE: Resources = (("gpu", 1),)
TWO: Resources = (("gpu", 2),)


def an_item(
    group: str, needs: str = "", *, width: int = 1, used_ms: int = 0, partition: int = 0, takeable: int = 1
) -> DirectoryEntry:
    head = "k:" + group[0] + (f"*{width}" if width > 1 else "") + (f"&{needs}" if needs else "")
    usage = a_usage(entry=1, entry_ms=NOW_MS, served=True, typical_ms=1_000, used_ms=used_ms)
    return an_entry(group, takeable, head=head, usage=usage, partition=partition)


def of_two(width: int = 1, takeable: int = 1) -> DirectoryEntry:
    return an_item(A, "gpu=2", width=width, takeable=takeable)


def ready_of(*entries: DirectoryEntry) -> Ready:
    ready = Ready(AGENT, [CAPABILITY])
    ready.begin(NOW_MS)
    ready.update(entries, NOW_MS)
    return ready


def planned(
    ready: Ready,
    free: int,
    spare: Resources,
    *,
    unused: Resources | None = None,
    kept: Reservation | None = None,
    has: Resources = TWO,
) -> Plan:
    besides = Besides(has, spare if unused is None else unused, spare)
    return plan(View(ready, free, slots=4, kept=kept, besides=besides), NOW_MS)


def taken(made: Plan) -> list[tuple[str, int]]:
    return [(take.group, take.most) for take in made.takes if not take.fallback]


def wide(width: int = 1) -> Wide:
    return Wide(0, GroupId(A), CAPABILITY, ItemId("a"), width, TWO)


STREAM = (an_item(B, "gpu=1", used_ms=5_000, takeable=9), an_item(P, used_ms=6_000, takeable=9))


def test_where_it_fits_it_is_taken_and_its_partition_gets_what_is_free() -> None:
    made = planned(ready_of(an_item(P), replace_partition(of_two(), 3)), 4, TWO)
    assert dict(taken(made)) == {A: 1, P: 1}
    assert (made.spare, made.provided, made.wide) == (TWO, 3, None)


def replace_partition(entry: DirectoryEntry, partition: int) -> DirectoryEntry:
    return an_entry(entry.group, entry.takeable, head=entry.head, usage=entry.usage, partition=partition)


def test_whose_turn_it_is_and_who_lacks_one_of_two_is_waited_for_and_others_get_none_of_it() -> None:
    made = planned(ready_of(of_two(), *STREAM), 3, ONE)
    assert made.wide == wide()
    assert (made.spare, made.provided) == ((), None), "what is free of it is kept"
    assert taken(made) == [(B, 2), (P, 1)], "of B what stands behind its first one, if that needs none"


def test_what_comes_before_it_is_taken_first_and_it_is_waited_for_in_the_same_decision() -> None:
    first = an_item(B, "gpu=1", takeable=9)
    made = planned(ready_of(first, an_item(A, "gpu=2", used_ms=500)), 3, TWO)
    assert (B, 1) in taken(made)
    assert made.wide == wide()
    assert made.spare == ONE, "the first one's; the other is kept"


def test_while_it_is_waited_for_all_its_slots_are_kept_but_the_one_that_comes_with_what_is_missing() -> None:
    kept = Reservation(wide(3), NOW_MS)
    made = planned(ready_of(of_two(3), *STREAM), 4, ONE, kept=kept)
    assert sum(most for _, most in taken(made)) == 2
    assert made.spare == ()
    assert slots_for(wide(3), ONE) == 2
    assert slots_for(wide(3), TWO) == 3


def test_where_its_slots_are_missing_as_well_all_of_them_are_kept() -> None:
    made = planned(ready_of(of_two(4), *STREAM), 2, ONE, kept=Reservation(wide(4), NOW_MS))
    assert (taken(made), made.spare) == ([], ())


def test_once_it_fits_it_is_taken_before_all_others() -> None:
    late = an_item(A, "gpu=2", used_ms=90_000)
    made = planned(ready_of(late, *STREAM), 3, TWO, kept=Reservation(wide(), NOW_MS))
    assert taken(made)[0] == (A, 1)
    assert (made.spare, made.provided) == (TWO, 0)


def test_what_only_an_unanswered_turn_may_fill_is_asked_for_again_after_it() -> None:
    made = planned(ready_of(of_two()), 3, (), unused=TWO)
    assert (made.takes, made.wide) == ((), None)


def test_a_single_one_is_kept_for_nobody_and_what_stands_behind_goes_on() -> None:
    made = planned(ready_of(an_item(B, "gpu=1", takeable=3)), 4, ())
    assert made.wide is None
    assert taken(made) == [(B, 2)], "the first one is passed over by the store"
    assert (gathers(()), gathers(ONE), gathers(TWO), gathers((("gpu", 1), ("license-x", 1)))) == (
        *(False, False),
        *(True, True),
    )


def test_what_this_worker_never_has_is_not_waited_for() -> None:
    made = planned(ready_of(an_item(A, "gpu=3", takeable=2)), 4, TWO)
    assert made.wide is None
    assert taken(made) == [(A, 2)], "the store gives what stands behind it"


def test_of_two_partitions_one_is_provided_in_a_decision() -> None:
    made = planned(ready_of(an_item(B, "gpu=1"), an_item(C, "gpu=1", partition=1)), 4, TWO)
    assert len(taken(made)) == 1
    assert made.provided == made.takes[0].partition


def test_it_is_waited_for_no_longer_once_it_needs_something_else() -> None:
    def leaf(entry: DirectoryEntry) -> Leaf:
        found = ready_of(entry).path_of(GroupId(A))[-1]
        assert isinstance(found, Leaf)
        return found

    assert still_first(wide(), leaf(of_two()), 4, NOW_MS)
    assert not still_first(wide(), leaf(an_item(A, "gpu=1")), 4, NOW_MS)


def test_behind_it_nobody_knows_what_is_needed() -> None:
    entry = behind(an_item(A, "gpu=2", width=3, takeable=2))
    assert (entry.takeable, entry.head_item, entry.head_width, entry.head_needs) == (1, "a", 1, ())


def test_where_nothing_behind_it_fits_the_store_is_not_asked_again_and_it_keeps_its_turn() -> None:
    taking = Taking(AGENT, [CAPABILITY], slots=4, resources=TWO)
    entry = an_item(A, "gpu=1", takeable=5)
    taking.fold([entry], set(), NOW_MS)
    ((listed, _),) = taking.takes(4, NOW_MS).values()
    assert [take.most for take in listed] == [4]
    answered(taking, listed[0], entry)
    assert taking.takes(4, NOW_MS) == {}
    ((listed, _),) = taking.takes(4, NOW_MS, unused=ONE, spare=ONE).values()
    assert [take.most for take in listed] == [1], "once there is one, it is the first"


def answered(taking: Taking, take: Take, entry: DirectoryEntry) -> None:
    turn = Turn(0, 1, (take,), slots=4)
    reply = TurnReply(ENVELOPE, (Outcome("PASSED"),), (), (entry,))
    taking.answered(turn, reply, free=4)
    taking.fold([entry], set(), NOW_MS)
    taking.settle(turn, reply)
