"""docs/handlers.md does what it says: its handlers and programs run, and its figures are those of the program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh import FRESH, python_in
from treadle.shared import codec
from treadle.shared.progress import MILESTONES_MAX, NOTE_CHARS_MAX, WORD_CHARS_MAX
from treadle.shared.store.embedded import EmbeddedServer
from treadle.worker.slots import arguments, endings, files, program

from docs import blocks, page, written

PAGE = page("handlers.md")
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    running = EmbeddedServer().start()
    yield running
    running.stop()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("awk") is None, reason="the example's one-liner is awk, which is not on this machine")
def test_the_examples_run_as_they_stand(tmp_path: Path, server: EmbeddedServer) -> None:
    assert {path.name for path in written(PAGE, tmp_path)} == {"handlers.py", "submit.py", "count.sh", "pages.sh"}
    (started,) = (block.text for block in blocks(PAGE, "sh") if block.text.startswith("treadle-worker run"))
    (printed,) = (block.text for block in blocks(PAGE, "text"))
    environment = {"TREADLE_URL": server.url}
    argv = [sys.executable, "-m", "treadle.worker.cli", *shlex.split(started)[1:], "--slots", "2"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(argv, cwd=tmp_path, env=FRESH | environment, stdout=log, stderr=log)
    try:
        ran = python_in(tmp_path, "submit.py", environment=environment)
        assert ran.returncode == 0, ran.stdout + ran.stderr + (tmp_path / "log").read_text()
        assert ran.stdout == printed, (tmp_path / "log").read_text()
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


def test_the_script_that_saves_goes_on_where_it_was(tmp_path: Path) -> None:
    written(PAGE, tmp_path)
    (tmp_path / "page").write_text("3\n")
    environment = os.environ | {"TREADLE_CHECKPOINT": str(tmp_path)}
    ran = subprocess.run(
        ["sh", "pages.sh", "3"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "3\n"


def test_the_figures_are_those_of_the_program() -> None:
    said = " ".join(TEXT.split())
    for text in (
        f"of a note {NOTE_CHARS_MAX} characters are kept. {MILESTONES_MAX} milestones between",
        f"({WORD_CHARS_MAX} characters)",
        f"({files.FILES_MAX} at most, {files.FOLDER_BYTES_MAX // 1024} KiB in all",
        f"gets SIGTERM, {program.TERM_S:g} s later SIGKILL",
        f"the last {endings.LAST_WORDS_MAX:,} bytes of standard error",
        f"of more than {arguments.ARGUMENT_BYTES_MAX:,} bytes",
    ):
        assert text in said, text
    assert codec.RESULT_MAX == codec.CHECKPOINT_MAX == 1 << 20, "1 MiB"


def test_the_page_and_the_code_have_the_same_table_of_exit_statuses() -> None:
    assert re.search(r"exits with 64 or 65 \| has failed for good", TEXT)
    for status in range(256):
        failure = endings.failure(status, b"")
        assert (failure is None) == (status == 0)
        if failure is not None:
            assert failure.retryable == (status not in (64, 65))
