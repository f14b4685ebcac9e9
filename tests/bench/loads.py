"""What the benchmarks submit, and the reading of a drain in its steady part."""

from __future__ import annotations

from dataclasses import dataclass

import redis
from bench.conftest import Crew
from bench.measuring import Counters
from treadle.coordinator import Client, MissionSpec, WorkSpec


def work(items: int, capability: str = "noop") -> list[WorkSpec]:
    return [WorkSpec(id=f"i{number}", capability=capability, inputs={"i": number}) for number in range(items)]


async def submit(url: str, groups: int, each: int, capability: str = "noop", *, first: str = "g") -> None:
    """Submits Missions of one account, equal in weight; their ids begin with `first`."""
    async with Client.connect(url, actor="bench") as client:
        for number in range(groups):
            await client.submit(
                MissionSpec(id=f"{first}{number}", objective="a benchmark", work=work(each, capability))
            )


@dataclass(frozen=True, slots=True)
class Steady:
    """The part of a drain that is measured: neither the start of the Worker nor the last items."""

    first: float = 0.05
    last: float = 0.95


def drained(
    admin: redis.Redis, crew: Crew, pid: int, items: int, *, limit_s: float, part: Steady = Steady()
) -> dict[str, float]:
    """Waits while a Worker drains; what each item cost in the steady part, cut where the limit comes first."""
    crew.wait(lambda: crew.ran() >= items * part.first, "the first items ran", limit_s)
    ran, before = crew.ran(), Counters.now(admin, pid)
    enough, until_s = items * part.last, before.at_s + limit_s
    crew.wait(lambda: crew.ran() >= enough or Counters.clock() > until_s, "most items ran", limit_s + 30)
    after_ran, after = crew.ran(), Counters.now(admin, pid)
    figures = before.until(after, after_ran - ran)
    del figures["client us"]  # it only looks on
    return figures
