"""The table of refusals goes on: what the operations of a turn are refused with, item by item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from builders import GROUP, a_new_item
from store.refused import HALT, LANE, Call, Case, refusal
from store.world import (
    SAID,
    SHORT_MS,
    Hand,
    World,
    a_begin,
    a_block,
    a_commit,
    a_disclosure,
    a_fail,
    a_release,
    a_reservation,
    a_save,
    a_start,
    a_submit,
    a_take,
    a_word,
    a_yield,
    an_ask,
)
from treadle.shared import codec
from treadle.shared.model import Grant, GroupId, ItemId, LeaseId, Limits
from treadle.shared.store import Accept, Decline, FreeSlot, Operation, commands
from treadle.shared.store.controls import pause
from treadle.shared.store.lineage import new_incarnation

Make = Callable[[Grant], Operation]
OPERATIONS: dict[str, Make] = {
    "start": a_start,
    "save": a_save,
    "disclose": a_disclosure,
    "progress": lambda grant: a_word(grant, phase="new"),
    "yield": a_yield,
    "ask_yield": an_ask,
    "block": a_block,
    "effect": a_begin,
    "commit": a_commit,
    "release": a_release,
    "submit": a_submit,
    "fail": a_fail,
}
WITH_LEASE = ("progress", "save", "yield", "ask_yield", "block", "effect", "commit", "submit", "fail")
QUIET = ("effect", "commit")
"""What appends no Event, and so does not look at the log."""


async def outcome_of(hand: Hand, operation: Operation) -> str:
    return (await hand.do(operation, slots=1)).code


async def _ready(world: World, name: str) -> tuple[Hand, Grant]:
    """A hand and an item for which the operation would be carried out."""
    await world.mission()
    hand = await world.hand()
    return hand, await (hand.accepted() if name == "start" else hand.started())


def _operation(name: str, make: Make) -> None:
    def on(code: str, *changes: str) -> Callable[[Case], Case]:
        return refusal(name, code, *(changes or LANE))

    @on("GROUP_NOT_FOUND")
    async def a_group_that_is_not_there(world: World) -> Call:
        hand, grant = await _ready(world, name)
        return lambda: outcome_of(hand, make(replace(grant, group=GroupId("nowhere"))))

    @on("INVALID_COMMAND")
    async def an_item_that_is_not_there(world: World) -> Call:
        hand, grant = await _ready(world, name)
        return lambda: outcome_of(hand, make(replace(grant, item=ItemId("nothing"))))

    @on("WORK_STALE_OWNERSHIP")
    async def an_older_ownership_epoch(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await hand.do(a_release(grant))
        again = await (hand.accepted() if name == "start" else hand.started())
        assert again.ownership_epoch == 2
        return lambda: outcome_of(hand, make(replace(grant, lease=again.lease)))

    @on("WORK_STALE_OWNERSHIP")
    async def an_epoch_to_come(world: World) -> Call:
        hand, grant = await _ready(world, name)
        return lambda: outcome_of(hand, make(replace(grant, ownership_epoch=2)))

    @on("WORK_STALE_OWNERSHIP")
    async def somebody_elses_item(world: World) -> Call:
        _, grant = await _ready(world, name)
        other = await world.hand("worker-2")
        return lambda: outcome_of(other, make(grant))

    @on("WORK_STALE_OWNERSHIP")
    async def an_item_nobody_owns(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await hand.do(a_release(grant))
        return lambda: outcome_of(hand, make(grant))

    @on("AUTH_STALE_SESSION")
    async def an_item_held_by_another_session(world: World) -> Call:
        world.audited = False
        hand, grant = await _ready(world, name)
        await world.raw.hset(world.key(f"{GROUP}:i:a"), "ses", "99")
        return lambda: outcome_of(hand, make(grant))

    @on("MEMBERSHIP_STALE")
    async def a_group_that_keeps_it_out(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await commands.end_membership(world.store, grant.group, hand.session.agent, actor="ana", reason="no")
        return lambda: outcome_of(hand, make(grant))

    @on("LOG_FOREIGN")
    async def a_group_halted_before(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await world.raw.hset(world.key("@groups"), GROUP, "halted:LOG_FOREIGN 1 acme standard 1")
        return lambda: outcome_of(hand, make(grant))

    if name in QUIET:
        return

    @on("LOG_FOREIGN", *HALT)
    async def a_foreign_entry_stands_where_its_event_belongs(world: World) -> Call:
        hand, grant = await _ready(world, name)
        last = (await world.log())[-1].seq
        await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id=f"{last + 1}-0")
        return lambda: outcome_of(hand, make(grant))

    @on("LOG_REBORN", *HALT)
    async def the_log_is_gone(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await world.raw.delete(world.key(f"{GROUP}:log"))
        return lambda: outcome_of(hand, make(grant))


def _leased(name: str, make: Make) -> None:
    @refusal(name, "WORK_LEASE_EXPIRED", *LANE)
    async def a_lapsed_lease_that_no_tick_has_seen(world: World) -> Call:
        await world.mission()
        hand = await world.hand(ttl_ms=SHORT_MS)
        grant = await hand.started()
        await world.pass_ms(SHORT_MS + 1)
        return lambda: outcome_of(hand, make(grant))

    @refusal(name, "WORK_LEASE_EXPIRED", *LANE)
    async def another_lease_id(world: World) -> Call:
        hand, grant = await _ready(world, name)
        assert grant.lease is not None
        other = replace(grant.lease, lease_id=LeaseId("other"))
        return lambda: outcome_of(hand, make(replace(grant, lease=other)))

    @refusal(name, "WORK_LEASE_EXPIRED", *LANE)
    async def a_lease_that_was_given_up_with_the_ownership_kept(world: World) -> Call:
        hand, grant = await _ready(world, name)
        await hand.do(a_yield(grant, 1, b"kept"))
        return lambda: outcome_of(hand, make(grant))


def _started(name: str, make: Make) -> None:
    @refusal(name, "INVALID_STATE_TRANSITION", *LANE)
    async def accepted_but_not_started(world: World) -> Call:
        await world.mission()
        hand = await world.hand()
        grant = await hand.accepted()
        return lambda: outcome_of(hand, make(grant))


for _name, _make in OPERATIONS.items():
    _operation(_name, _make)
    if _name in WITH_LEASE:
        _started(_name, _make)
    if _name in (*WITH_LEASE, "disclose"):
        _leased(_name, _make)


@refusal("start", "INVALID_STATE_TRANSITION", *LANE)
async def started_already(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    return lambda: outcome_of(hand, a_start(grant))


@refusal("release", "INVALID_STATE_TRANSITION", *LANE)
async def finished_already(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    await hand.do(a_submit(grant))
    return lambda: outcome_of(hand, a_release(grant))


@refusal("release", "SCHEMA_VALIDATION_FAILED", *LANE)
async def what_is_said_to_be_damaged_is_not_told_as_agreed(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    grant = await hand.started()
    bad = ("inputs", "7 digest", "7 digest inputs\nwork.parked", "7 digest " + "x" * 1024)
    codes = {await outcome_of(hand, replace(a_release(grant, "POISON"), found=found)) for found in bad}
    assert codes == {"SCHEMA_VALIDATION_FAILED"}
    return lambda: outcome_of(hand, replace(a_release(grant, "POISON"), found=bad[0]))


def _late(name: str, make: Make) -> None:
    @refusal(name, "WORK_STALE_OWNERSHIP", *LANE)
    async def the_start_by_deadline_has_passed_and_no_tick_has_seen_it(world: World) -> Call:
        await world.mission(GROUP, a_new_item(start_by_s=1))
        hand = await world.hand()
        grant = await hand.accepted()
        await world.pass_ms(1001)
        return lambda: outcome_of(hand, make(grant))


for _name in ("start", "disclose"):
    _late(_name, OPERATIONS[_name])


@refusal("disclose", "INVALID_STATE_TRANSITION", *LANE)
async def the_wait_of_what_runs_already(world: World) -> Call:
    hand, grant = await _ready(world, "disclose")
    return lambda: outcome_of(hand, a_disclosure(replace(grant, lease=None)))


@refusal("disclose", "RATE_LIMITED", *LANE)
async def disclosed_again_within_the_interval(world: World) -> Call:
    hand, grant = await _ready(world, "disclose")
    await hand.do(a_disclosure(grant))
    return lambda: outcome_of(hand, a_disclosure(grant, replace(SAID, end_ms=SAID.end_ms + 1)))


@refusal("disclose", "RATE_LIMITED", *LANE)
async def disclosed_by_its_next_owner_within_the_interval(world: World) -> Call:
    hand, grant = await _ready(world, "disclose")
    await hand.do(a_disclosure(grant))
    await hand.do(a_release(grant))
    other = await world.hand("worker-2")
    again = await other.started()
    return lambda: outcome_of(other, a_disclosure(again))


def _wrong_disclosure(name: str, *, interval_ms: int = 60_000, **of: object) -> None:
    async def wrong(world: World) -> Call:
        hand, grant = await _ready(world, "disclose")
        said = replace(SAID, **of)  # type: ignore[arg-type]
        return lambda: outcome_of(hand, a_disclosure(grant, said, interval_ms=interval_ms))

    wrong.__name__ = name
    refusal("disclose", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_wrong_disclosure("a_window_that_ends_before_it_begins", start_from_ms=SAID.start_to_ms + 1)
_wrong_disclosure("an_end_before_its_start", end_ms=SAID.start_to_ms - 1)
_wrong_disclosure("a_time_that_is_no_whole_number", start_from_ms=-1)
_wrong_disclosure("a_time_beyond_what_the_store_counts", end_ms=10**14)
_wrong_disclosure("a_confidence_of_more_than_99_percent", confidence=100)
_wrong_disclosure("an_interval_that_is_no_number_of_milliseconds", interval_ms=-1)
_wrong_disclosure("a_capacity_state_of_another_world", capacity_state=SimpleNamespace(value="plenty"))


def _wrong_word(name: str, *tokens: str) -> None:
    async def wrong(world: World) -> Call:
        hand, grant = await _ready(world, "progress")
        said = SimpleNamespace(tokens=lambda: tokens)
        return lambda: outcome_of(hand, replace(a_word(grant), said=said))  # type: ignore[arg-type]

    wrong.__name__ = name
    refusal("progress", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_wrong_word("less_than_nothing_done", "-1", "10", "-", "-", "-")
_wrong_word("more_done_than_the_store_counts", "1e16", "10", "-", "-", "-")
_wrong_word("a_total_that_is_no_number", "1", "nan", "-", "-", "-")
_wrong_word("a_total_in_another_notation", "1", "0x10", "-", "-", "-")
_wrong_word("a_number_as_long_as_a_text", "1" * 25, "10", "-", "-", "-")
_wrong_word("a_phase_that_is_no_token", "1", "10", "two words", "-", "-")
_wrong_word("a_phase_that_is_not_there", "1", "10", "", "-", "-")
_wrong_word("a_note_longer_than_a_token", "1", "10", "-", "-", "n" * 2401)
_wrong_word("a_milestone_without_a_name", "1", "10", "-", "a,,b", "-")
_wrong_word("more_milestones_than_one_call_tells", "1", "10", "-", ",".join("abcdefghi"), "-")


@refusal("save", "REVISION_CONFLICT", *LANE)
async def a_checkpoint_number_left_out(world: World) -> Call:
    hand, grant = await _ready(world, "save")
    return lambda: outcome_of(hand, a_save(grant, 2))


@refusal("save", "REVISION_CONFLICT", *LANE)
async def an_older_checkpoint(world: World) -> Call:
    hand, grant = await _ready(world, "save")
    await hand.do(a_save(grant, 1, b"one"))
    await hand.do(a_save(grant, 2, b"two"))
    return lambda: outcome_of(hand, a_save(grant, 1, b"one"))


@refusal("yield", "REVISION_CONFLICT", *LANE)
async def another_state_under_the_last_number(world: World) -> Call:
    hand, grant = await _ready(world, "yield")
    await hand.do(a_save(grant, 1, b"one"))
    return lambda: outcome_of(hand, a_yield(grant, 1, b"another"))


@refusal("fail", "SCHEMA_VALIDATION_FAILED", *LANE)
async def evidence_that_would_make_the_log_unreadable(world: World) -> Call:
    hand, grant = await _ready(world, "fail")
    return lambda: outcome_of(hand, a_fail(grant, b"x" * 16_385))


@refusal("block", "REVISION_CONFLICT", *LANE)
async def a_block_without_its_checkpoint(world: World) -> Call:
    hand, grant = await _ready(world, "block")
    await hand.do(a_save(grant, 1, b"one"))
    return lambda: outcome_of(hand, a_block(grant, 2, b""))


@refusal("block", "REVISION_CONFLICT", *LANE)
async def a_block_with_another_state_under_the_last_number(world: World) -> Call:
    hand, grant = await _ready(world, "block")
    await hand.do(a_save(grant, 1, b"one"))
    return lambda: outcome_of(hand, a_block(grant, 1, b"another"))


def _wrong_block(name: str, **of: object) -> None:
    async def wrong(world: World) -> Call:
        hand, grant = await _ready(world, "block")
        return lambda: outcome_of(hand, a_block(grant, **of))  # type: ignore[arg-type]

    wrong.__name__ = name
    refusal("block", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_wrong_block("a_blocked_lease_of_less_than_a_second", ttl_ms=999)
_wrong_block("a_blocked_lease_of_more_than_30_days", ttl_ms=30 * 86_400_000 + 1)
_wrong_block("a_reason_that_is_empty", reason="")
_wrong_block("a_reason_that_is_no_token", reason="two words")
_wrong_block("a_reason_beyond_its_bound", reason="r" * 2401)
_wrong_block("needs_that_would_make_the_log_unreadable", needs=b"n" * 16_385)


def _wrong_ask(name: str, **of: Any) -> None:
    async def wrong(world: World) -> Call:
        hand, grant = await _ready(world, "ask_yield")
        return lambda: outcome_of(hand, an_ask(grant, **of))

    wrong.__name__ = name
    refusal("ask_yield", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_wrong_ask("asked_for_a_reason_that_is_empty", reason="")
_wrong_ask("asked_for_a_reason_that_is_no_token", reason="two words")
_wrong_ask("overdue_at_once", overdue_ms=0)
_wrong_ask("overdue_after_more_than_a_day", overdue_ms=86_400_001)


def _slot(name: str, make: Callable[..., Operation]) -> None:
    """What is refused of slots that Groups wait for."""

    def on(code: str) -> Callable[[Case], Case]:
        return refusal(name, code, *LANE)

    @on("GROUP_NOT_FOUND")
    async def for_a_group_that_is_not_there(world: World) -> Call:
        hand = await world.hand()
        return lambda: outcome_of(hand, make("nowhere"))

    @on("MEMBERSHIP_STALE")
    async def for_a_group_that_keeps_it_out(world: World) -> Call:
        hand, grant = await _ready(world, "start")
        await commands.end_membership(world.store, grant.group, hand.session.agent, actor="ana", reason="no")
        return lambda: outcome_of(hand, make())

    async def halted(world: World, code: str) -> Call:
        await world.mission()
        hand = await world.hand()
        await world.raw.hset(world.key("@groups"), GROUP, f"halted:{code} 1 acme standard 1")
        return lambda: outcome_of(hand, make())

    @on("LOG_FOREIGN")
    async def for_a_halted_group(world: World) -> Call:
        return await halted(world, "LOG_FOREIGN")

    @on("LOG_REBORN")
    async def for_a_group_whose_log_was_gone(world: World) -> Call:
        return await halted(world, "LOG_REBORN")


_slot("reserve_slot", a_reservation)
_slot("free_slot", lambda group=GROUP: FreeSlot(GroupId(group), LeaseId("a-lease")))


@refusal("reserve_slot", "EMPTY", *LANE)
async def reserved_for_a_group_that_waits_for_nothing(world: World) -> Call:
    hand, _ = await _ready(world, "save")
    return lambda: outcome_of(hand, a_reservation())


@refusal("reserve_slot", "EMPTY", *LANE)
async def reserved_for_a_mission_that_has_ended(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await world.store.call("cancel", 0, (GROUP, "-", "ana", "reason"))
    return lambda: outcome_of(hand, a_reservation())


@refusal("reserve_slot", "EMPTY", *LANE)
async def reserved_for_all_that_waits_already(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_reservation(lease="another", most=9))
    return lambda: outcome_of(hand, a_reservation(most=9))


@refusal("reserve_slot", "RESERVED", *LANE)
async def reserved_for_a_group_that_has_as_many_as_it_may(world: World) -> Call:
    await world.mission(GROUP, *(a_new_item(item) for item in "abc"))
    hand = await world.hand()
    for lease in ("another", "yet-another"):
        await hand.do(a_reservation(lease=lease, most=2))
    return lambda: outcome_of(hand, a_reservation(most=2))


@refusal("reserve_slot", "PAUSED", *LANE)
async def reserved_while_it_is_paused(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await pause(world.store, "all", actor="ana")
    return lambda: outcome_of(hand, a_reservation())


@refusal("reserve_slot", "QUARANTINE", *LANE)
async def reserved_in_quarantine(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await new_incarnation(world.store, actor="ana", action="1", reason="asked")
    return lambda: outcome_of(hand, a_reservation())


def _wrong_reservation(name: str, **of: Any) -> None:
    async def wrong(world: World) -> Call:
        await world.mission()
        hand = await world.hand()
        return lambda: outcome_of(hand, a_reservation(**of))

    wrong.__name__ = name
    refusal("reserve_slot", "SCHEMA_VALIDATION_FAILED", *LANE)(wrong)


_wrong_reservation("a_lease_that_is_no_token", lease="two words")
_wrong_reservation("a_lease_that_would_be_two", lease="one=1")
_wrong_reservation("a_slot_reserved_for_no_time", ttl_ms=0)
_wrong_reservation("a_slot_reserved_for_more_than_a_day", ttl_ms=86_400_001)
_wrong_reservation("slots_that_are_no_small_number", most=100)


@refusal("take", "GROUP_NOT_FOUND", *LANE)
async def taken_from_a_group_that_is_not_there(world: World) -> Call:
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take("nowhere"))


@refusal("take", "EMPTY", *LANE)
async def nothing_of_this_capability(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take(capability="audit"))


@refusal("take", "EMPTY", *LANE)
async def the_mission_has_ended(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await hand.do(a_submit(await hand.started()))
    return lambda: outcome_of(hand, a_take())


@refusal("take", "PASSED", *LANE)
async def nothing_that_fits(world: World) -> Call:
    await world.mission(GROUP, a_new_item("a", width=2))
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take())


@refusal("take", "SHARE", *LANE)
async def a_class_that_had_its_share(world: World) -> Call:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await hand.started()
    await world.pass_ms(5)
    return lambda: outcome_of(hand, a_take(limits=Limits(charge_class=4)))


@refusal("take", "QUOTA", *LANE)
async def an_account_whose_slots_are_in_use(world: World) -> Call:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    await hand.started()
    return lambda: outcome_of(hand, a_take(limits=Limits(slots_account=1)))


@refusal("take", "QUOTA", *LANE)
async def a_group_that_had_its_rate(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take(limits=Limits(rate_group=(0, 3_600_000))))


class _Garbled(Limits):
    def wire(self) -> str:
        return "1,2,3"


@refusal("take", "SCHEMA_VALIDATION_FAILED", *LANE)
async def limits_that_are_none(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    return lambda: outcome_of(hand, a_take(limits=_Garbled()))


@refusal("take", "PAUSED", *LANE)
async def taken_while_it_is_paused(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await pause(world.store, "all", actor="ana")
    return lambda: outcome_of(hand, a_take())


@refusal("start", "PAUSED", *LANE)
async def started_while_it_is_paused(world: World) -> Call:
    hand, grant = await _ready(world, "start")
    await pause(world.store, "account:acme", actor="ana")
    return lambda: outcome_of(hand, a_start(grant))


@refusal("start", "QUOTA", *LANE)
async def started_while_the_slots_of_its_group_are_in_use(world: World) -> Call:
    await world.mission(GROUP, a_new_item("a"), a_new_item("b"))
    hand = await world.hand()
    grant = await hand.accepted()
    await hand.started()
    return lambda: outcome_of(hand, a_start(grant, Limits(slots_group=1)))


@refusal("start", "SCHEMA_VALIDATION_FAILED", *LANE)
async def started_with_limits_that_are_none(world: World) -> Call:
    hand, grant = await _ready(world, "start")
    return lambda: outcome_of(hand, a_start(grant, _Garbled()))


async def _spent(world: World, *, second: str = "") -> tuple[Hand, Grant]:
    """A Mission whose first item has run for all of its budget, and runs on."""
    await world.mission(GROUP, a_new_item("a"), a_new_item("b", offer=second), budget_ms=10)
    hand = await world.hand()
    return hand, await hand.started()


@refusal("take", "BUDGET_EXCEEDED", *LANE)
async def taken_when_the_budget_is_spent(world: World) -> Call:
    hand, _ = await _spent(world)
    await world.pass_ms(10)
    return lambda: outcome_of(hand, a_take())


@refusal("start", "BUDGET_EXCEEDED", *LANE)
async def started_when_the_budget_is_spent(world: World) -> Call:
    hand, _ = await _spent(world)
    grant = await hand.accepted()
    await world.pass_ms(10)
    return lambda: outcome_of(hand, a_start(grant))


@refusal("accept", "BUDGET_EXCEEDED", *LANE)
async def accepted_when_the_budget_is_spent(world: World) -> Call:
    hand, _ = await _spent(world, second="named:worker-1 0")
    await world.pass_ms(10)
    return lambda: outcome_of(hand, an_accept(GROUP, "b"))


@refusal("take", "QUARANTINE", *LANE)
async def taken_in_quarantine(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await new_incarnation(world.store, actor="ana", action="1", reason="asked")
    return lambda: outcome_of(hand, a_take())


@refusal("start", "QUARANTINE", *LANE)
async def started_in_quarantine(world: World) -> Call:
    hand, grant = await _ready(world, "start")
    await new_incarnation(world.store, actor="ana", action="1", reason="asked")
    return lambda: outcome_of(hand, a_start(grant))


@refusal("take", "LOG_FOREIGN", *LANE)
async def taken_from_a_halted_group(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await world.raw.hset(world.key("@groups"), GROUP, "halted:LOG_FOREIGN 1 acme standard 1")
    return lambda: outcome_of(hand, a_take())


@refusal("take", "LOG_FOREIGN", *HALT)
async def taken_where_a_foreign_entry_stands(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id="100-0")
    return lambda: outcome_of(hand, a_take())


@refusal("take", "LOG_REBORN", *HALT)
async def taken_where_the_log_is_gone(world: World) -> Call:
    await world.mission()
    hand = await world.hand()
    await world.raw.delete(world.key(f"{GROUP}:log"))
    return lambda: outcome_of(hand, a_take())


@refusal("save", "SCHEMA_VALIDATION_FAILED", *LANE)
async def a_checkpoint_nobody_could_read_again(world: World) -> Call:
    hand, grant = await _ready(world, "save")
    return lambda: outcome_of(hand, a_save(grant, 1, b"x" * (codec.CHECKPOINT_MAX + 1)))


@refusal("yield", "SCHEMA_VALIDATION_FAILED", *LANE)
async def a_last_checkpoint_nobody_could_read_again(world: World) -> Call:
    hand, grant = await _ready(world, "yield")
    return lambda: outcome_of(hand, a_yield(grant, 1, b"x" * (codec.CHECKPOINT_MAX + 1)))


@refusal("submit", "SCHEMA_VALIDATION_FAILED", *LANE)
async def a_result_nobody_could_read_again(world: World) -> Call:
    hand, grant = await _ready(world, "submit")
    return lambda: outcome_of(hand, a_submit(grant, b"x" * (codec.RESULT_MAX + 1)))


def an_accept(group: str = GROUP, item: str = "a") -> Accept:
    return Accept(GroupId(group), ItemId(item))


def a_decline(group: str = GROUP, item: str = "a", reason: str = "capacity") -> Decline:
    return Decline(GroupId(group), ItemId(item), reason)


async def _asked(world: World, offer: str = "named:worker-1,worker-2 0") -> Hand:
    """A hand whose Worker is asked by name."""
    await world.mission(GROUP, a_new_item(offer=offer))
    return await world.hand()


@refusal("take", "AUTH_FORBIDDEN", *LANE)
async def what_is_offered_to_somebody_else_by_name_is_taken(world: World) -> Call:
    hand = await _asked(world)
    return lambda: outcome_of(hand, a_take(capability=">worker-2"))


def _answered(name: str, make: Callable[..., Operation]) -> None:
    def on(code: str, *changes: str) -> Callable[[Case], Case]:
        return refusal(name, code, *(changes or LANE))

    @on("GROUP_NOT_FOUND")
    async def a_group_that_is_not_there(world: World) -> Call:
        hand = await _asked(world)
        return lambda: outcome_of(hand, make("nowhere"))

    @on("INVALID_COMMAND")
    async def an_item_that_is_not_there(world: World) -> Call:
        hand = await _asked(world)
        return lambda: outcome_of(hand, make(GROUP, "nothing"))

    @on("WORK_ALREADY_OWNED")
    async def somebody_else_was_first(world: World) -> Call:
        hand = await _asked(world)
        await (await world.hand("worker-2")).do(an_accept())
        return lambda: outcome_of(hand, make())

    @on("INVALID_STATE_TRANSITION")
    async def accepted_already(world: World) -> Call:
        hand = await _asked(world)
        await hand.do(an_accept())
        return lambda: outcome_of(hand, make())

    @on("INVALID_STATE_TRANSITION")
    async def cancelled_meanwhile(world: World) -> Call:
        hand = await _asked(world)
        await world.store.call("cancel", 0, (GROUP, "-", "ana", "reason"))
        return lambda: outcome_of(hand, make())

    @on("INVALID_STATE_TRANSITION")
    async def it_waits_for_another(world: World) -> Call:
        await world.mission(GROUP, a_new_item("b"), a_new_item("a", after=["b"], offer="named:worker-1 0"))
        hand = await world.hand()
        return lambda: outcome_of(hand, make())

    @on("AUTH_FORBIDDEN")
    async def who_is_not_asked(world: World) -> Call:
        await _asked(world, "named:worker-11,worker-2 0")
        hand = await world.hand()
        return lambda: outcome_of(hand, make())

    @on("AUTH_FORBIDDEN")
    async def who_has_declined(world: World) -> Call:
        hand = await _asked(world)
        await hand.do(a_decline())
        return lambda: outcome_of(hand, make())

    @on("WORK_OFFER_EXPIRED")
    async def an_offer_that_is_over_and_no_tick_has_seen_it(world: World) -> Call:
        hand = await _asked(world, f"named:worker-1 {SHORT_MS}")
        await world.pass_ms(SHORT_MS + 1)
        return lambda: outcome_of(hand, make())

    @on("WORK_OFFER_EXPIRED")
    async def an_offer_that_is_over(world: World) -> Call:
        hand = await _asked(world, f"named:worker-1 {SHORT_MS}")
        await world.pass_ms(SHORT_MS + 1)
        await world.authority.tick(0)
        return lambda: outcome_of(hand, make())

    @on("LOG_FOREIGN")
    async def a_group_halted_before(world: World) -> Call:
        hand = await _asked(world)
        await world.raw.hset(world.key("@groups"), GROUP, "halted:LOG_FOREIGN 1 acme standard 1")
        return lambda: outcome_of(hand, make())

    directed = (*HALT, "@dir:>worker-.", "@tomb:>worker-.")

    @on("LOG_FOREIGN", *directed)
    async def a_foreign_entry_stands_where_its_event_belongs(world: World) -> Call:
        hand = await _asked(world)
        last = (await world.log())[-1].seq
        await world.raw.xadd(world.key(f"{GROUP}:log"), {"k": "v"}, id=f"{last + 1}-0")
        return lambda: outcome_of(hand, make())

    @on("LOG_REBORN", *directed)
    async def the_log_is_gone(world: World) -> Call:
        hand = await _asked(world)
        await world.raw.delete(world.key(f"{GROUP}:log"))
        return lambda: outcome_of(hand, make())


_answered("accept", an_accept)
_answered("decline", a_decline)


@refusal("accept", "AUTH_FORBIDDEN", *LANE)
async def whose_session_does_no_such_work(world: World) -> Call:
    await _asked(world, "")
    other = await world.hand("worker-2", "audit")
    return lambda: outcome_of(other, an_accept())


@refusal("accept", "AUTH_FORBIDDEN", *LANE)
async def asked_by_name_and_too_narrow(world: World) -> Call:
    await world.mission(GROUP, a_new_item(offer="named:worker-1 0", width=2))
    hand = await world.hand()
    return lambda: outcome_of(hand, an_accept())


@refusal("accept", "QUARANTINE", *LANE)
async def accepted_in_quarantine(world: World) -> Call:
    hand = await _asked(world)
    await new_incarnation(world.store, actor="ana", action="1", reason="asked")
    return lambda: outcome_of(hand, an_accept())


@refusal("accept", "PAUSED", *LANE)
async def accepted_while_it_is_paused(world: World) -> Call:
    hand = await _asked(world)
    await pause(world.store, "capability:index", actor="ana")
    return lambda: outcome_of(hand, an_accept())


@refusal("decline", "AUTH_FORBIDDEN", *LANE)
async def what_is_offered_to_everybody_is_declined(world: World) -> Call:
    hand = await _asked(world, "")
    return lambda: outcome_of(hand, a_decline())


@refusal("decline", "SCHEMA_VALIDATION_FAILED", *LANE)
async def declined_for_no_reason_of_the_protocol(world: World) -> Call:
    hand = await _asked(world)
    return lambda: outcome_of(hand, a_decline(reason="tired"))
