"""The checker can fail: each bug that is put in on purpose is found within sixty seeds.

A mutation names a seed to try first; most are found by one of the first few seeds. `make sim` runs these, `make test` does not.
"""

from __future__ import annotations

import pytest
from sim.editing import TIGHT
from sim.mutations import MUTATIONS, Mutation
from sim.world import simulate
from treadle.shared.store.library import lua_files

SEEDS_MAX = 60


@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_a_bug_on_purpose_is_found(mutation: Mutation) -> None:
    for seed in (mutation.seed, *range(1, SEEDS_MAX)):
        if simulate(seed, mutation).faults:
            return
    pytest.fail(f"{mutation.name}: {SEEDS_MAX} seeds found nothing wrong")


def test_every_edit_of_the_library_still_has_its_place() -> None:
    """`make test` runs this one: a bug on purpose that cannot be put in any more would be seen by `make sim` only."""
    files = lua_files()
    edits = [*TIGHT, *(edit for mutation in MUTATIONS for edit in mutation.edits)]
    assert [(edit.file, edit.old) for edit in edits if files[edit.file].count(edit.old) != 1] == []
