"""docs/operations.md: what its section on deploys says is typed and done. Backup and restore are system/test_backup.py's."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh import FRESH
from servers import wait_until
from treadle.shared.store.embedded import EmbeddedServer

from docs import blocks_under, page

PAGE = page("operations.md")
WORK = ("run", "--command", "nap=sleep 1")


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


def lines() -> list[str]:
    """The commands of the section, without what is said behind them."""
    (block,) = blocks_under(PAGE, "Deploys: how Workers end", "sh")
    return [line.partition("#")[0].strip() for line in block.text.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(170)
@pytest.mark.parametrize("line", lines())
def test_each_drain_of_the_page_ends_the_worker_it_means(line: str, tmp_path: Path, server: EmbeddedServer) -> None:
    environment = {**FRESH, "TREADLE_URL": server.url, "XDG_RUNTIME_DIR": str(tmp_path)}
    worker_cli = [sys.executable, "-m", "treadle.worker.cli"]
    log = tmp_path / "log"
    with log.open("wb") as output:
        argv = [*worker_cli, *WORK, "--name", "thumbs-1"]
        worker = subprocess.Popen(argv, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: "is open" in log.read_text(), description="its session is open", timeout_s=60)
        program, *words = shlex.split(line.replace("redis://store-1:6379/0", server.url))
        assert program == "treadle-worker"
        said = subprocess.run(
            [*worker_cli, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert said.returncode == 0, said.stderr
        assert "thumbs-1" in said.stdout
        assert worker.wait(30) == 0, log.read_text()
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    assert os.listdir(tmp_path) == ["log"], "its record is gone"  # noqa: PTH208


def test_the_section_shows_each_way_to_say_which() -> None:
    assert {word for line in lines() for word in shlex.split(line) if word.startswith("--")} == {
        *("--name", "--all", "--url", "--wait", "--json")
    }
