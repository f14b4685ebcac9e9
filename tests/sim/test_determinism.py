"""A seed is a whole run: the same steps in the same order, in this process, in another, whatever the hashes are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sim.world import simulate

TESTS = Path(__file__).parent.parent
SEEDS = (3, 9, 16)
"""Chosen to have crashes, other servers and several Groups requeued at once."""


@pytest.fixture(scope="module")
def here() -> list[str]:
    return [simulate(seed).digest for seed in SEEDS]


def test_a_seed_run_twice_leaves_the_same_trace(here: list[str]) -> None:
    assert [simulate(seed).digest for seed in SEEDS] == here
    assert len(set(here)) == len(SEEDS)


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_a_seed_does_not_depend_on_the_order_of_hashes(here: list[str], hash_seed: str) -> None:
    program = f"from sim.world import simulate\nfor seed in {SEEDS}: print(simulate(seed).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(TESTS)}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == here
