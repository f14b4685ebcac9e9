"""Story. Work that takes long gives its slot up for others that have had less: at its own safe points, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from treadle.coordinator import Client, Mission, MissionSpec, WorkSpec
from treadle.shared.model import EventKind
from treadle.shared.store import Store
from treadle.shared.testing.injection import Faults
from treadle.shared.testing.kit import StoreInMemory
from treadle.worker import Context, handler
from treadle.worker.testing import Workers

K = EventKind
Kinds = Callable[[Mission], Awaitable[Counter[EventKind]]]
PAGE_S = 5
steps: list[tuple[str, int]] = []
"""Which Mission did which page."""
changes: list[tuple[float, str, str]] = []
"""When a handler of a Mission `began` or had `unwound`, in the order in which it did in its Worker."""


@handler("pages")
async def pages(context: Context, inputs: dict[str, Any]) -> int:
    changes.append((anyio.current_time(), "began", context.mission))
    try:
        for page in range(context.checkpoint_state.get("next", 0), inputs["pages"]):
            await asyncio.sleep(inputs["page_s"])
            steps.append((context.mission, page))
            await context.checkpoint({"next": page + 1})
        return context.attempt
    finally:
        changes.append((anyio.current_time(), "unwound", context.mission))


@handler("stubborn")
async def stubborn(context: Context, inputs: dict[str, Any]) -> int:
    await asyncio.sleep(inputs["seconds"])
    return context.attempt


async def a_book(client: Client, name: str, pages: int, *, page_s: float = PAGE_S, **of: Any) -> Mission:
    work = WorkSpec(id="book", capability="pages", inputs={"pages": pages, "page_s": page_s}, **of)
    return await client.submit(MissionSpec(id=name, objective="read", work=[work], account=name))


@pytest.fixture
def kinds(treadle_store: StoreInMemory) -> Kinds:
    """What a Mission's log holds so far: `mission.events()` would follow it to its end."""

    async def counted(mission: Mission) -> Counter[EventKind]:
        store = await Store.connect(treadle_store)
        try:
            return Counter(event.kind for event in await store.read_log(mission.group, count=10_000))
        finally:
            await store.aclose()

    return counted


async def test_br_71_two_long_items_share_one_slot_without_thrashing(
    treadle_client: Client, treadle_worker: Workers, kinds: Kinds
) -> None:
    """L7, R46: about 9 changes in 10 minutes at a minimum run of 30 s, each at a checkpoint, and no page is done twice."""
    steps.clear()
    await treadle_worker()
    one = await a_book(treadle_client, "one", 60)
    await asyncio.sleep(1)
    two = await a_book(treadle_client, "two", 60)
    await asyncio.sleep(300)
    shares = Counter(name for name, _ in steps)
    assert abs(shares["one"] - shares["two"]) <= 9, f"about half of the first 5 minutes each: {shares}"
    assert (await one.results(), await two.results()) == ({"book": 5}, {"book": 5}), "five runs each"
    for name in ("one", "two"):
        assert [page for mission, page in steps if mission == name] == list(range(60)), (
            "nothing again, nothing left out"
        )
    told = [await kinds(one), await kinds(two)]
    asked = sum(count[K.PREEMPTION_REQUESTED] for count in told)
    assert asked == sum(count[K.CHECKPOINTED] for count in told) == 8 <= 600 / 30
    assert sum(count[K.PREEMPTION_OVERDUE] for count in told) == 0


async def test_an_urgent_arrival_asks_a_run_that_has_not_saved_anything_yet(
    treadle_client: Client, treadle_worker: Workers, kinds: Kinds
) -> None:
    """The request comes first and the safe point after it: the run yields at the first page that it saves."""
    steps.clear()
    await treadle_worker()
    long = await a_book(treadle_client, "long", 4, page_s=60)
    await asyncio.sleep(40)
    short = await a_book(treadle_client, "short", 1, urgency="critical")
    await asyncio.sleep(10)
    assert (await kinds(long))[K.PREEMPTION_REQUESTED] == 1
    assert (await kinds(long))[K.PROGRESS_SAVED] == 0
    assert await short.results() == {"book": 1}
    assert steps == [("long", 0), ("short", 0)], "asked before its first page was saved, it let go right after it"
    assert await long.results() == {"book": 2}


async def test_l7_a_run_that_reaches_no_safe_point_is_said_to_be_overdue_once_and_goes_on(
    treadle_client: Client, treadle_worker: Workers, caplog: pytest.LogCaptureFixture, kinds: Kinds
) -> None:
    steps.clear()
    await treadle_worker()
    work = WorkSpec(id="book", capability="stubborn", inputs={"seconds": 300})
    long = await treadle_client.submit(MissionSpec(id="long", objective="o", work=[work], account="long"))
    await asyncio.sleep(1)
    short = await a_book(treadle_client, "short", 1)
    with caplog.at_level(logging.WARNING):
        assert await long.results() == {"book": 1}, "nothing is cut"
    assert await short.results() == {"book": 1}
    told = await kinds(long)
    assert (told[K.PREEMPTION_REQUESTED], told[K.PREEMPTION_OVERDUE]) == (1, 1)
    (said,) = [record.message for record in caplog.records if "PREEMPT_OVERDUE" in record.message]
    assert "long/book" in said
    assert "stubborn" in said


async def test_a_worker_that_restarts_after_a_request_neither_forgets_it_nor_asks_twice(
    treadle_client: Client, treadle_worker: Workers, faults: Faults, kinds: Kinds
) -> None:
    """S18: the run is gone with its process; who was waited for comes first, then the item goes on from what it saved."""
    steps.clear()
    await treadle_worker(name="w")
    long = await a_book(treadle_client, "long", 3, page_s=40)
    await asyncio.sleep(45)
    short = await a_book(treadle_client, "short", 1)
    await asyncio.sleep(5)
    assert (await kinds(long))[K.PREEMPTION_REQUESTED] == 1
    faults.kill("w")
    await treadle_worker(name="w")
    assert await short.results() == {"book": 1}
    assert await long.results() == {"book": 2}
    assert steps == [("long", 0), ("short", 0), ("long", 1), ("long", 2)]
    assert (await kinds(long))[K.PREEMPTION_REQUESTED] == 1


async def test_a_slot_that_nobody_waits_for_any_more_is_for_whoever_comes_next(
    treadle_client: Client, treadle_worker: Workers, kinds: Kinds
) -> None:
    """The Mission for which a run was asked is cancelled meanwhile: the slot is not kept for it."""
    steps.clear()
    await treadle_worker()
    long = await a_book(treadle_client, "long", 3, page_s=40)
    await asyncio.sleep(45)
    short = await a_book(treadle_client, "short", 1)
    await asyncio.sleep(5)
    await short.cancel()
    assert await long.results() == {"book": 2}
    assert steps == [("long", page) for page in range(3)]
    assert (await kinds(long))[K.CHECKPOINTED] == 1


async def test_nobody_is_asked_while_a_slot_is_free_somewhere_in_the_same_worker(
    treadle_client: Client, treadle_worker: Workers, kinds: Kinds
) -> None:
    steps.clear()
    await treadle_worker(slots=2)
    missions = [await a_book(treadle_client, name, 30) for name in ("one", "two")]
    for mission in missions:
        assert await mission.results() == {"book": 1}
        assert (await kinds(mission))[K.PREEMPTION_REQUESTED] == 0


async def test_four_slots_of_one_mission_are_shared_with_another_one_by_one(
    treadle_client: Client, treadle_worker: Workers, kinds: Kinds
) -> None:
    """A newcomer is given its half, and not all four slots because four runs have had more than it."""
    steps.clear()
    await treadle_worker(slots=4)
    work = [WorkSpec(id=f"b{n}", capability="pages", inputs={"pages": 60, "page_s": PAGE_S}) for n in range(4)]
    first = await treadle_client.submit(MissionSpec(id="first", objective="o", work=work, account="first"))
    await asyncio.sleep(60)
    second = await treadle_client.submit(MissionSpec(id="second", objective="o", work=work, account="second"))
    await asyncio.sleep(300)
    shares = Counter(name for name, _ in steps[48:])
    assert abs(shares["second"] / shares.total() - 0.5) <= 0.1, shares
    asked = (await kinds(first))[K.PREEMPTION_REQUESTED] + (await kinds(second))[K.PREEMPTION_REQUESTED]
    assert 2 <= asked <= 4 * 360 / 30
    await first.cancel()
    await second.cancel()


async def test_br_71_three_missions_on_two_slots_do_not_take_them_from_each_other_in_a_loop(
    treadle_client: Client, treadle_worker: Workers, treadle_store: StoreInMemory
) -> None:
    """A thousand seconds and a bit, to between two pages; weights 1:1:2, an endless book each, saved each 5 s.

    Who follows whom is told by the Worker: logs of different Groups have no order within a millisecond.
    """
    steps.clear()
    changes.clear()
    weights = {"a": 1.0, "b": 1.0, "c": 2.0}
    await treadle_worker(slots=2)
    work = WorkSpec(id="book", capability="pages", inputs={"pages": 1_000, "page_s": PAGE_S})
    missions = [
        await treadle_client.submit(MissionSpec(id=name, objective="read", work=[work], account="acme", weight=weight))
        for name, weight in weights.items()
    ]
    await asyncio.sleep(1_002)
    pages = Counter(name for name, _ in steps)
    assert pages.total() >= 390, "both slots were in use"
    for name, weight in weights.items():
        assert abs(pages[name] - 100 * weight) <= 12, f"two minimum runs from its share: {pages}"
    assert [what for _, what, _ in changes[:2]] == ["began", "began"]
    swaps: list[tuple[float, str, str]] = []
    for (left_s, left, victim), (began_s, began, beneficiary) in zip(changes[2::2], changes[3::2], strict=True):
        assert (left, began) == ("unwound", "began"), "whoever is next begins once the handler before it has unwound"
        assert began_s - left_s <= 1, "a slot that is waited for does not stand idle"
        assert beneficiary != victim, "what yielded is not offered the slot that it has just freed"
        swaps.append((began_s, victim, beneficiary))
    assert 10 <= len(swaps) <= 2 * 1_000 / 30
    for number, (at_s, victim, beneficiary) in enumerate(swaps):
        for earlier_s, *pair in swaps[:number]:
            assert at_s - earlier_s >= 30 or [beneficiary, victim] != pair, "no pair is reversed within it"
    yields = 0
    store = await Store.connect(treadle_store)
    try:
        logs = [await store.read_log(mission.group, count=10_000) for mission in missions]
    finally:
        await store.aclose()
    for log in logs:
        begun_ms, asked_ms = 0, 0
        for event in log:
            if event.kind is K.STARTED:
                begun_ms = event.at_ms
            elif event.kind is K.PREEMPTION_REQUESTED:
                assert event.at_ms - begun_ms >= 30_000, "nobody is asked before the minimum run"
                asked_ms = event.at_ms
            elif event.kind is K.CHECKPOINTED:
                assert event.at_ms - asked_ms <= 1_000 * (PAGE_S + 1), "L7"
                asked_ms, yields = 0, yields + 1
    assert yields == len(swaps), "each slot that was left was asked for"
    for mission in missions:
        await mission.cancel()
