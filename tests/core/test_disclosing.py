"""A Worker discloses seldom, and of each item only what its own Mission may know (WRK-012, S23, BR-77)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from builders import AGENT, CAPABILITY, NOW_MS, SESSION, a_usage, an_entry
from hypothesis import given
from hypothesis import strategies as st
from treadle.shared.disclosure import CapacityState
from treadle.shared.model import Grant, GroupId, ItemId, Lease, LeaseId
from treadle.shared.policy import DEFAULT_POLICY
from treadle.shared.store import Disclose, Outcome
from treadle.worker.core.forecast import RUNS_KEPT
from treadle.worker.disclosing import AT_ONCE_MAX, FIRST_MS, HISTORIES_MAX, LOOK_EACH_MS, Disclosing
from treadle.worker.handlers import Handler
from treadle.worker.slots.run import End, Run

TTL_MS = 10_000
INTERVAL_MS = round(1000 * DEFAULT_POLICY.disclosure.interval_s)
OURS = GroupId("ours")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The local clock, in seconds, as its one element."""
    now = [0.0]
    monkeypatch.setattr("anyio.current_time", lambda: now[0])
    return now


def a_grant(
    group: str = OURS, item: str = "a", *, since_ms: int | None = NOW_MS, number: int = 1, checkpoint: int = 0
) -> Grant:
    """Of a run that began then; None: of what waits for a slot until a minute from NOW_MS."""
    lease = None
    if since_ms is not None:
        lease_id = LeaseId(f"{group}-{item}-{number}")
        lease = Lease(lease_id, GroupId(group), ItemId(item), AGENT, SESSION, 1, number, since_ms + TTL_MS, 1, "r")
    target = (0, GroupId(group), ItemId(item), CAPABILITY, 1, 1, NOW_MS + 60_000, 4, lease)
    return Grant(*target, checkpoint, (), b"inputs", b"")


async def _work(context: Any, inputs: Any) -> None:
    del context, inputs


def a_run(*args: Any, **fields: Any) -> Run:
    grant = a_grant(*args, **fields)
    assert grant.lease is not None
    desk: Any = None
    return Run(grant, grant.lease, Handler(CAPABILITY, "1.0.0", _work), desk, began_s=anyio.current_time())


def has_run(disclosing: Disclosing, clock: list[float], seconds: float, run: Run | None = None) -> None:
    """A run comes to its result after so long."""
    run = run or a_run()
    clock[0] += seconds
    run.has_returned = run.has_result = True
    disclosing.ran(run)


def asked(
    disclosing: Disclosing, *runs: Run, waiting: tuple[Grant, ...] = (), now_ms: int, is_full: bool = False
) -> list[Disclose]:
    return [said for _, said in disclosing.due(runs, waiting, now_ms, is_full=is_full)]


def a_disclosing() -> Disclosing:
    return Disclosing(lease_ttl_ms=TTL_MS)


OK = Outcome("OK", 9)


async def test_an_item_that_ends_within_a_second_is_never_disclosed(clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    assert clock == [0.0]
    assert asked(disclosing, run, now_ms=NOW_MS + FIRST_MS - 1) == []
    assert asked(disclosing, run, now_ms=NOW_MS + FIRST_MS - 1 + LOOK_EACH_MS) != []
    run.has_returned = True
    other = a_disclosing()
    assert asked(other, run, now_ms=NOW_MS + FIRST_MS) == [], "its result is on its way"


async def test_an_item_is_disclosed_once_and_again_when_it_is_late_and_the_interval_is_over(clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    for seconds in (1.0, 2.0, 3.0, 4.0, 100.0):
        has_run(disclosing, clock, seconds)
    at_ms = NOW_MS + FIRST_MS
    (said,) = asked(disclosing, run, now_ms=at_ms)
    assert (said.said.end_ms, said.said.confidence) == (NOW_MS + 100_000, 80)
    for later in range(1, 4):
        assert asked(disclosing, run, now_ms=at_ms + later * LOOK_EACH_MS) == [], "it is asked"
    disclosing.answered(said, OK, at_ms)
    assert asked(disclosing, run, now_ms=NOW_MS + 100_000) == [], "it is not late yet"
    (again,) = asked(disclosing, run, now_ms=NOW_MS + 100_000 + LOOK_EACH_MS)
    assert (again.said.end_ms, again.said.confidence) == (0, 0), "no run ever took so long"
    disclosing.answered(again, OK, NOW_MS + 100_250)
    assert asked(disclosing, run, now_ms=NOW_MS + 10**7) == []


async def test_an_item_that_is_late_within_the_interval_is_disclosed_when_that_is_over(clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    for seconds in (2.0, 2.0, 2.0, 2.0):
        has_run(disclosing, clock, seconds)
    (said,) = asked(disclosing, run, now_ms=NOW_MS + FIRST_MS)
    disclosing.answered(said, OK, NOW_MS + FIRST_MS)
    asks = [at for at in range(0, 100_000, 250) if asked(disclosing, run, now_ms=NOW_MS + FIRST_MS + 250 + at)]
    assert asks == [INTERVAL_MS - 250]


async def test_what_the_store_says_comes_too_soon_is_asked_again_at_the_time_it_names(clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    assert clock == [0.0]
    (said,) = asked(disclosing, run, now_ms=NOW_MS + FIRST_MS)
    disclosing.answered(said, Outcome("RATE_LIMITED", at_ms=NOW_MS + 30_000), NOW_MS + FIRST_MS)
    assert asked(disclosing, run, now_ms=NOW_MS + 29_999) == []
    assert len(asked(disclosing, run, now_ms=NOW_MS + 29_999 + LOOK_EACH_MS)) == 1


@pytest.mark.parametrize("code", ["WORK_LEASE_EXPIRED", "WORK_STALE_OWNERSHIP", "GROUP_NOT_FOUND", "LOG_FOREIGN"])
async def test_what_is_not_ours_any_more_is_not_asked_again(code: str, clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    assert clock == [0.0]
    (said,) = asked(disclosing, run, now_ms=NOW_MS + FIRST_MS)
    disclosing.answered(said, Outcome(code), NOW_MS + FIRST_MS)
    assert asked(disclosing, run, now_ms=NOW_MS + 10 * INTERVAL_MS) == []


async def test_an_end_that_was_unknown_is_disclosed_when_runs_of_that_group_have_ended(clock: list[float]) -> None:
    disclosing, run = a_disclosing(), a_run()
    (said,) = asked(disclosing, run, now_ms=NOW_MS + FIRST_MS)
    assert said.said.end_ms == 0
    disclosing.answered(said, OK, NOW_MS + FIRST_MS)
    has_run(disclosing, clock, 90.0)
    (again,) = asked(disclosing, run, now_ms=NOW_MS + FIRST_MS + INTERVAL_MS)
    assert (again.said.end_ms, again.said.confidence) == (NOW_MS + 90_000, 50)


async def test_what_waits_for_a_slot_has_a_window_and_its_run_is_another_disclosure(clock: list[float]) -> None:
    disclosing, grant = a_disclosing(), a_grant(since_ms=None)
    assert clock == [0.0]
    assert asked(disclosing, waiting=(grant,), now_ms=NOW_MS, is_full=True) == []
    (said,) = asked(disclosing, waiting=(grant,), now_ms=NOW_MS + FIRST_MS, is_full=True)
    assert said.lease is None
    assert said.said.capacity_state is CapacityState.QUEUED
    assert (said.said.start_from_ms, said.said.start_to_ms) == (NOW_MS + FIRST_MS, NOW_MS + 60_000)
    disclosing.answered(said, OK, NOW_MS + FIRST_MS)
    run = a_run(since_ms=NOW_MS + 2_000)
    (said,) = asked(disclosing, run, now_ms=NOW_MS + 3_000)
    assert said.lease == run.lease.lease_id, "the store says how soon that may be told"


async def test_a_run_that_failed_was_stopped_or_went_on_from_a_checkpoint_is_no_example(clock: list[float]) -> None:
    disclosing = a_disclosing()
    for run in (a_run(), a_run(), a_run(checkpoint=3)):
        run.has_returned = run.has_result = True
        if run.grant.item == "a" and not run.grant.checkpoint_number and not clock[0]:
            run.has_result = False
        elif not run.grant.checkpoint_number:
            run.end = End.LEASE_LOST
        clock[0] += 5.0
        disclosing.ran(run)
    (said,) = asked(disclosing, a_run(), now_ms=NOW_MS + FIRST_MS)
    assert said.said.end_ms == 0


async def test_a_new_worker_goes_by_the_groups_own_typical_run_and_claims_nothing(clock: list[float]) -> None:
    disclosing = a_disclosing()
    assert clock == [0.0]
    disclosing.learn([an_entry(OURS, usage=a_usage(typical_ms=4_000)), an_entry("b", usage=a_usage(typical_ms=9_000))])
    (said,) = asked(disclosing, a_run(), now_ms=NOW_MS + FIRST_MS)
    assert (said.said.end_ms, said.said.confidence) == (NOW_MS + 4_000, 0)


async def test_what_is_remembered_is_bounded(clock: list[float]) -> None:
    disclosing = a_disclosing()
    for number in range(HISTORIES_MAX + 100):
        has_run(disclosing, clock, 2.0, a_run(f"group-{number}"))
    for _ in range(3 * RUNS_KEPT):
        has_run(disclosing, clock, 2.0)
    kept = disclosing._histories
    assert len(kept) == HISTORIES_MAX
    assert max(map(len, kept.values())) == RUNS_KEPT
    runs = [a_run(item=f"i{number}") for number in range(100)]
    assert len(asked(disclosing, *runs, now_ms=NOW_MS + FIRST_MS)) == AT_ONCE_MAX
    assert len(disclosing._said) == 100
    asked(disclosing, now_ms=NOW_MS + 2 * FIRST_MS)
    assert disclosing._said == {}, "what is over is forgotten"


# --- two worlds (S23, BR-77) ---

others = st.lists(
    st.tuples(
        st.text("xyz", min_size=1, max_size=3), st.text("pq", min_size=1), st.integers(1, 50_000), st.binary(max_size=9)
    ),
    min_size=1,
    max_size=6,
)


@given(st.lists(st.integers(1_000, 90_000), max_size=20), st.booleans(), others, others)
async def test_s23_br77_two_worlds_that_differ_in_other_groups_alone_disclose_the_same_byte_for_byte(
    own_ms: list[int],
    is_full: bool,
    first: list[tuple[str, str, int, bytes]],
    second: list[tuple[str, str, int, bytes]],
) -> None:
    """Names, items, numbers, contents, run lengths and typical runs of all others differ; the level of load does not."""

    def published(world: list[tuple[str, str, int, bytes]]) -> bytes:
        disclosing = a_disclosing()
        for length_ms in own_ms:
            disclosing.ran(over(a_run(), length_ms))
        for group, item, length_ms, inputs in world:
            other = a_run(f"other-{group}", item)
            other.grant = replace(other.grant, inputs=inputs)
            disclosing.ran(over(other, length_ms))
        disclosing.learn(an_entry(f"other-{group}", usage=a_usage(typical_ms=ms)) for group, _, ms, _ in world)
        theirs = [a_run(f"other-{group}", item, since_ms=NOW_MS - ms) for group, item, ms, _ in world]
        waits = [a_grant(f"other-{group}", item, since_ms=None) for group, item, _, _ in world]
        found: list[Disclose] = []
        for now_ms in range(NOW_MS, NOW_MS + 3 * INTERVAL_MS, 5_000):
            mine = (a_run(), a_run(item="b", since_ms=NOW_MS - 40_000))
            for said in asked(
                disclosing,
                *theirs,
                *mine,
                waiting=(*waits, a_grant(item="w", since_ms=None)),
                now_ms=now_ms,
                is_full=is_full,
            ):
                disclosing.answered(said, OK, now_ms)
                if said.group == OURS:
                    found.append(said)
        return repr(found).encode()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("anyio.current_time", lambda: 0.0)
        one, two = published(first), published(second)
    assert one == two
    assert one.count(b"Disclose(") >= 3
    assert b"other-" not in one


def over(run: Run, length_ms: int) -> Run:
    """A run that came to its result after so long."""
    run.began_s -= length_ms / 1000
    run.has_returned = run.has_result = True
    return run
