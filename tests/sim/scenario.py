"""What is asked of the house in one run, drawn from its seed: Missions with their items, and what must become of each."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from treadle.coordinator import MissionSpec, WorkSpec
from treadle.shared import codec
from treadle.shared.model import ItemState, Urgency

CAPABILITIES = ("alpha", "beta")
GOOD_ENDINGS = ("ok", "flaky", "block")


@dataclass(frozen=True, slots=True)
class Job:
    """One item: its handler's script, and what it comes to when nothing stands in its way."""

    item: str
    capability: str
    after: tuple[str, ...]
    width: int
    urgency: Urgency
    impact: int
    start_by_s: int
    steps_ms: tuple[int, ...]
    ending: str
    """`ok`; how its handler gives up, `fail` (Fail) or `raise` (an exception of its own); `flaky`: not at its first tries;
    `block`: only with what a person answers."""
    pad: int
    """Bytes that make its bodies long, so that they have keys of their own."""

    @property
    def inputs(self) -> dict[str, Any]:
        return {"steps_ms": list(self.steps_ms), "ending": self.ending, "pad": "p" * self.pad}

    @property
    def reason(self) -> tuple[str, str]:
        """The type and text of its failure."""
        return ("Fail" if self.ending == "fail" else "ArithmeticError"), f"{self.item} gives up"


@dataclass(frozen=True, slots=True)
class Errand:
    """One Mission and the moment at which its client submits it."""

    mission: str
    account: str
    weight: float
    at_s: float
    follows: bool
    """Whether its client reads every Event as it comes."""
    jobs: tuple[Job, ...]

    def spec(self) -> MissionSpec:
        return MissionSpec(
            id=self.mission,
            objective=f"errand {self.mission}",
            account=self.account,
            weight=self.weight,
            work=[
                WorkSpec(
                    id=job.item,
                    capability=job.capability,
                    inputs=job.inputs,
                    after=list(job.after),
                    slots=job.width,
                    urgency=job.urgency,
                    business_impact=job.impact,
                    start_by_s=job.start_by_s,
                )
                for job in self.jobs
            ],
        )

    def states(self) -> dict[str, ItemState]:
        """How each item must end: whatever crashes, that does not depend on chance."""
        ends: dict[str, ItemState] = {}
        for job in self.jobs:
            if any(ends[other] is not ItemState.VERIFIED for other in job.after):
                ends[job.item] = ItemState.CANCELLED
            else:
                ends[job.item] = ItemState.VERIFIED if job.ending in GOOD_ENDINGS else ItemState.FAILED
        return ends

    def results(self) -> dict[str, dict[str, Any]]:
        """The result of each verified item."""
        ends = self.states()
        found: dict[str, dict[str, Any]] = {}
        for job in self.jobs:
            if ends[job.item] is ItemState.VERIFIED:
                found[job.item] = result_of(job.item, job.inputs, {other: found[other] for other in job.after})
        return found


def result_of(item: str, inputs: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What a handler returns: it depends on all it was given."""
    seen = codec.digest(codec.pack([item, inputs, dict(sorted(results.items()))], field="seen", limit=1 << 20))
    return {"item": item, "seen": seen, "pad": inputs["pad"]}


def draw_errands(chance: random.Random, slots_min: int) -> tuple[Errand, ...]:
    """Two to five Missions of up to twelve items."""
    return tuple(_draw_errand(chance, number, slots_min) for number in range(chance.randint(2, 5)))


def _draw_errand(chance: random.Random, number: int, slots_min: int) -> Errand:
    jobs: list[Job] = []
    failing, asks = chance.random() < 0.4, chance.random() < 0.3
    shape = chance.choice(("flat", "chain", "fan", "any"))
    for index in range(chance.randint(3, 12)):
        names = [job.item for job in jobs]
        if shape == "flat" or not names:
            after: list[str] = []
        elif shape == "chain":
            after = names[-1:]
        elif shape == "fan":
            after = names[:1]
        else:
            after = sorted(chance.sample(names, min(len(names), chance.choice((0, 0, 1, 1, 2, 3)))))
        ending = chance.choice(("fail", "raise", "flaky", "flaky")) if failing and chance.random() < 0.3 else "ok"
        if asks and ending == "ok" and chance.random() < 0.25:
            ending = "block"
        jobs.append(
            Job(
                item=f"i{index}",
                capability=chance.choice(CAPABILITIES),
                after=tuple(after),
                width=2 if slots_min > 1 and chance.random() < 0.15 else 1,
                urgency=chance.choice(tuple(Urgency)),
                impact=chance.choice((0, 0, 7)),
                start_by_s=chance.choice((1, 2, 5)),
                steps_ms=tuple(chance.choice((0, 5, 40, 200, 600, 2000)) for _ in range(chance.randint(0, 4))),
                ending=ending,
                pad=chance.choice((0, 0, 100, 3000)),
            )
        )
    return Errand(
        mission=f"m{number}",
        account=chance.choice(("acme", "globex")),
        weight=chance.choice((0.5, 1.0, 3.0, 10.0)),
        at_s=chance.choice((0.0, chance.uniform(0, 3), chance.uniform(0, 8))),
        follows=chance.random() < 0.3,
        jobs=tuple(jobs),
    )
