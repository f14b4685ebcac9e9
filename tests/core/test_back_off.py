"""BR-49: many Workers that lose their store at the same moment do not come back at the same moment."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest
from treadle.worker.patience import BACK_OFF_S, Patience

WORKERS = 200
BUCKET_S = 0.1


async def a_patience(seed: str) -> Patience:
    return Patience(anyio.Event(), random.Random(seed))


def comes_back_s(patience: Patience, outage_s: float) -> float:
    """When a Worker that lost the store at 0 first asks it after it is there again."""
    at_s, failures = 0.0, 0
    while at_s < outage_s:
        failures += 1
        at_s += patience.back_off_s(failures)
    return at_s


@pytest.mark.parametrize("outage_s", [3.0, 5.0, 10.0, 60.0, 600.0])
@pytest.mark.parametrize("seed", range(5))
async def test_br_49_no_tenth_of_a_second_sees_more_than_a_tenth_of_the_workers_come_back(
    outage_s: float, seed: int
) -> None:
    back = [comes_back_s(await a_patience(f"{seed} {number}"), outage_s) for number in range(WORKERS)]
    buckets = Counter(int(at_s / BUCKET_S) for at_s in back)
    assert max(buckets.values()) <= WORKERS / 10, buckets.most_common(3)
    assert max(back) <= outage_s + BACK_OFF_S[1]


async def test_no_wait_is_longer_than_the_cap_and_the_first_is_short() -> None:
    patience = await a_patience("one")
    for failures in (1, 2, 3, 10, 1_000, 10**9):
        waits = [patience.back_off_s(failures) for _ in range(1_000)]
        assert min(waits) > 0
        assert max(waits) <= BACK_OFF_S[1]
    assert max(patience.back_off_s(1) for _ in range(1_000)) <= 2 * BACK_OFF_S[0]


async def test_after_a_while_a_worker_asks_at_most_once_a_second() -> None:
    patience = await a_patience("one")
    waits = [patience.back_off_s(failures) for failures in range(8, 2_008)]
    assert sum(waits) / len(waits) >= 1.0
