"""The whole house under seeded weather: after every seed the independent checker finds nothing wrong.

A hundred seeds run with `make test`, a thousand with `make sim`. `make sim SEED=7` runs one, `TREADLE_SIM_SEEDS=1-500 make sim`
a range.
"""

from __future__ import annotations

import os

import pytest
from sim.world import Outcome, simulate

DEFAULT = "1-1000" if os.environ.get("TREADLE_SIM_LONG") else "1-100"
CHUNK = 5
TRACE_SHOWN = 60
LINE_CHARS = 300


def _chunks() -> list[range]:
    """The seeds in chunks of a few, so that several processes can share them."""
    asked = os.environ.get("TREADLE_SIM_SEED") or os.environ.get("TREADLE_SIM_SEEDS") or DEFAULT
    low, _, high = asked.partition("-")
    first, last = int(low), int(high or low)
    return [range(at, min(at + CHUNK, last + 1)) for at in range(first, last + 1, CHUNK)]


def report(outcome: Outcome) -> str:
    """What went wrong in a seed, and how to see it again."""
    lines = [
        f"seed {outcome.seed}: {len(outcome.faults)} wrong",
        *(f"  {fault}" for fault in outcome.faults[:20]),
        f"weather: {', '.join(outcome.enabled) or 'calm'}",
        f"the last {TRACE_SHOWN} of {len(outcome.trace)} lines:",
        *(line[:LINE_CHARS] for line in outcome.trace[-TRACE_SHOWN:]),
        f"again: make sim SEED={outcome.seed}",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("seeds", _chunks(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_every_interleaving_keeps_every_promise(seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(seed)
        assert not outcome.faults, report(outcome)
        assert outcome.events, f"seed {seed}: no log was looked at"
