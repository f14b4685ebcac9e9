"""What every test has: one event loop kind, and no leak left for the next test to be blamed for."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No test asserts a time: a busy machine is no counter-example.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["servers"]

VALUES_ONLY = frozenset({"house", "core"})
"""Folders whose tests open nothing, so there is nothing to collect after them."""


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """redis-py is asyncio-only."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _own_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect now what this test left open: its ResourceWarning, an error, then fails this test and not a neighbour."""
    yield
    if request.node.path.parent.name not in VALUES_ONLY:
        gc.collect()
