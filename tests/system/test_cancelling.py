"""A cancel in each state of an item, over real Workers and each kind of handler: what docs/lifecycle.md says (BR-97)."""

from __future__ import annotations

import random

import anyio
import pytest
from cancelling import STATES, Bring, House, the_table
from fleet import Desk, Fleet, until
from treadle.coordinator import Mission
from treadle.shared.errors import Refused
from treadle.shared.model import EventKind, ItemState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

K = EventKind
S = ItemState
RACES = 12
CANCELLED = "cancelled"


@pytest.fixture(params=["task", "thread", "process"])
async def house(request: pytest.FixtureRequest, fleet: Fleet, desk: Desk) -> House:
    for name, slots in (("wide", 4), ("narrow", 1)):
        fleet.start(name, slots=slots, arguments=("--handlers", "cancel_handlers", "--groups", f"{name[0]}-*"))
    await fleet.ready()
    return House(fleet, desk, request.param)


def test_each_row_of_the_table_of_outcomes_is_brought_about() -> None:
    assert set(the_table()) == {*STATES, CANCELLED}
    assert the_table()[CANCELLED] == "the same answer again"


async def cancelled(house: House, bring: Bring, outcome: str) -> tuple[str, tuple[Mission, ItemState]]:
    """Cancels it, twice, and sees that it comes to the outcome that is promised: the item, and how it ended."""
    mission = await bring(house)
    item = f"a-{mission.id.partition('-')[2]}"
    told = f"{house.kind}, {bring.__name__}: {outcome}"
    before = (await mission.items())[item].state
    ran = len(house.fleet.lines(item, "begin"))
    if outcome.startswith("refused (INVALID_STATE_TRANSITION)"):
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                await mission.cancel_item(item)
            assert caught.value.code == "INVALID_STATE_TRANSITION", told
        wanted = before
    else:
        wanted = S.FAILED if outcome == "failed for good" else S.CANCELLED
        assert outcome.startswith(wanted.value), told
        assert await mission.cancel_item(item) is wanted, told
        if wanted is S.CANCELLED:  # what is failed for good is refused then: it is another row
            assert await mission.cancel_item(item) is wanted, told
    if "answer to what it needs is refused" in outcome:
        with pytest.raises(Refused):
            await mission.unblock(item, {"go": "on"})
    await until(
        lambda: len(house.fleet.lines(item, "out")) == ran,
        description=f"its handler is stopped ({told})",
        of=tuple(house.fleet.members),
    )
    kinds = [event.kind for event in await house.desk.log(mission.id) if event.item == item]
    assert kinds.count(K.CANCELLED) == (wanted is S.CANCELLED), told
    if wanted is S.CANCELLED:
        assert kinds[-1] is K.CANCELLED, f"{told}: nothing of it is written any more"
    return item, (mission, wanted)


async def test_br_97_over_real_workers_a_cancel_has_its_documented_outcome_in_each_state_and_stops_what_runs(
    house: House,
) -> None:
    table = the_table()
    brought: list[tuple[Bring, str]] = [(bring, table[row]) for row, every in STATES.items() for bring in every]
    ended: dict[str, tuple[Mission, ItemState]] = {}
    for bring, outcome in brought:
        ended |= [await cancelled(house, bring, outcome)]
        if bring is House.queued:  # what kept the slot, which others of these need
            await house.desk.client.mission("n-busy").cancel()
    assert await house.desk.client.mission("n-urgent").results(timeout=30) == {"urgent": 1}, "who asked has its slot"
    for mission in ("w-after", "n-busy"):
        await house.desk.client.mission(mission).cancel()
    await every_slot_is_free(house)
    for item, (of, state) in ended.items():
        assert (await of.items())[item].state is state, f"{house.kind}, {item}: it stays so"


async def every_slot_is_free(house: House) -> None:
    """As many at once as there are slots."""
    together = await house.submitted("w-all", *(house.work(f"all{n}", "waits") for n in range(4)))
    for number in range(4):
        await house.begun(f"all{number}")
    await together.cancel()


async def test_br_97_over_real_workers_a_cancel_that_races_the_end_comes_to_exactly_one_of_the_two(
    house: House,
) -> None:
    chance = random.Random(house.kind)
    specs = [house.work(f"r{n}", "sleeps", 0.2 + n / 100) for n in range(RACES)]
    mission = await house.submitted("w-race", *specs)
    said: dict[str, str] = {}

    async def race(mission: Mission, item: str, wait_s: float) -> None:
        await house.begun(item)
        await anyio.sleep(wait_s)
        try:
            said[item] = await mission.cancel_item(item)
        except Refused as refused:
            said[item] = refused.code

    async with anyio.create_task_group() as group:
        for spec in specs:
            group.start_soon(race, mission, spec.id, spec.inputs["s"] + chance.uniform(-0.03, 0.03))
    await until(lambda: _all_ended(mission), description="all have ended", of=tuple(house.fleet.members))
    log = await house.desk.log("w-race")
    for item, view in (await mission.items()).items():
        kinds = [event.kind for event in log if event.item == item]
        ends = (kinds.count(K.RESULT_ACCEPTED), kinds.count(K.CANCELLED))
        if view.state is S.VERIFIED:
            assert (said[item], ends) == ("INVALID_STATE_TRANSITION", (1, 0))
        else:
            assert (view.state, said[item], ends) == (S.CANCELLED, S.CANCELLED, (0, 1))
    await every_slot_is_free(house)


async def _all_ended(mission: Mission) -> bool:
    return {view.state for view in (await mission.items()).values()} <= {S.VERIFIED, S.CANCELLED}
