"""The states a WorkItem can be cancelled in, each brought about over real Workers; `system/test_cancelling.py` cancels in each.

Two Workers: `wide` takes what begins with `w-`, `narrow` has one slot, for what begins with `n-`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fleet import Desk, Fleet, until
from house.reading import ROOT
from treadle.coordinator import Mission, Retry, WorkSpec
from treadle.shared.model import EventKind, ItemState
from treadle.shared.store import policies

K = EventKind
S = ItemState
PROMPT = "[preemption]\nminimum_run_s = 1\n"


def the_table() -> dict[str, str]:
    """States and outcomes, as docs/lifecycle.md promises them."""
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("| state when it is cancelled | outcome |\n| --- | --- |\n")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", rest.partition("\n\n")[0], re.MULTILINE)
    return dict(rows)


@dataclass(frozen=True, slots=True)
class House:
    """Two Workers, and the kind of handler they run."""

    fleet: Fleet
    desk: Desk
    kind: str
    """`task`, `thread` or `process`."""

    def work(self, id: str, does: str, s: float = 0.0, **fields: Any) -> WorkSpec:
        return WorkSpec(id=id, capability=f"cancel.{self.kind}", inputs={"does": does, "s": s}, **fields)

    async def submitted(self, mission: str, *work: WorkSpec) -> Mission:
        return await self.desk.submit(mission, *work)

    async def begun(self, item: str, what: str = "begin") -> None:
        await until(lambda: self.fleet.lines(item, what), description=f"{item}: {what}", of=tuple(self.fleet.members))

    async def stands(self, mission: Mission, item: str, state: ItemState) -> None:
        async def does() -> bool:
            return (await mission.items())[item].state is state

        await until(does, description=f"{item} is {state}", of=tuple(self.fleet.members))

    # --- one of each ---

    async def waits_for_another(self) -> Mission:
        return await self.submitted(
            "w-after", self.work("other", "waits"), self.work("a-after", "ends", after=["other"])
        )

    async def waits_for_its_time(self) -> Mission:
        return await self.submitted("w-later", self.work("a-later", "ends", not_before=timedelta(hours=1)))

    async def offered(self) -> Mission:
        mission = await self.submitted("x-offered", self.work("a-offered", "ends"))
        await self.stands(mission, "a-offered", S.OFFERED)
        return mission

    async def queued(self) -> Mission:
        """Answered while its Worker, which still owns it, has no slot for it."""
        mission = await self.submitted("n-queued", self.work("a-queued", "asks"))
        await self.stands(mission, "a-queued", S.BLOCKED)
        await self.submitted("n-busy", self.work("busy", "waits"))
        await self.begun("busy")
        await mission.unblock("a-queued", {"go": "on"})
        await self.stands(mission, "a-queued", S.QUEUED)
        return mission

    async def active(self) -> Mission:
        mission = await self.submitted("w-active", self.work("a-active", "waits"))
        await self.begun("a-active")
        return mission

    async def saved(self) -> Mission:
        mission = await self.submitted("w-saved", self.work("a-saved", "saves"))
        await self.begun("a-saved", "saved")
        return mission

    async def asked(self) -> Mission:
        """For its slot, by another Mission's item; `busy` of before has ended."""
        await policies.apply(self.desk.store, PROMPT, actor="ann")
        mission = await self.submitted("n-asked", self.work("a-asked", "keeps"))
        await self.begun("a-asked")
        await self.submitted("n-urgent", self.work("urgent", "ends"))

        async def is_asked() -> bool:
            return bool(await self.desk.of_kind("n-asked", K.PREEMPTION_REQUESTED))

        await until(is_asked, description="it is asked for its slot", timeout_s=30, of=tuple(self.fleet.members))
        return mission

    async def blocked(self) -> Mission:
        mission = await self.submitted("w-blocked", self.work("a-blocked", "asks"))
        await self.stands(mission, "a-blocked", S.BLOCKED)
        return mission

    async def retrying(self) -> Mission:
        again = Retry(retries=3, first_s=3_600.0, most_s=3_600.0)
        mission = await self.submitted("w-retrying", self.work("a-retrying", "fails", retry=again))
        await self.stands(mission, "a-retrying", S.FAILED)
        return mission

    async def verified(self) -> Mission:
        mission = await self.submitted("w-verified", self.work("a-verified", "ends"))
        await mission.results(timeout=30)
        return mission

    async def failed(self) -> Mission:
        mission = await self.submitted("w-failed", self.work("a-failed", "fails", retry=0))
        await self.stands(mission, "a-failed", S.FAILED)
        return mission


Bring = Callable[[House], Awaitable[Mission]]
STATES: dict[str, list[Bring]] = {
    "open (waits for others, or for its time), offered, parked": [
        House.waits_for_another,
        House.waits_for_its_time,
        House.offered,
    ],
    "queued: accepted and not started": [House.queued],
    "active, before or after a Checkpoint": [House.active, House.saved],
    "active and asked for its slot": [House.asked],
    "blocked": [House.blocked],
    "failed, waiting for another attempt": [House.retrying],
    "verified, failed for good": [House.verified, House.failed],
}
"""By the rows of the table, each item named after its Mission. That of a cancelled item is any other's second order; what is
parked is proved at the store.
"""
