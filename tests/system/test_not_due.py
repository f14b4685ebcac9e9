"""What is not due is not a Worker's to keep: 200,000 items of one Mission wait for their time in the store (BR-75)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from builders import a_new_item, a_new_mission
from fleet import Desk, Fleet, Member, until
from treadle.shared import codec
from treadle.shared.model import GroupId, ItemId, NewItem
from treadle.shared.store import keys

NOT_DUE = 200_000
DUE = 40
INBOX_MAX = 1_000
GROWN_KB_MAX = 32 << 10
"""200,000 items kept in whatever form would be more."""
_INPUTS = codec.pack({"steps": 1, "pace_s": 0.01, "again_s": 0.01}, field="inputs", limit=codec.INPUTS_MAX)
_ONE = a_new_item(capability="fleet.chain", inputs=_INPUTS)


def items(name: str, number: int, *, not_before: str = "") -> list[NewItem]:
    return [replace(_ONE, item=ItemId(f"{name}{n:06}"), not_before=not_before) for n in range(number)]


def resident_kb(member: Member) -> int:
    status = Path(f"/proc/{member.child.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


async def has_done(desk: Desk, mission: str) -> bool:
    """Whether all that is due of it is done."""
    return (await desk.client.mission(mission).view()).verified == DUE


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_br75_a_worker_keeps_nothing_of_200_000_items_that_are_not_due_and_does_those_that_are(
    fleet: Fleet, desk: Desk
) -> None:
    """They stand in the same Group, before and behind what is due; the due ones are not behind them."""
    worker = fleet.start(slots=4)
    await fleet.ready()
    await desk.store.create(a_new_mission("before", *items("i", DUE)))
    await until(partial(has_done, desk, "before"), description="it has done something, as at any time", of=(worker,))
    at_first_kb = resident_kb(worker)
    waiting = items("a", NOT_DUE // 2, not_before="+3600000")
    work = [*waiting, *items("d", DUE), *items("z", NOT_DUE // 2, not_before="+3600000")]
    await desk.store.create(a_new_mission("large", *work))
    await desk.store.create(a_new_mission("after", *items("i", DUE)))
    for mission in ("large", "after"):
        await until(partial(has_done, desk, mission), description=f"{mission}: what is due", of=(worker,))
    assert resident_kb(worker) - at_first_kb < GROWN_KB_MAX
    store = desk.store
    inbox = keys.inbox(store.base(store.partition_of(GroupId("large"))), "w1")
    assert await store.run(lambda client: client.llen(inbox)) <= INBOX_MAX
    view = await desk.client.mission("large").view()
    assert (view.total, view.verified, view.failed) == (NOT_DUE + DUE, DUE, 0)
