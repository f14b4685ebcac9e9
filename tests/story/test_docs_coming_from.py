"""docs/coming-from.md does what it says: its examples run against its own handlers, its commands have the options shown."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest
from fresh import FRESH, pytest_in, python_in
from treadle.coordinator.cli import app
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker.cli import app as worker_app
from typer.testing import CliRunner

from docs import blocks, page, written

PAGE = page("coming-from.md")
BEGIN = """\
from examples import *  # noqa: F403
import tasks

"""
EXAMPLE = """
async def test_line_{line}(treadle_client, treadle_worker):
    client = treadle_client
    treadle_worker(tasks, slots=4)
"""
VISITED = """\
import sys, shop
assert shop.pay_view(7) == {"job": "jobs:customer-7/order-7", "repeated": False}
assert shop.pay_view(7)["repeated"]
assert shop.result_view(7) == 8
"""


def anchor(heading: str) -> str:
    """What a heading is linked by."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.slow
def test_the_examples_pass_in_a_fresh_project(tmp_path: Path) -> None:
    files = {path.name for path in written(PAGE, tmp_path)}
    assert files == {"tasks.py", "examples.py", "test_tasks.py", "shop.py"}
    examples = [block for block in blocks(PAGE, "python") if not block.name]
    text = "".join(EXAMPLE.format(line=block.line) + indent(block.text, "    ") for block in examples)
    (tmp_path / "test_examples.py").write_text(BEGIN + text)
    ran = pytest_in(tmp_path, "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(examples) + 1} passed" in ran.stdout


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


@pytest.mark.slow
def test_a_view_enqueues_and_gives_the_result(tmp_path: Path, server: EmbeddedServer) -> None:
    written(PAGE, tmp_path)
    environment = {"TREADLE_URL": server.url}
    argv = [sys.executable, "-m", "treadle.worker.cli", "run", "--handlers", "tasks", "--slots", "1"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(argv, cwd=tmp_path, env=FRESH | environment, stdout=log, stderr=log)
    try:
        ran = python_in(tmp_path, "-c", VISITED, environment=environment)
        assert ran.returncode == 0, ran.stdout + ran.stderr + (tmp_path / "log").read_text()
    finally:
        worker.terminate()
        assert worker.wait(20) == 0


@pytest.mark.parametrize("name", ["coming-from.md", "tutorial.md", "commands.md", "testing.md", "README.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", page(name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, part = target.partition("#")
        other = (page(name).parent / path).resolve() if path else page(name)
        assert other.exists(), target
        if part:
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert part in {anchor(heading) for heading in headings}, target


def test_the_commands_have_the_options_that_are_shown() -> None:
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    assert lines
    for line in lines:
        program, command, *rest = line.partition("#")[0].split()
        said = CliRunner().invoke({"treadle": app, "treadle-worker": worker_app}[program], [command, "--help"])
        assert said.exit_code == 0, line
        for option in (one for one in rest if one.startswith("--")):
            assert option in said.output, line
