"""docs/testing.md does what it says: its examples are files of a fresh project, and pass there."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh import pytest_in

from docs import blocks, page, written

PAGE = page("testing.md")


@pytest.mark.slow
def test_the_examples_pass_in_a_fresh_project(tmp_path: Path) -> None:
    files = {path.name for path in written(PAGE, tmp_path)}
    assert files == {"thumbs.py", "test_first.py", "test_faults.py"}
    ran = pytest_in(tmp_path, "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    asked = sum(block.text.count("async def test_") for block in blocks(PAGE, "python"))
    assert f"{asked} passed" in ran.stdout


def test_every_python_block_is_a_file_that_is_run() -> None:
    assert all(block.name for block in blocks(PAGE, "python"))


def test_no_example_may_leave_its_folder(tmp_path: Path) -> None:
    bad = tmp_path / "bad.md"
    bad.write_text("text\n\n```python\n# ../away.py\n```\n")
    with pytest.raises(ValueError, match=r"bad.md:3: ../away.py is not below its folder"):
        written(bad, tmp_path)
