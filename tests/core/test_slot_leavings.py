"""A warm process is as it was before its last run; one that cannot be made so again is ended (S17)."""

from __future__ import annotations

from pathlib import Path

import leaving_handlers
import pytest
from asking import Asked, given_to
from treadle.shared import codec
from treadle.shared.model import GroupId
from treadle.worker.loading import collect
from treadle.worker.slots.errand import Packed, Reported
from treadle.worker.slots.pool import Pool
from treadle.worker.slots.processes import ProcessErrand

pytestmark = pytest.mark.slow

ONE = GroupId("one")
LEAVING, FAILS = collect(leaving_handlers).values()


async def pid_of(pool: Pool, how: str) -> object:
    errand = ProcessErrand(pool, await pool.take(ONE, LEAVING.capability), ONE, LEAVING, given_to(how=how), Asked())
    try:
        packed = await errand.run()
    finally:
        await errand.unwound()
    assert isinstance(packed, Packed)
    return codec.unpack(packed.raw, what="pid")


@pytest.mark.parametrize("how", leaving_handlers.CHANGES)
async def test_what_a_run_changes_is_put_back_or_ended_with_its_process(tmp_path: Path, how: str) -> None:
    pool = Pool(1, ["leaving_handlers"], tmp_path)
    first, second = [await pid_of(pool, one) for one in (how, "nothing")]
    assert (first == second) is (how in leaving_handlers.KEPT)
    await pool.close()


async def test_what_a_failed_handler_leaves_running_cleans_up_before_its_process_is_ended(tmp_path: Path) -> None:
    pool = Pool(1, ["leaving_handlers"], tmp_path / "slots")
    (tmp_path / "slots").mkdir()
    given, taken = given_to(cleaned=str(tmp_path / "cleaned")), await pool.take(ONE, FAILS.capability)
    errand = ProcessErrand(pool, taken, ONE, FAILS, given, Asked())
    with pytest.raises(Reported, match="as it should"):
        await errand.run()
    assert (tmp_path / "cleaned").exists()
    assert not taken[0].is_alive
    await errand.unwound()
    await pool.close()
