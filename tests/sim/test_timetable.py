"""Schedules with real Workers on virtual time: they fire on an idle store, once a tick, through crashes and lost answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from builders import a_new_mission
from sim.test_pausing import House, in_a_house
from sim.weather import Fault
from treadle.shared import codec
from treadle.shared.model import Capability, GroupId, ItemId, NewItem
from treadle.shared.schedules import Interval, Missed, NewSchedule, ScheduleId, firing_of
from treadle.shared.store.timetable import schedule, schedules

JOBS = GroupId("jobs%3Aacme")


async def a_timetable(house: House, every_s: int, missed: Missed = Missed.ONE, **inputs: Any) -> None:
    """An open Mission, and a schedule of it."""
    await house.store.create(replace(a_new_mission("jobs:acme"), items=(), open=True))
    packed = codec.pack(inputs, field="inputs", limit=1 << 20)
    item = NewItem(ItemId("-"), Capability("x"), packed)
    new = NewSchedule(ScheduleId("often"), JOBS, "ana", Interval(1000 * every_s), item, missed)
    await schedule(house.store, new)


async def told(house: House) -> list[tuple[int, int, int]]:
    """Of each firing: its tick, when it was carried out, and how many after it were skipped."""
    found = []
    for event in await house.store.read_log(JOBS, count=100_000):
        if note := firing_of(event):
            found.append((note.due_ms, event.at_ms, note.skipped))
    return found


def test_idle_workers_fire_each_tick_in_time_and_its_item_runs_at_once() -> None:
    async def story(house: House) -> None:
        house.worker("one")
        house.worker("two")
        await anyio.sleep(3)
        await a_timetable(house, 30)
        await anyio.sleep(605)
        firings = await told(house)
        assert len(firings) == 20
        assert [due_ms - firings[0][0] for due_ms, _, _ in firings] == [30_000 * n for n in range(20)]
        assert max(at_ms - due_ms for due_ms, at_ms, _ in firings) < 100, "ms after the tick"
        assert min(at_ms - due_ms for due_ms, at_ms, _ in firings) >= 0
        assert len(house.ended) == 20
        assert sum(" fire " in line for line in house.network.trace) < 60, "not everybody all the time"

    in_a_house(story)


def test_a_schedule_made_while_workers_sleep_does_not_wait_for_their_sweep() -> None:
    async def story(house: House) -> None:
        house.worker("one")
        await anyio.sleep(20.5)
        await a_timetable(house, 1)
        await anyio.sleep(1.3)
        ((due_ms, at_ms, _),) = await told(house)
        assert at_ms - due_ms < 100

    in_a_house(story)


@pytest.mark.parametrize("missed", Missed)
def test_ticks_that_pass_while_no_worker_lives_fire_as_the_schedule_says(missed: Missed) -> None:
    async def story(house: House) -> None:
        process = house.worker("one")
        await anyio.sleep(1)
        await a_timetable(house, 60, missed)
        await anyio.sleep(61)
        process.kill()
        await anyio.sleep(600)
        house.worker("two")
        await anyio.sleep(70)
        firings = await told(house)
        first_ms = firings[0][0]
        due = [(due_ms - first_ms) // 60_000 for due_ms, _, _ in firings]
        (view,) = await schedules(house.store)
        if missed is Missed.ALL:
            assert due == list(range(len(due)))
            assert view.skipped == 0
        else:
            assert due[:2] == [0, 1]
            assert due[2] - 1 == 1 + firings[1][2]
            assert len(due) <= 4
        assert len(house.ended) == len(firings) == view.fired
        assert len(firings) + view.skipped == (view.next_ms - first_ms) // 60_000

    in_a_house(story)


def test_no_tick_fires_twice_or_is_lost_while_workers_die_and_answers_are_lost() -> None:
    async def story(house: House) -> None:
        await a_timetable(house, 5, Missed.ALL, s=0.2)
        house.weather.rates.update({Fault.LOST_REPLY: 0.05, Fault.LOST_CALL: 0.05})
        house.weather.is_rough = True
        for number in range(20):
            process = house.worker(f"w{number % 3}")
            await anyio.sleep(7)
            if number < 17:
                process.kill()
        house.weather.clear()
        await anyio.sleep(31)  # to a moment between two ticks
        firings = await told(house)
        due = [due_ms for due_ms, _, _ in firings]
        assert due == [due[0] + 5000 * n for n in range(len(due))]
        assert len(due) >= 33
        assert all(at_ms >= due_ms for due_ms, at_ms, _ in firings)
        assert len({name for name in house.ended if "often@" in name}) == len(due)

    in_a_house(story)
