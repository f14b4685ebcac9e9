"""What a type checker sees of `@handler` and `spec`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from house.reading import ROOT

pytestmark = pytest.mark.slow

TOP = """
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from treadle.worker import Context, SyncContext, handler


class Thumbs(BaseModel):
    files: list[str]
    size: int = 64


@dataclass
class Made:
    count: int


@handler("thumbnails", inputs=Thumbs)
async def thumbnails(context: Context, inputs: Thumbs) -> Made:
    await context.checkpoint({"done": len(inputs.files)})
    return Made(len(inputs.files))


@handler("count", inputs=Made)
def count(context: SyncContext, inputs: Made) -> int:
    context.checkpoint({"done": inputs.count})
    return inputs.count


@handler("untyped")
async def untyped(context: Context, inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs
"""

GOOD = """
made: Made = thumbnails.spec(files=["a"]).result_of({})
number: int = count.spec(3).result_of(3)
anything: dict[str, Any] = untyped.spec(whatever=1).result_of({})


async def test(context: Context, other: SyncContext) -> None:
    made: Made = await thumbnails(context, Thumbs(files=[]))
    number: int = count(other, made)
"""

BAD = """
thumbnails.spec(files=3)
thumbnails.spec()
thumbnails.spec(files=["a"], sise=3)
count.spec(count="x")
text: str = thumbnails.spec(files=["a"]).result_of({})


@handler("other", inputs=Thumbs)
async def other(context: Context, inputs: Made) -> None: ...


@handler("blocking")
def blocking(context: Context, inputs: dict[str, Any]) -> None: ...
"""


def checked(folder: Path, text: str) -> list[str]:
    """The lines that a type checker complains of, in a file of a user's."""
    file = folder / "thumbs.py"
    file.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=55,
    )
    assert not ran.stderr, ran.stderr
    lines = text.splitlines()
    numbers = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error: " in line}
    return [lines[number - 1] for number in sorted(numbers)]


def test_what_fits_is_accepted_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    assert checked(tmp_path, TOP + GOOD) == []
    wrong = [line for line in BAD.splitlines() if line and not line.startswith(("async def", "def"))]
    assert checked(tmp_path, TOP + BAD) == wrong
