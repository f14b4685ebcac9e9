"""What a Worker accepts of what it is asked by name, and why it declines the rest (R25, WRK-005)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import AGENT, NOW_MS, SESSION, a_usage, an_entry
from treadle.shared.answers import ItemView, Offer
from treadle.shared.model import AgentId, Capability, GroupId, ItemId, ItemState, MissionId, Session
from treadle.shared.store.operations import DECLINE_REASONS
from treadle.worker.asked import JUDGING, AskedByName
from treadle.worker.core.admission import QUEUE_MAX, Asked, Means, Reason, decline

INDEX = Capability("index")
ASKED = Asked(INDEX, 1, 0, 0)
MEANS = Means((INDEX,), 2, serves=True)


@pytest.mark.parametrize(
    ("asked", "means", "reason"),
    [
        (ASKED, MEANS, None),
        (ASKED, replace(MEANS, serves=False), Reason.AUTHORIZATION),
        (replace(ASKED, capability=Capability("audit")), MEANS, Reason.CAPABILITY),
        (replace(ASKED, width=3), MEANS, Reason.CAPACITY),
        (replace(ASKED, width=2), MEANS, None),
        (ASKED, replace(MEANS, before=2 * QUEUE_MAX), Reason.CAPACITY),
        (ASKED, replace(MEANS, before=2 * QUEUE_MAX - 1), None),
        (replace(ASKED, deadline_ms=NOW_MS), MEANS, Reason.DEADLINE),
        (replace(ASKED, deadline_ms=NOW_MS + 5_000), replace(MEANS, typical_ms=5_000), Reason.DEADLINE),
        (replace(ASKED, deadline_ms=NOW_MS + 5_001), replace(MEANS, typical_ms=5_000), None),
        (replace(ASKED, expires_ms=NOW_MS + 9_000), replace(MEANS, before=2, typical_ms=9_000), Reason.CAPACITY),
        (replace(ASKED, expires_ms=NOW_MS + 9_000), replace(MEANS, before=1, typical_ms=9_000), None),
        (replace(ASKED, expires_ms=NOW_MS + 9_000), replace(MEANS, before=4), None),
        (replace(ASKED, expires_ms=NOW_MS - 1), MEANS, None),
    ],
)
def test_r25_a_worker_declines_what_it_cannot_credibly_begin(asked: Asked, means: Means, reason: Reason | None) -> None:
    assert decline(asked, means, NOW_MS) is reason


def test_the_reasons_are_the_protocols() -> None:
    assert set(Reason) <= set(DECLINE_REASONS)


# --- one Worker's offers ---


def an_item(item: str, **fields: object) -> ItemView:
    offer = Offer("named", (AGENT,), 0, is_over=False)
    known = {"dependencies_left": 0, "offer": offer, "ownership_epoch": 0, "lease_number": 0, "owner": None} | fields
    return ItemView(MissionId("m-1"), ItemId(item), ItemState.OFFERED, INDEX, **known)  # type: ignore[arg-type]


def asked_by_name(serves: bool = True) -> AskedByName:
    session = Session(AGENT, SESSION, 10_000, (INDEX,), "r" * 40)
    return AskedByName(session, slots=1, serves=lambda _: serves, resources=(("gpu", 1),))


def test_an_offer_by_name_is_withheld_until_it_was_judged_and_then_taken_in_its_turn() -> None:
    asked = asked_by_name()
    entry = an_entry("m-1", 2, capability=f">{AGENT}")
    other = an_entry("m-1", 2)
    assert asked.sift(other) == other
    assert asked.sift(entry).code == JUDGING
    assert asked.withheld == [entry]
    (declined,) = asked.judge(entry.group, [an_item("a"), an_item("b", width=2)], before=0, now_ms=NOW_MS)
    assert (declined.item, declined.reason) == ("b", "capacity")
    assert asked.withheld == []
    left = replace(entry, takeable=1)
    assert asked.sift(left) == left


def test_what_needs_more_than_this_worker_has_is_declined_for_its_capacity() -> None:
    asked = asked_by_name()
    asked.sift(an_entry("m-1", 2, capability=f">{AGENT}"))
    items = [an_item("a", resources=(("gpu", 2),)), an_item("b", resources=(("gpu", 1),))]
    (declined,) = asked.judge(GroupId("m-1"), items, before=0, now_ms=NOW_MS)
    assert (declined.item, declined.reason) == ("a", "capacity")


def test_what_joins_is_judged_and_what_only_leaves_is_not_judged_again() -> None:
    asked = asked_by_name()
    for takeable, withheld in ((2, True), (1, False), (2, True), (0, False), (1, True)):
        entry = an_entry("m-1", takeable, capability=f">{AGENT}")
        assert (asked.sift(entry).code == JUDGING) is withheld, takeable
        if withheld:
            asked.judge(GroupId("m-1"), [], before=0, now_ms=NOW_MS)


def test_what_a_worker_does_not_work_for_it_declines_as_a_matter_of_authorization() -> None:
    asked = asked_by_name(serves=False)
    entry = an_entry("m-1", 1, capability=f">{AGENT}", usage=a_usage(typical_ms=5))
    asked.sift(entry)
    (declined,) = asked.judge(entry.group, [an_item("a")], before=0, now_ms=NOW_MS)
    assert declined.reason == "authorization"


def test_the_offers_before_it_count_for_an_item() -> None:
    """A queue has its length: of more than may wait here the rest goes to others."""
    asked = asked_by_name()
    entry = an_entry("m-1", QUEUE_MAX + 2, capability=f">{AGENT}")
    asked.sift(entry)
    items = [an_item(f"i{number}") for number in range(QUEUE_MAX + 2)]
    declined = asked.judge(entry.group, items, before=1, now_ms=NOW_MS)
    assert [one.item for one in declined] == [f"i{QUEUE_MAX - 1}", f"i{QUEUE_MAX}", f"i{QUEUE_MAX + 1}"]


def test_another_agents_name_is_not_this_ones() -> None:
    entry = an_entry("m-1", 1, capability=f">{AgentId('worker-11')}")
    assert asked_by_name().sift(entry) == entry
