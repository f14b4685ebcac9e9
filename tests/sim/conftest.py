"""`TREADLE_SIM_SEED=7` (`make sim SEED=7`) and `TREADLE_SIM_SEEDS=1-500` run these seeds and nothing else of this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not {"TREADLE_SIM_SEED", "TREADLE_SIM_SEEDS"} & os.environ.keys():
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        asked = item.path.parent != HERE or item.path.name == "test_interleavings.py"
        (kept if asked else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
