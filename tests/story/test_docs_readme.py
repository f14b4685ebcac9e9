"""The README's own example does what it says: its files in a fresh folder, its commands in a shell, in either runtime."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh import FRESH, python_in
from treadle.shared.store.embedded import EmbeddedServer

from docs import DOCS, blocks

PAGE = DOCS.parent / "README.md"
PRINTED = "{'a': {'count': 2}, 'b': {'indexed': 2}}\n{'count': 1}\n"


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


def commands() -> list[list[str]]:
    """What the page says to type behind the export of the store's address."""
    (block,) = (block.text for block in blocks(PAGE) if block.text.startswith("export TREADLE_URL="))
    return [shlex.split(line) for line in block.splitlines()[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--runtime", "process")], ids=["task", "process"])
def test_the_example_runs_as_it_stands(options: tuple[str, ...], tmp_path: Path, server: EmbeddedServer) -> None:
    names = re.findall(r"in `(\w+\.py)`:", PAGE.read_text(encoding="utf-8"))
    for name, block in zip(names, blocks(PAGE, "python"), strict=True):
        (tmp_path / name).write_text(block.text, encoding="utf-8")
    work, submit, watch = commands()
    assert (work[0], submit, watch) == ("treadle-worker", ["python", "submit.py"], ["treadle", "watch"])
    environment = {"TREADLE_URL": server.url, "XDG_RUNTIME_DIR": str(tmp_path)}
    argv = [sys.executable, "-m", "treadle.worker.cli", *work[1:], *options]
    log = tmp_path / "log"
    with log.open("wb") as output:
        worker = subprocess.Popen(argv, cwd=tmp_path, env=FRESH | environment, stdout=output, stderr=output)
    try:
        ran = python_in(tmp_path, "submit.py", environment=environment)
        assert (ran.returncode, ran.stdout) == (0, PRINTED), ran.stderr + log.read_text()
        watched = python_in(tmp_path, "-m", "treadle.coordinator.cli", "watch", environment=environment)
        assert watched.returncode == 0, watched.stderr
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    where = options[-1] if options else "task"
    assert f"4 slots; does index 1.0.0 ({where}), thumbnails 1.0.0 ({where}); for Missions '*'" in log.read_text()
    assert "treadle-workers" not in os.listdir(tmp_path)  # noqa: PTH208
