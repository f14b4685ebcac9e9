"""A Worker has a keeper for as long as there is the Worker, whatever ends one of them."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from servers import wait_until
from treadle.shared import processes
from treadle.shared.containment import start_keeper
from treadle.shared.processes import Life
from treadle.worker.slots import keeping
from treadle.worker.slots.keeping import Keeping


def test_where_somebody_ends_a_keeper_it_is_said_and_another_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where that does not succeed at once."""
    monkeypatch.setattr(keeping, "RETRY_S", 0.01)
    root = tmp_path / "root"
    root.mkdir()
    kept = Keeping("none.", root)
    first = kept.pid
    refused: list[str] = []

    def start(*given: Any) -> Any:
        if len(refused) < 2:
            refused.append("refused")
            raise OSError(11, "Resource temporarily unavailable")
        return start_keeper(*given)

    monkeypatch.setattr(keeping, "start_keeper", start)
    with caplog.at_level(logging.ERROR):
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: kept.pid != first, description="another keeper")
    assert f"keeper {first} has ended (killed by signal 9 (SIGKILL)" in caplog.text
    assert caplog.text.count("no keeper can be started ([Errno 11] Resource temporarily unavailable)") == 2
    second = processes.identity(kept.pid)
    assert second is not None
    kept.stop()
    kept.stop()
    assert processes.life_of(second) is Life.GONE
    assert root.exists(), "it keeps what a Worker leaves that did not end in order"
