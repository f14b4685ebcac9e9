"""One server and one fleet a test, in a folder of its own; afterwards no process and no folder of it is left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fleet import Desk, Fleet, at_desk
from servers import wait_until
from treadle.shared import processes
from treadle.shared.store.embedded import EmbeddedServer


def _mine() -> frozenset[processes.Identity]:
    me = processes.identity(os.getpid())
    assert me is not None
    return processes.tree_of(me)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR of this test, with a short path. Afterwards no folder of a server and no process may be left."""
    before = _mine()
    folder = Path(tempfile.mkdtemp(prefix="tt-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    left = [path for path in folder.iterdir() if path.name != "fleet"]
    shutil.rmtree(folder)
    wait_until(lambda: _mine() <= before, description="no process left")
    assert left == [], "no folder left"


@pytest.fixture
def server(place: Path) -> Iterator[EmbeddedServer]:
    del place
    running = EmbeddedServer().start()
    yield running
    running.stop()


@pytest.fixture
def fleet(server: EmbeddedServer, place: Path) -> Iterator[Fleet]:
    folder = place / "fleet"
    folder.mkdir()
    with Fleet(server.url, folder) as started:
        yield started


@pytest.fixture
async def desk(server: EmbeddedServer) -> AsyncIterator[Desk]:
    async with at_desk(server.url) as opened:
        yield opened
